//! Registered definitions: round trips, versions, refusals.

mod schemas;
mod tags;

use serde_json::{Value, json};

use super::support::{ask, call, hello, send, tell, with_hello};
use crate::support::Server;

#[tokio::test]
async fn task_definitions_are_registered_in_every_form_and_read_back() {
    let server = Server::open().await;
    let full = json!({
        "name": "full", "description": "d", "retryCount": 5, "retryLogic": "LINEAR_BACKOFF",
        "retryDelaySeconds": 2, "timeoutSeconds": 90, "timeoutPolicy": "RETRY", "responseTimeoutSeconds": 30,
        "inputKeys": ["a"], "inputTemplate": {"x": null}, "concurrentExecLimit": 4, "ownerEmail": "a@b.c",
    });
    tell(
        &server,
        "POST",
        "/metadata/taskdefs",
        &json!([full, {"name": "bare"}]),
    )
    .await
    .void();
    tell(
        &server,
        "PUT",
        "/metadata/taskdefs",
        &json!({"name": "put", "enforceSchema": false}),
    )
    .await
    .void();
    tell(
        &server,
        "PUT",
        "/metadata/taskdefs/named",
        &json!({"name": "ignored"}),
    )
    .await
    .void();
    let stored = ask(&server, "GET", "/metadata/taskdefs/full").await.json();
    for (name, value) in full.as_object().unwrap() {
        assert_eq!(&stored[name], value, "{name}");
    }
    let all = ask(&server, "GET", "/metadata/taskdefs?access=READ")
        .await
        .json();
    let names: Vec<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["bare", "full", "named", "put"]);
    ask(&server, "DELETE", "/metadata/taskdefs/full")
        .await
        .void();
    let refusal = ask(&server, "GET", "/metadata/taskdefs/full")
        .await
        .refused(404, "definition_not_found");
    assert_eq!(refusal["message"], "No such taskType found by name: full");
    let refusal = ask(&server, "DELETE", "/metadata/taskdefs/full")
        .await
        .refused(404, "definition_not_found");
    assert_eq!(refusal["message"], "No such task definition: full");
}

#[tokio::test]
async fn an_update_keeps_the_time_of_the_first_registration() {
    let server = Server::open().await;
    tell(&server, "PUT", "/metadata/taskdefs", &json!({"name": "t"}))
        .await
        .void();
    with_hello(&server).await;
    let first = ask(&server, "GET", "/metadata/taskdefs/t").await.json();
    assert_eq!(first["updateTime"], 0);
    server.advance(60).await;
    tell(
        &server,
        "PUT",
        "/metadata/taskdefs",
        &json!({"name": "t", "retryCount": 1}),
    )
    .await
    .void();
    tell(&server, "PUT", "/metadata/workflow", &json!([hello()]))
        .await
        .json();
    let second = ask(&server, "GET", "/metadata/taskdefs/t").await.json();
    assert_eq!(second["createTime"], first["createTime"]);
    assert_eq!(
        second["updateTime"],
        first["createTime"].as_i64().unwrap() + 60_000
    );
    let workflow = ask(&server, "GET", "/metadata/workflow/hello").await.json();
    assert_eq!(workflow["createTime"], first["createTime"]);
    assert_eq!(workflow["updateTime"], second["updateTime"]);
}

#[tokio::test]
async fn an_invalid_task_definition_is_refused_with_every_mistake_and_nothing_is_stored() {
    let server = Server::open().await;
    let body = json!([{"name": "good"}, {"name": "", "retryCount": -1}, {"name": "x", "responseTimeoutSeconds": 0}]);
    let refusal = tell(&server, "POST", "/metadata/taskdefs", &body)
        .await
        .refused(400, "definition_invalid");
    assert_eq!(
        refusal["message"],
        "Validation failed, check below errors for detail."
    );
    let paths: Vec<&str> = refusal["validationErrors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths.len(), 3, "{refusal}");
    for part in ["[1].name", "[1].retryCount", "[2].responseTimeoutSeconds"] {
        assert!(paths.contains(&part), "{paths:?}");
    }
    tell(&server, "POST", "/metadata/taskdefs", &json!([]))
        .await
        .refused(400, "definition_invalid");
    for word in ["retryLogic", "timeoutPolicy"] {
        let mut body = json!({"name": "x"});
        body[word] = json!("SOMETIMES");
        let refusal = tell(&server, "PUT", "/metadata/taskdefs", &body)
            .await
            .refused(400, "validation_failed");
        assert_eq!(refusal["validationErrors"][0]["path"], word);
    }
    assert_eq!(
        ask(&server, "GET", "/metadata/taskdefs").await.json(),
        json!([])
    );
}

#[tokio::test]
async fn workflow_definitions_have_versions() {
    let server = Server::open().await;
    with_hello(&server).await;
    let refusal = tell(&server, "POST", "/metadata/workflow", &hello())
        .await
        .refused(409, "definition_already_exists");
    assert_eq!(refusal["message"], "Workflow with hello.1 already exists!");
    let mut second = hello();
    second["version"] = json!(2);
    second["inputParameters"] = json!(["n"]);
    let mut other = hello();
    other["name"] = json!("other");
    let put = tell(
        &server,
        "PUT",
        "/metadata/workflow?overwrite=true",
        &json!([second, other]),
    )
    .await
    .json();
    assert_eq!(
        put,
        json!({"bulkSuccessfulResults": ["hello", "other"], "bulkErrorResults": {}})
    );
    let newest = ask(&server, "GET", "/metadata/workflow/hello").await.json();
    assert_eq!(
        (&newest["version"], &newest["inputParameters"]),
        (&json!(2), &json!(["n"]))
    );
    // A task without a definition has none in the answer.
    assert_eq!(newest["tasks"][0].get("taskDefinition"), None::<&Value>);
    assert_eq!(
        ask(&server, "GET", "/metadata/workflow/hello?version=1")
            .await
            .json()["version"],
        1
    );
    assert_eq!(
        ask(&server, "GET", "/metadata/workflow")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        3
    );
    ask(&server, "DELETE", "/metadata/workflow/hello/2")
        .await
        .void();
    assert_eq!(
        ask(&server, "GET", "/metadata/workflow/hello").await.json()["version"],
        1
    );
    for (method, path, message) in [
        (
            "GET",
            "/metadata/workflow/hello?version=2",
            "No such workflow found by name: hello, version: 2",
        ),
        (
            "GET",
            "/metadata/workflow/none",
            "No such workflow found by name: none, version: null",
        ),
        (
            "DELETE",
            "/metadata/workflow/hello/2",
            "No such workflow definition: hello version: 2",
        ),
    ] {
        let refusal = ask(&server, method, path)
            .await
            .refused(404, "definition_not_found");
        assert_eq!(refusal["message"], message);
    }
    ask(&server, "DELETE", "/metadata/workflow/hello/x")
        .await
        .refused(400, "validation_failed");
    ask(&server, "GET", "/metadata/workflow/hello?version=x")
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn an_invalid_workflow_is_refused_and_nothing_of_its_list_is_stored() {
    let server = Server::open().await;
    let mut twice = hello();
    twice["name"] = json!("twice");
    let task = twice["tasks"][0].clone();
    twice["tasks"] = json!([task, task]);
    for (method, path, body) in [
        ("POST", "/metadata/workflow", twice.clone()),
        ("PUT", "/metadata/workflow", json!([hello(), twice])),
        ("POST", "/metadata/workflow/validate", twice.clone()),
        (
            "POST",
            "/metadata/workflow",
            json!({"name": "empty", "tasks": []}),
        ),
        (
            "POST",
            "/metadata/workflow",
            json!({"name": "", "tasks": hello()["tasks"]}),
        ),
    ] {
        let answer = tell(&server, method, path, &body).await;
        let refusal = answer.refused(400, "definition_invalid");
        let errors = refusal["validationErrors"].as_array().unwrap();
        assert!(!errors.is_empty(), "{refusal}");
        // The place in a list is part of the path.
        for error in errors {
            let at = error["path"].as_str().unwrap();
            assert_eq!(at.starts_with("[1].tasks"), body.is_array(), "{refusal}");
        }
    }
    tell(&server, "PUT", "/metadata/workflow", &json!([]))
        .await
        .refused(400, "validation_failed");
    tell(&server, "POST", "/metadata/workflow/validate", &hello())
        .await
        .void();
    assert_eq!(
        ask(&server, "GET", "/metadata/workflow").await.json(),
        json!([])
    );
    // An unknown word in a definition would make clients drop whole answers.
    let mut odd = hello();
    odd["timeoutPolicy"] = json!("NEVER");
    send(call(&server, "POST", "/metadata/workflow").json(&odd))
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn workflow_definitions_are_listed_by_name_and_version() {
    let server = Server::open().await;
    for (name, version) in [("b", 1), ("a", 1), ("a", 2)] {
        let definition = json!({"name": name, "version": version, "tasks": [{"name": "t", "taskReferenceName": "t"}]});
        tell(&server, "POST", "/metadata/workflow", &definition)
            .await
            .void();
    }
    let read = async |path: &str| {
        let path = format!("/metadata/workflow/{path}");
        ask(&server, "GET", &path).await.json()
    };
    assert_eq!(read("names").await, json!(["a", "b"]));
    let versions = |list: &Value| -> Vec<i64> {
        let list = list.as_array().unwrap().iter();
        list.map(|one| one["version"].as_i64().unwrap()).collect()
    };
    let all = read("names-and-versions").await;
    assert_eq!(
        (versions(&all["a"]), versions(&all["b"])),
        (vec![1, 2], vec![1])
    );
    assert_eq!(versions(&read("latest-versions").await), [2, 1]);
    assert_eq!(versions(&read("a/versions").await), [1, 2]);
    ask(&server, "GET", "/metadata/workflow/c/versions")
        .await
        .refused(404, "definition_not_found");
}

#[tokio::test]
async fn a_task_definition_that_is_nested_too_deeply_is_refused() {
    let server = Server::open().await;
    let mut deep = json!(1);
    for _ in 0..110 {
        deep = json!([deep]);
    }
    let definition = json!([{"name": "t", "inputTemplate": {"deep": deep}}]);
    let refusal = tell(&server, "POST", "/metadata/taskdefs", &definition)
        .await
        .refused(400, "definition_invalid");
    assert_eq!(refusal["validationErrors"][0]["path"], "[0]");
    let empty = tell(&server, "PUT", "/metadata/workflow", &json!([]))
        .await
        .refused(400, "validation_failed");
    assert_eq!(empty["validationErrors"].as_array().unwrap().len(), 1);
}
