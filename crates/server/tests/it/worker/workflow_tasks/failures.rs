//! A worker reports that it could not do a workflow task.

use serde_json::{Value, json};

use crate::support::{
    activity_report, complete, decided, expect_no_task, fail, history, signal, staffed, types,
};

#[tokio::test]
async fn a_failed_task_comes_back_and_the_run_stays_open() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let failure = json!({"message": "it broke", "type": "ValueError", "stack_trace": "line 1", "sequence": 3, "reason": "odd"});
    let answer = fail(&server, &task, failure).send().await;
    assert_eq!(answer.status, 200);
    let mut bare = answer.bare();
    // Published examples show the run's status beside what the protocol lists.
    bare.as_object_mut().expect("a body").remove("run_status");
    assert_eq!(
        bare,
        json!({
            "task_id": task["task_id"],
            "workflow_task_attempt": 1,
            "outcome": "failed",
            "recorded": true,
            "reason": null,
            "next_task_id": task["task_id"],
        })
    );
    assert_eq!(
        history(&server, &task).await.len(),
        2,
        "a task's failure is not history"
    );
    assert_eq!(
        server.get("/workflows/wf").accepted(200).await["status_bucket"],
        "running"
    );
    expect_no_task(&server, "workflow").await;
    server.advance(1).await;
    let again = server.worker("w").workflow_task().await;
    assert_eq!(
        (&again["task_id"], &again["workflow_task_attempt"]),
        (&task["task_id"], &json!(2))
    );
    assert_eq!(again["history_events"], task["history_events"]);
}

#[tokio::test]
async fn a_failure_needs_a_message() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    for (failure, field) in [
        (json!(null), "failure"),
        (json!("text"), "failure"),
        (json!([]), "failure"),
        (json!({}), "failure.message"),
        (json!({"message": 7}), "failure.message"),
        (json!({"message": null}), "failure.message"),
        (json!({"message": "no", "type": 7}), "failure.type"),
        (
            json!({"message": "no", "type": "x".repeat(256)}),
            "failure.type",
        ),
    ] {
        assert_eq!(
            fail(&server, &task, failure.clone()).invalid().await,
            [field],
            "{failure}"
        );
    }
    fail(
        &server,
        &task,
        json!({"message": "no", "type": "x".repeat(255)}),
    )
    .accepted(200)
    .await;
}

/// Fails the ready task and checks that it is ready again after exactly this many seconds.
async fn comes_back_after(server: &crate::support::Server, failure: &Value, seconds: u64) {
    let task = server.worker("w").workflow_task().await;
    fail(server, &task, failure.clone()).accepted(200).await;
    server.advance(seconds - 1).await;
    expect_no_task(server, "workflow").await;
    server.advance(1).await;
}

#[tokio::test]
async fn the_back_off_doubles_up_to_a_minute_and_starts_again_after_a_success() {
    let server = staffed().await;
    server.start("wf").await;
    let failure = json!({"message": "no"});
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        comes_back_after(&server, &failure, seconds).await;
    }
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["workflow_task_attempt"], 9);
    complete(&server, &task, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    signal(&server, "go", json!([])).await;
    comes_back_after(&server, &failure, 1).await;
}

#[tokio::test]
async fn a_replay_failure_waits_a_minute_at_once() {
    for failure in [
        json!({"message": "no", "type": "NonDeterministicReplayError"}),
        json!({"message": "no", "type": "NonDeterministicReplay"}),
        json!({"message": "no", "type": "DeterminismFailed"}),
        json!({"message": "no", "type": "WorkflowEntryArgumentsMismatch"}),
        json!({"message": "no", "type": "WorkflowEntryArgumentsMismatchError"}),
        json!({"message": "no", "type": "Other", "reason": "workflow_entry_arguments_mismatch"}),
    ] {
        let server = staffed().await;
        server.start("wf").await;
        comes_back_after(&server, &failure, 60).await;
        let task = server.worker("w").workflow_task().await;
        complete(&server, &task, json!([{"type": "complete_workflow"}]))
            .accepted(200)
            .await;
    }
}

#[tokio::test]
async fn a_signal_does_not_shorten_the_back_off_but_is_seen_after_it() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    signal(&server, "early", json!([])).await;
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    assert_eq!(
        types(&history(&server, &task).await)[2..],
        ["SignalReceived"],
        "what was held back is released"
    );
    signal(&server, "late", json!([])).await;
    expect_no_task(&server, "workflow").await;
    server.advance(1).await;
    assert_eq!(
        server.worker("w").workflow_task().await["total_history_events"],
        4
    );
}

const WAITING: &str = "WorkflowTaskWaitingForHistory";

#[tokio::test]
async fn waiting_for_history_is_an_empty_decision() {
    let server = staffed().await;
    decided(
        &server,
        json!([
            {"type": "schedule_activity", "activity_type": "say"},
            {"type": "schedule_activity", "activity_type": "say"},
        ]),
    )
    .await;
    let first = server.worker("w").activity_task().await;
    activity_report(&server, &first, "complete", json!({}))
        .accepted(200)
        .await;
    let task = server.worker("w").workflow_task().await;
    let before = history(&server, &task).await.len();
    let waiting =
        json!({"type": WAITING, "message": "Workflow task waiting for scheduled history."});
    let answer = fail(&server, &task, waiting.clone()).send().await;
    assert_eq!(answer.status, 200);
    let mut bare = answer.bare();
    bare.as_object_mut().expect("a body").remove("run_status");
    assert_eq!(
        bare,
        json!({
            "task_id": task["task_id"],
            "workflow_task_attempt": 1,
            "outcome": "waiting_for_history",
            "recorded": true,
            "reason": null,
            "next_task_id": null,
        })
    );
    assert_eq!(history(&server, &task).await.len(), before);
    // No loop: nothing until a real event arrives.
    server.advance(3600).await;
    expect_no_task(&server, "workflow").await;
    let again = fail(&server, &task, waiting).accepted(200).await;
    assert_eq!(
        (&again["outcome"], &again["duplicate"]),
        (&json!("waiting_for_history"), &json!(true))
    );
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .refused(409, "task_not_leased")
        .await;
    let second = server.worker("w").activity_task().await;
    activity_report(&server, &second, "complete", json!({}))
        .accepted(200)
        .await;
    let woken = server.worker("w").workflow_task().await;
    assert_ne!(woken["task_id"], task["task_id"]);
    assert_eq!(woken["workflow_wait_kind"], "activity");
}

#[tokio::test]
async fn what_arrived_during_the_task_wakes_the_run_again_after_waiting() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    signal(&server, "one", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    signal(&server, "two", json!([])).await;
    let answer = fail(
        &server,
        &task,
        json!({"type": WAITING, "message": "waiting"}),
    )
    .accepted(200)
    .await;
    assert_eq!(answer["outcome"], "waiting_for_history");
    let next = server.worker("w").workflow_task().await;
    assert_eq!(next["task_id"], answer["next_task_id"]);
    assert_eq!(next["workflow_wait_kind"], "signal");
}
