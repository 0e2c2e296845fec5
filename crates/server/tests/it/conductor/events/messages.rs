//! Messages to runs, and waiting tasks that are completed by queue.

use serde_json::{Value, json};

use super::{define, run_of, start};
use crate::conductor::support::{ask, tell};
use crate::support::Server;

#[tokio::test]
async fn a_message_is_taken_by_the_task_that_waits_for_it() {
    let server = Server::open().await;
    let pull =
        json!({"name": "pull", "taskReferenceName": "pull", "type": "PULL_WORKFLOW_MESSAGES"});
    define(&server, "pulls", json!([pull])).await;
    let id = start(&server, "pulls", json!({})).await;
    let path = format!("/workflow/{id}/messages");
    let message = tell(&server, "POST", &path, &json!({"n": 1})).await.text();
    let run = run_of(&server, &id).await;
    assert_eq!(run["status"], "COMPLETED");
    let output = &run["tasks"][0]["outputData"];
    assert_eq!(
        (&output["count"], &output["messages"][0]["id"]),
        (&json!(1), &json!(message))
    );
    assert_eq!(output["messages"][0]["payload"], json!({"n": 1}));
    tell(&server, "POST", &path, &json!({}))
        .await
        .refused(409, "run_not_active");
    let none = "/workflow/none/messages";
    tell(&server, "POST", none, &json!({}))
        .await
        .refused(404, "run_not_found");
    tell(&server, "POST", &path, &json!([1]))
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn a_paused_run_and_a_full_inbox_refuse() {
    let server = Server::open().await;
    define(
        &server,
        "waits",
        json!([{"name": "w", "taskReferenceName": "w", "type": "WAIT"}]),
    )
    .await;
    let id = start(&server, "waits", json!({})).await;
    let path = format!("/workflow/{id}/messages");
    ask(&server, "PUT", &format!("/workflow/{id}/pause"))
        .await
        .void();
    tell(&server, "POST", &path, &json!({}))
        .await
        .refused(409, "run_paused");
    ask(&server, "PUT", &format!("/workflow/{id}/resume"))
        .await
        .void();
    let large = json!({"text": "x".repeat(70_000)});
    tell(&server, "POST", &path, &large)
        .await
        .refused(400, "value_too_large");
    for n in 0..1000 {
        tell(&server, "POST", &path, &json!({"n": n})).await.text();
    }
    tell(&server, "POST", &path, &json!({}))
        .await
        .refused(429, "inbox_full");
}

#[tokio::test]
async fn a_waiting_task_is_completed_by_queue() {
    let server = Server::open().await;
    let task = |name: &str, task_type: &str| json!({"name": name, "taskReferenceName": name, "type": task_type});
    define(
        &server,
        "waits",
        json!([task("w", "WAIT"), task("h", "HUMAN"), task("s", "SIMPLE")]),
    )
    .await;
    let id = start(&server, "waits", json!({})).await;
    tell(
        &server,
        "POST",
        &format!("/queue/update/{id}/w/COMPLETED"),
        &json!({"by": "queue"}),
    )
    .await
    .void();
    let run = run_of(&server, &id).await;
    assert_eq!(run["tasks"][0]["outputData"], json!({"by": "queue"}));
    let human = run["tasks"][1]["taskId"].as_str().unwrap().to_owned();
    let path = format!("/queue/update/{id}/task/{human}/COMPLETED");
    tell(&server, "POST", &path, &json!({})).await.void();
    tell(&server, "POST", &path, &json!({}))
        .await
        .refused(404, "task_not_found");
    // A task for workers is not completed by queue.
    for (path, status, reason) in [
        (
            format!("/queue/update/{id}/s/COMPLETED"),
            404,
            "task_not_found",
        ),
        (
            format!("/queue/update/{id}/s/DONE"),
            400,
            "validation_failed",
        ),
        (
            "/queue/update/none/w/COMPLETED".to_owned(),
            404,
            "run_not_found",
        ),
    ] {
        tell(&server, "POST", &path, &json!({}))
            .await
            .refused(status, reason);
    }
    for path in ["/queue", "/queue/", "/queue/size"] {
        assert_eq!(
            ask(&server, "GET", path).await.json(),
            Value::Object(serde_json::Map::new())
        );
    }
}
