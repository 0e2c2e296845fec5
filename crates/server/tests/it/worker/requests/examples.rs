//! The published request and response pairs of the worker plane. Where the published example is older than the protocol the SDKs
//! speak (`event_id`, `worker.deregister` under `/workers`), the protocol counts.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Server, activity_report, id, merge};

const WORKER: &str = "polyglot-worker-231";

fn example(name: &str) -> Value {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/control-plane-examples");
    let text = std::fs::read_to_string(directory.join(format!("{name}-parity.json")))
        .expect("a copied example");
    serde_json::from_str(&text).expect("JSON")
}

/// Checks that every key of `shown` is in `ours` with the same type. Lists are compared by their first entries.
fn has_keys_of(ours: &Value, shown: &Value, at: &str) {
    match (ours, shown) {
        (Value::Object(ours), Value::Object(shown)) => {
            for (key, shown) in shown {
                let ours = ours
                    .get(key)
                    .unwrap_or_else(|| panic!("{at}.{key} is missing"));
                has_keys_of(ours, shown, &format!("{at}.{key}"));
            }
        }
        (Value::Array(ours), Value::Array(shown)) => {
            if let (Some(ours), Some(shown)) = (ours.first(), shown.first()) {
                has_keys_of(ours, shown, &format!("{at}[0]"));
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        (ours, shown) => assert_eq!(
            std::mem::discriminant(ours),
            std::mem::discriminant(shown),
            "{at}: {ours} and {shown}"
        ),
    }
}

/// Returns the example's body with the ids of this server.
fn body(name: &str, ids: Value) -> Value {
    let mut body = example(name)["request"]["body"].clone();
    merge(&mut body, ids);
    body
}

/// Returns the example's response without its list of events, which is from an older version.
fn answer(name: &str) -> Value {
    let mut answer = example(name)["response_body"].clone();
    for at in [
        "/history_events/0",
        "/history_events/1",
        "/task/history_events/0",
    ] {
        if let Some(Value::Object(event)) = answer.pointer_mut(at) {
            event.remove("event_id");
            event.remove("payload");
        }
    }
    answer
}

#[tokio::test]
async fn a_published_worker_runs_a_workflow() {
    let server = Server::open().await;
    let registered = server
        .worker_post("/register", &body("worker-register", json!({})))
        .accepted(201)
        .await;
    has_keys_of(&registered, &answer("worker-register"), "register");

    server
        .start_with(json!({"workflow_id": "order-231", "workflow_type": "orders.fulfillment", "task_queue": "external-workflows"}))
        .await;
    let poll = body("workflow-task-poll", json!({"timeout_seconds": 0}));
    let polled = server
        .worker_post("/workflow-tasks/poll", &poll)
        .accepted(200)
        .await;
    has_keys_of(&polled, &answer("workflow-task-poll"), "poll");
    let task = polled["task"].clone();

    let ids = json!({"workflow_task_attempt": 1, "next_history_page_token": "MA=="});
    let page = server
        .worker_post(
            &format!("/workflow-tasks/{}/history", id(&task)),
            &body("workflow-task-history", ids),
        )
        .accepted(200)
        .await;
    has_keys_of(&page, &answer("workflow-task-history"), "history");

    let failed = server
        .worker_post(
            &format!("/workflow-tasks/{}/fail", id(&task)),
            &body("workflow-task-fail", json!({"workflow_task_attempt": 1})),
        )
        .accepted(200)
        .await;
    has_keys_of(&failed, &answer("workflow-task-fail"), "fail");
    assert_eq!(failed["outcome"], "failed");

    server.advance(60).await;
    let task = server
        .worker_post("/workflow-tasks/poll", &poll)
        .accepted(200)
        .await["task"]
        .clone();
    let completed = server
        .worker_post(
            &format!("/workflow-tasks/{}/complete", id(&task)),
            &body("workflow-task-complete", json!({})),
        )
        .accepted(200)
        .await;
    has_keys_of(&completed, &answer("workflow-task-complete"), "complete");
    assert_eq!(completed["workflow_task_attempt"], 2);
}

#[tokio::test]
async fn published_activity_reports_are_accepted() {
    let server = Server::open().await;
    server
        .worker_post(
            "/register",
            &body(
                "worker-register",
                json!({"supported_activity_types": [], "supported_workflow_types": []}),
            ),
        )
        .accepted(201)
        .await;
    let queue =
        json!({"worker_id": WORKER, "task_queue": "external-workflows", "timeout_seconds": 0});
    for workflow_id in ["one", "two"] {
        server
            .start_with(json!({"workflow_id": workflow_id, "workflow_type": "orders.fulfillment", "task_queue": "external-workflows"}))
            .await;
        let task = server
            .worker_post("/workflow-tasks/poll", &queue)
            .accepted(200)
            .await["task"]
            .clone();
        let commands =
            json!([{"type": "schedule_activity", "activity_type": "inventory.sync-page"}]);
        crate::support::complete(&server, &task, commands)
            .accepted(200)
            .await;
    }
    let activity = || async {
        server
            .worker_post("/activity-tasks/poll", &queue)
            .accepted(200)
            .await["task"]
            .clone()
    };
    let first = activity().await;
    let result = example("activity-complete")["cli"]["expected_body"]["result"].clone();
    let completed = activity_report(&server, &first, "complete", json!({"result": result}))
        .accepted(200)
        .await;
    has_keys_of(&completed, &answer("activity-complete"), "complete");
    let second = activity().await;
    let failure = example("activity-fail")["request"]["body"]["failure"].clone();
    let failed = activity_report(&server, &second, "fail", json!({"failure": failure}))
        .accepted(200)
        .await;
    has_keys_of(&failed, &answer("activity-fail"), "fail");
}
