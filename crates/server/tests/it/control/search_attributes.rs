//! Search attribute definitions, and what they ask of values.

use http::Method;
use serde_json::{Value, json};

use crate::support::Server;

async fn define(server: &Server, name: &str, word: &str) -> Value {
    let body = json!({"name": name, "type": word});
    server.post("/search-attributes", &body).accepted(201).await
}

async fn custom(server: &Server) -> Value {
    let all = server.get("/search-attributes").accepted(200).await;
    all["custom_attributes"].clone()
}

#[tokio::test]
async fn an_attribute_is_defined_listed_and_deleted() {
    let server = Server::open().await;
    assert_eq!(
        server.get("/search-attributes").accepted(200).await,
        json!({
            "system_attributes": {
                "WorkflowType": "keyword", "WorkflowId": "keyword", "RunId": "keyword", "Status": "keyword",
                "TaskQueue": "keyword", "BuildId": "keyword", "StartTime": "datetime", "CloseTime": "datetime",
            },
            "custom_attributes": {},
        })
    );
    for (sent, kept) in [
        ("keyword", "keyword"),
        ("text", "text"),
        ("int", "int"),
        ("double", "double"),
        ("bool", "bool"),
        ("datetime", "datetime"),
        ("keyword_list", "keyword_list"),
        ("string", "text"),
        ("float", "double"),
    ] {
        let name = format!("Of_{sent}");
        assert_eq!(
            define(&server, &name, sent).await,
            json!({"name": name, "type": kept, "outcome": "created"})
        );
        assert_eq!(custom(&server).await[&name], kept);
    }
    let deleted = server
        .call(Method::DELETE, "/search-attributes/Of_int")
        .accepted(200)
        .await;
    assert_eq!(deleted, json!({"name": "Of_int", "outcome": "deleted"}));
    assert_eq!(custom(&server).await.get("Of_int"), None);
    server
        .call(Method::DELETE, "/search-attributes/Of_int")
        .refused(404, "attribute_not_found")
        .await;
    // The name is free again, for another type too.
    define(&server, "Of_int", "keyword").await;
}

#[tokio::test]
async fn an_invalid_name_or_type_is_refused() {
    let server = Server::open().await;
    let post = |body: Value| server.post("/search-attributes", &body);
    for (name, field) in [
        ("__internal", "name"),
        ("1a", "name"),
        ("a-b", "name"),
        ("a b", "name"),
        ("", "name"),
        (&"x".repeat(129), "name"),
    ] {
        assert_eq!(
            post(json!({"name": name, "type": "int"})).invalid().await,
            [field],
            "{name}"
        );
    }
    assert_eq!(post(json!({})).invalid().await, ["name", "type"]);
    for word in ["number", "", "Keyword", "list"] {
        assert_eq!(
            post(json!({"name": "A", "type": word})).invalid().await,
            ["type"],
            "{word}"
        );
    }
    for name in [
        "wf_id",
        "wf_x",
        "Status",
        "WorkflowType",
        "ExecutionStatus",
        "ExecutionTime",
        "BuildIds",
        "Not",
    ] {
        let refused = post(json!({"name": name, "type": "keyword"}))
            .refused(409, "name_reserved")
            .await;
        assert_eq!(refused["name"], name);
    }
    define(&server, "A", "int").await;
    for word in ["int", "keyword"] {
        let refused = post(json!({"name": "A", "type": word}))
            .refused(409, "attribute_already_exists")
            .await;
        assert_eq!(
            (&refused["name"], &refused["type"]),
            (&json!("A"), &json!("int"))
        );
    }
    for name in ["Status", "CloseTime", "BuildIds"] {
        server
            .call(Method::DELETE, &format!("/search-attributes/{name}"))
            .refused(409, "system_attribute")
            .await;
    }
    assert_eq!(custom(&server).await, json!({"A": "int"}));
}

#[tokio::test]
async fn a_namespace_defines_a_hundred_at_most() {
    let server = Server::open().await;
    for number in 0..100 {
        define(&server, &format!("A{number}"), "int").await;
    }
    let body = json!({"name": "B", "type": "int"});
    let refused = server
        .post("/search-attributes", &body)
        .refused(422, "search_attribute_limit_reached")
        .await;
    assert_eq!(refused["limit"], 100);
    server
        .call(Method::DELETE, "/search-attributes/A7")
        .accepted(200)
        .await;
    define(&server, "B", "int").await;
}

#[tokio::test]
async fn definitions_belong_to_their_namespace() {
    let server = Server::open().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    define(&server, "A", "int").await;
    let there = server
        .get("/search-attributes")
        .namespace("other")
        .accepted(200)
        .await;
    assert_eq!(there["custom_attributes"], json!({}));
    let deleting = |name: &str| server.call(Method::DELETE, &format!("/search-attributes/{name}"));
    let there = deleting("A").namespace("other").send().await;
    let missing = deleting("M").namespace("other").send().await;
    assert_eq!(
        there
            .body
            .to_string()
            .replace("\"A\"", "\"M\"")
            .replace("`A`", "`M`"),
        missing.body.to_string()
    );
    server
        .get("/search-attributes")
        .namespace("nowhere")
        .refused(404, "namespace_not_found")
        .await;
    assert_eq!(custom(&server).await, json!({"A": "int"}));
}

#[tokio::test]
async fn only_operators_define_attributes() {
    let server = Server::guarded().await;
    for (method, path) in [
        (Method::GET, "/search-attributes"),
        (Method::POST, "/search-attributes"),
        (Method::DELETE, "/search-attributes/A"),
    ] {
        server
            .call(method.clone(), path)
            .token("w")
            .refused(403, "forbidden")
            .await;
        server.call(method, path).refused(401, "unauthorized").await;
    }
    server
        .get("/search-attributes")
        .token("o")
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_start_is_checked_against_the_definitions() {
    let server = Server::open().await;
    let start = |id: &str, attributes: Value| {
        let body =
            json!({"workflow_id": id, "workflow_type": "greet", "search_attributes": attributes});
        server.post("/workflows", &body)
    };
    // Without any definition, what comes is kept as it is.
    let free = json!({"A": "x", "B": 1, "C": 1.5, "D": true, "E": ["z", "a"], "F": "2026-01-01T00:00:00+05:30"});
    start("free", free.clone()).accepted(201).await;
    for (name, word) in [
        ("K", "keyword"),
        ("T", "text"),
        ("I", "int"),
        ("D", "double"),
        ("B", "bool"),
        ("W", "datetime"),
        ("L", "keyword_list"),
    ] {
        define(&server, name, word).await;
    }
    let good = json!({
        "K": "k".repeat(255), "T": "t".repeat(2048), "I": i64::MIN, "D": 0.1, "B": false,
        "W": "2026-01-01T00:00:00.123456789+05:30", "L": ["b", "a", "b"],
    });
    start("good", good.clone()).accepted(201).await;
    start("whole", json!({"D": 3, "I": null, "L": []}))
        .accepted(201)
        .await;
    for wrong in [
        json!({"Undefined": 1}),
        json!({"Undefined": null}),
        json!({"K": 1}),
        json!({"K": "k".repeat(256)}),
        json!({"K": ["k"]}),
        json!({"T": true}),
        json!({"I": 1.0}),
        json!({"I": 1.5}),
        json!({"I": "1"}),
        json!({"I": true}),
        json!({"I": 9_223_372_036_854_775_808_u64}),
        json!({"D": "1.5"}),
        json!({"D": false}),
        json!({"B": 1}),
        json!({"B": "true"}),
        json!({"W": "2026-01-01"}),
        json!({"W": "2026-01-01T00:00:00"}),
        json!({"W": 5}),
        json!({"L": "a"}),
        json!({"L": ["a", "k".repeat(256)]}),
        json!({"K": "fine", "I": "wrong"}),
    ] {
        assert_eq!(
            start("bad", wrong.clone()).invalid().await,
            ["search_attributes"],
            "{wrong}"
        );
    }
    server
        .get("/workflows/bad")
        .refused(404, "instance_not_found")
        .await;
    // Type, precision, zone and order of what was kept.
    for (id, kept) in [
        ("free", free),
        ("good", good),
        ("whole", json!({"D": 3, "L": []})),
    ] {
        let described = server.get(&format!("/workflows/{id}")).accepted(200).await;
        assert_eq!(described["search_attributes"].to_string(), kept.to_string());
        let listed = server
            .get(&format!("/workflows?query=WorkflowId%3D{id}"))
            .accepted(200)
            .await;
        assert_eq!(
            listed["workflows"][0]["search_attributes"].to_string(),
            kept.to_string()
        );
    }
}
