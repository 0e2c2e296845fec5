//! Namespaces do not see each other.

use http::Method;
use serde_json::{Value, json};

use crate::support::Server;

async fn two() -> Server {
    let server = Server::open().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    server
}

#[tokio::test]
async fn another_namespaces_workflow_looks_exactly_like_a_missing_one() {
    let server = two().await;
    let run_id = server.start("w").await;
    let calls = |id: &str| {
        [
            (Method::GET, format!("/workflows/{id}")),
            (Method::GET, format!("/workflows/{id}/runs")),
            (Method::GET, format!("/workflows/{id}/runs/{run_id}")),
            (
                Method::GET,
                format!("/workflows/{id}/runs/{run_id}/history"),
            ),
            (Method::POST, format!("/workflows/{id}/signal/s")),
            (
                Method::POST,
                format!("/workflows/{id}/runs/{run_id}/signal/s"),
            ),
            (Method::POST, format!("/workflows/{id}/cancel")),
            (Method::POST, format!("/workflows/{id}/terminate")),
        ]
    };
    for ((method, there), (_, missing)) in calls("w").into_iter().zip(calls("w-missing")) {
        let there = server
            .call(method.clone(), &there)
            .namespace("other")
            .send()
            .await;
        let missing = server
            .call(method, &missing)
            .namespace("other")
            .send()
            .await;
        assert_eq!((there.status.as_u16(), missing.status.as_u16()), (404, 404));
        let there: Value =
            serde_json::from_str(&there.body.to_string().replace("w-missing", "w")).unwrap();
        let missing: Value =
            serde_json::from_str(&missing.body.to_string().replace("w-missing", "w")).unwrap();
        assert_eq!(there, missing);
    }
    assert_eq!(
        server.get("/workflows/w").accepted(200).await["status"],
        "pending",
        "nothing happened to it"
    );
}

#[tokio::test]
async fn one_id_can_be_used_in_every_namespace() {
    let server = two().await;
    let body = json!({"workflow_id": "w", "workflow_type": "greet"});
    let here = server.post("/workflows", &body).accepted(201).await;
    let there = server
        .post("/workflows", &body)
        .namespace("OTHER")
        .accepted(201)
        .await;
    assert_ne!(here["run_id"], there["run_id"]);
    assert_eq!(
        (&here["namespace"], &there["namespace"]),
        (&json!("default"), &json!("other"))
    );
    let path = format!("/workflows/w/runs/{}", there["run_id"].as_str().unwrap());
    server.get(&path).refused(404, "run_not_found").await;
    server.get(&path).namespace("other").accepted(200).await;
}

#[tokio::test]
async fn lists_show_one_namespace_only() {
    let server = two().await;
    server.start("here").await;
    let body = json!({"workflow_id": "there", "workflow_type": "greet"});
    server
        .post("/workflows?namespace=other", &body)
        .accepted(201)
        .await;
    let ids = |page: &Value| -> Vec<String> {
        page["workflows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["workflow_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&server.get("/workflows").accepted(200).await), ["here"]);
    assert_eq!(
        ids(&server
            .get("/workflows")
            .namespace("other")
            .accepted(200)
            .await),
        ["there"]
    );
    assert_eq!(
        ids(&server.get("/workflows?namespace=other").accepted(200).await),
        ["there"]
    );
    let both = server
        .get("/workflows?namespace=other")
        .namespace("default")
        .accepted(200)
        .await;
    assert_eq!(ids(&both), ["here"], "the header wins");
}

#[tokio::test]
async fn queues_and_workers_of_one_name_are_separate() {
    let server = two().await;
    server.register("w", json!({})).await;
    server.start("here").await;
    for path in ["/task-queues/default", "/task-queues", "/workers"] {
        let there = server
            .get(path)
            .namespace("other")
            .accepted(200)
            .await
            .to_string();
        assert!(
            !there.contains("\"w\"") && !there.contains("\"ready_count\":1"),
            "{there}"
        );
    }
    server
        .get("/workers/w")
        .namespace("other")
        .refused(404, "worker_not_found")
        .await;
    server
        .call(Method::DELETE, "/workers/w")
        .namespace("other")
        .refused(404, "worker_not_found")
        .await;
    server.get("/workers/w").accepted(200).await;
}
