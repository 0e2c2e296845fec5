//! Outages of the store and bugs of the server: the response is in the worker envelope and has the time of the next try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use longhaul_store::Error;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use crate::support::{Server, activity_report, complete, decided, every_type, report};

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;

/// Makes the store of a test server fail or panic on request.
struct Outage(Arc<AtomicU8>);

impl Outage {
    fn set(&self, mode: u8) {
        self.0.store(mode, Ordering::SeqCst);
    }
}

async fn server() -> (Server, Outage) {
    let mode = Arc::new(AtomicU8::new(WORKS));
    let asked = Arc::clone(&mode);
    let store = Memory::with_fault(move || match asked.load(Ordering::SeqCst) {
        FAILS => Err(Error::Unavailable("the disk is gone".to_owned())),
        PANICS => panic!("a bug in the store"),
        _ => Ok(()),
    });
    let server = Server::on_store(Arc::new(store)).await;
    server.register("w", every_type()).await;
    (server, Outage(mode))
}

/// Checks that a refusal may be retried and has the time of the next try.
fn expect_retryable(refusal: &Value) {
    assert_eq!(refusal["retryable"], true, "{refusal}");
    let after = refusal["retry_after_seconds"].as_u64();
    assert!(
        after.is_some_and(|seconds| (1..=60).contains(&seconds)),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_poll_during_an_outage_may_be_sent_again() {
    let (server, store) = server().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    server.start("second").await;
    store.set(FAILS);
    let wait = json!({"poll_request_id": "p-1"});
    for kind in ["workflow", "activity"] {
        let refusal = server
            .worker("w")
            .poll(kind, wait.clone())
            .refused(503, "backend_unavailable")
            .await;
        expect_retryable(&refusal);
        assert_eq!(refusal["task"], Value::Null);
        assert_eq!(refusal["poll_status"], "backend_unavailable");
        assert_eq!(refusal["outcome"], "unknown");
        assert_eq!(refusal["worker_id"], "w");
        assert_eq!(refusal["task_queue"], "default");
        assert_eq!(refusal["poll_request_id"], "p-1");
        assert_eq!(refusal["retry_same_poll_request_id"], true);
        assert!(refusal["operation"].is_string(), "{refusal}");
    }
    store.set(WORKS);
    for kind in ["workflow", "activity"] {
        let answer = server
            .worker("w")
            .poll(kind, wait.clone())
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], "leased", "{answer}");
    }
}

#[tokio::test]
async fn a_completion_during_an_outage_is_unknown_and_may_be_sent_again() {
    let (server, store) = server().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let commands = json!([{"type": "schedule_activity", "activity_type": "say"}]);
    store.set(FAILS);
    let refusal = complete(&server, &task, commands.clone())
        .refused(503, "backend_unavailable")
        .await;
    expect_retryable(&refusal);
    assert_eq!(refusal["operation"], "complete_workflow_task");
    assert_eq!(refusal["outcome"], "unknown");
    assert_eq!(refusal["worker_id"], "w");
    assert_eq!(refusal["lease_owner"], "w");
    assert_eq!(refusal["task_id"], task["task_id"]);
    assert_eq!(refusal["workflow_task_attempt"], 1);
    assert!(
        refusal
            .as_object()
            .is_some_and(|body| body.contains_key("task_queue"))
    );
    assert_eq!(refusal["task_queue"], Value::Null);
    store.set(WORKS);
    complete(&server, &task, commands).accepted(200).await;

    let activity = server.worker("w").activity_task().await;
    store.set(FAILS);
    let refusal = activity_report(&server, &activity, "complete", json!({}))
        .refused(503, "backend_unavailable")
        .await;
    expect_retryable(&refusal);
    assert_eq!(refusal["operation"], "complete_activity_task");
    assert_eq!(refusal["outcome"], "unknown");
    assert_eq!(refusal["worker_id"], "w");
    assert_eq!(
        refusal["activity_attempt_id"],
        activity["activity_attempt_id"]
    );
    store.set(WORKS);
    let answer = activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["outcome"], "completed");
}

#[tokio::test]
async fn other_calls_during_an_outage_are_transient_too() {
    let (server, store) = server().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    store.set(FAILS);
    let body = json!({"worker_id": "v", "task_queue": "default", "runtime": "python"});
    let failure = json!({"failure": {"message": "no"}});
    let token = json!({"next_history_page_token": "MA=="});
    for (call, operation) in [
        (server.worker_post("/register", &body), None),
        (
            report(&server, &task, "heartbeat", json!({})),
            Some("heartbeat_workflow_task"),
        ),
        (
            report(&server, &task, "fail", failure),
            Some("fail_workflow_task"),
        ),
        (
            report(&server, &task, "history", token),
            Some("read_workflow_task_history"),
        ),
    ] {
        let refusal = call.refused(503, "backend_unavailable").await;
        expect_retryable(&refusal);
        assert_eq!(refusal["operation"].as_str(), operation);
    }
}

#[tokio::test]
async fn a_bug_is_an_internal_error_in_the_workers_envelope() {
    let (server, store) = server().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    // A poll that finds nothing does not use the store.
    server.start("another").await;
    store.set(PANICS);
    for call in [
        report(&server, &task, "heartbeat", json!({})),
        report(
            &server,
            &task,
            "history",
            json!({"next_history_page_token": "MA=="}),
        ),
        complete(&server, &task, json!([{"type": "complete_workflow"}])),
        server.worker("w").poll("workflow", json!({})),
    ] {
        let body = call.refused(500, "internal_error").await;
        assert!(body["error_id"].is_string(), "the id is in the log too");
    }
    store.set(WORKS);
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}
