//! The schema registry.

use serde_json::{Value, json};

use crate::conductor::support::{ask, call, send, tell};
use crate::support::Server;

fn schema(name: &str, version: i32) -> Value {
    json!({
        "name": name,
        "version": version,
        "type": "JSON",
        "data": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "nil": null},
    })
}

#[tokio::test]
async fn a_schema_is_stored_by_name_and_version_and_read_back() {
    let server = Server::open().await;
    tell(&server, "POST", "/schema", &schema("s", 2))
        .await
        .void();
    // A list, as one of the clients sends it, and a name with no version and no data.
    let list = json!([schema("s", 1), {"name": "bare"}]);
    tell(&server, "POST", "/schema?newVersion=False", &list)
        .await
        .void();
    let stored = ask(&server, "GET", "/schema/s/2").await.json();
    assert_eq!(stored["data"], schema("s", 2)["data"]);
    assert_eq!(
        (&stored["version"], &stored["type"]),
        (&json!(2), &json!("JSON"))
    );
    let created = stored["createTime"].as_i64().expect("a time");
    assert_eq!(ask(&server, "GET", "/schema/s").await.json()["version"], 2);
    assert_eq!(
        ask(&server, "GET", "/schema/bare").await.json()["version"],
        1
    );
    let all = ask(&server, "GET", "/schema").await.json();
    let keys: Vec<String> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|schema| format!("{} {}", schema["name"].as_str().unwrap(), schema["version"]))
        .collect();
    assert_eq!(keys, ["bare 1", "s 1", "s 2"]);
    // A second registration replaces it and keeps the time of the first.
    server.advance(60).await;
    let mut changed = schema("s", 2);
    changed["data"] = json!({"type": "array"});
    tell(&server, "POST", "/schema", &changed).await.void();
    let stored = ask(&server, "GET", "/schema/s/2").await.json();
    assert_eq!(stored["data"], changed["data"]);
    assert_eq!(stored["createTime"], created);
    assert_eq!(stored["updateTime"], created + 60_000);
}

#[tokio::test]
async fn a_new_version_follows_the_newest() {
    let server = Server::open().await;
    let named = json!({"name": "s"});
    let add = || async {
        let path = "/schema?newVersion=true";
        tell(&server, "POST", path, &named).await.void();
    };
    add().await;
    tell(&server, "POST", "/schema", &schema("s", 7))
        .await
        .void();
    tokio::join!(add(), add(), add());
    let all = ask(&server, "GET", "/schema").await.json();
    let versions: Vec<&Value> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["version"])
        .collect();
    assert_eq!(json!(versions), json!([1, 7, 8, 9, 10]));
}

#[tokio::test]
async fn what_does_not_exist_is_not_found_and_what_is_wrong_is_refused() {
    let server = Server::open().await;
    tell(&server, "POST", "/schema", &schema("s", 1))
        .await
        .void();
    for (method, path) in [
        ("GET", "/schema/none"),
        ("GET", "/schema/s/2"),
        ("DELETE", "/schema/none"),
        ("DELETE", "/schema/s/2"),
    ] {
        ask(&server, method, path)
            .await
            .refused(404, "definition_not_found");
    }
    for (method, path) in [("GET", "/schema/s/x"), ("DELETE", "/schema/s/1.5")] {
        ask(&server, method, path)
            .await
            .refused(400, "validation_failed");
    }
    for body in [
        json!({"name": ""}),
        json!({}),
        json!([]),
        json!([schema("t", 1), schema("u", 0)]),
    ] {
        let answer = tell(&server, "POST", "/schema", &body).await;
        let refusal = answer.refused(400, "definition_invalid");
        assert!(refusal["validationErrors"].is_array(), "{body}");
    }
    for body in [json!({"name": []}), json!({"name": "t", "type": "XML"})] {
        let answer = tell(&server, "POST", "/schema", &body).await;
        answer.refused(400, "validation_failed");
    }
    let all = ask(&server, "GET", "/schema").await.json();
    assert_eq!(all.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn versions_are_deleted_one_by_one_or_together() {
    let server = Server::open().await;
    for version in 1..=3 {
        tell(&server, "POST", "/schema", &schema("s", version))
            .await
            .void();
    }
    tell(&server, "POST", "/schema", &schema("s2", 1))
        .await
        .void();
    ask(&server, "DELETE", "/schema/s/3").await.void();
    assert_eq!(ask(&server, "GET", "/schema/s").await.json()["version"], 2);
    // The Python client sends an empty object.
    send(call(&server, "DELETE", "/schema/s").json(&json!({})))
        .await
        .void();
    ask(&server, "GET", "/schema/s/1")
        .await
        .refused(404, "definition_not_found");
    assert_eq!(
        ask(&server, "GET", "/schema")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_start_that_does_not_match_is_refused_and_starts_nothing() {
    // This server compares nothing, so nothing matches.
    let server = Server::open().await;
    tell(&server, "POST", "/schema", &schema("s", 1))
        .await
        .void();
    let task = json!({"name": "t", "taskReferenceName": "t"});
    let link = json!({"name": "s", "version": 1, "type": "JSON"});
    let definition = json!({"name": "w", "version": 1, "tasks": [task], "inputSchema": link});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    let stored = ask(&server, "GET", "/metadata/workflow/w").await.json();
    assert_eq!(stored["inputSchema"], link, "the definition keeps the name");
    for (path, body) in [
        ("/workflow", json!({"name": "w", "input": {"a": 1}})),
        ("/workflow/w", json!({"a": 1})),
        (
            "/workflow/execute/w/1",
            json!({"name": "w", "input": {"a": 1}}),
        ),
    ] {
        let answer = tell(&server, "POST", path, &body).await;
        let refusal = answer.refused(400, "schema_mismatch");
        let message = refusal["message"].as_str().unwrap();
        assert!(
            message.starts_with("The input of workflow w could not be compared with schema s"),
            "{message}"
        );
    }
    let found = ask(&server, "GET", "/workflow/search?query=workflowType=w").await;
    assert_eq!(found.json()["totalHits"], 0);
    // It is not enforced if the definition says so.
    let mut open = definition.clone();
    open["enforceSchema"] = json!(false);
    tell(&server, "PUT", "/metadata/workflow", &json!([open])).await;
    tell(&server, "POST", "/workflow/w", &json!({"a": 1}))
        .await
        .text();
}
