//! Reports on tasks of closed runs.

use serde_json::{Value, json};

use crate::support::{
    Server, activity_report, complete, decided, expect_no_task, fail, history, report,
    running_activity, signal, staffed, stop, types,
};

const WORKFLOW_CALLS: [&str; 4] = ["history", "heartbeat", "complete", "fail"];

fn fields(verb: &str) -> Value {
    match verb {
        "history" => json!({"next_history_page_token": "MA=="}),
        "complete" => json!({"commands": [{"type": "complete_workflow"}]}),
        "fail" => json!({"failure": {"message": "no"}}),
        _ => json!({}),
    }
}

#[tokio::test]
async fn every_call_on_a_task_of_a_stopped_run_is_refused() {
    for (verb, status) in [("cancel", "cancelled"), ("terminate", "terminated")] {
        let server = staffed().await;
        server.start("wf").await;
        let task = server.worker("w").workflow_task().await;
        server.advance(7).await;
        stop(&server, verb).await;
        let described = server.get("/workflows/wf").accepted(200).await;
        let before = history(&server, &task).await;
        for call in WORKFLOW_CALLS {
            let answer = report(&server, &task, call, fields(call)).send().await;
            assert_eq!(answer.status, 409, "{call}");
            let mut bare = answer.bare();
            let body = bare.as_object_mut().expect("a body");
            assert!(body.remove("message").is_some() && body.remove("error").is_some());
            // The lease is cancelled with the task: whether its owner is still named does not matter here.
            for lease in ["lease_owner", "lease_expires_at"] {
                assert!(body.remove(lease).is_some(), "{call} has no {lease}");
            }
            assert_eq!(
                bare,
                json!({
                    "reason": "run_closed",
                    "task_id": task["task_id"],
                    "workflow_task_attempt": 1,
                    "outcome": "rejected",
                    "recorded": false,
                    "can_continue": false,
                    "cancel_requested": true,
                    "stop_reason": format!("run_{status}"),
                    "run_status": status,
                    "run_closed_reason": described["closed_reason"],
                    "run_closed_at": described["closed_at"],
                    "task_status": "cancelled",
                }),
                "{call}"
            );
        }
        assert_eq!(described["closed_reason"], status);
        assert_eq!(described["closed_at"], "2026-01-01T00:00:07.000000Z");
        assert_eq!(history(&server, &task).await, before);
        expect_no_task(&server, "workflow").await;
    }
}

#[tokio::test]
async fn a_run_that_ended_by_itself_is_closed_without_a_request_to_stop() {
    for (command, status, closed_reason) in [
        (
            json!({"type": "complete_workflow"}),
            "completed",
            "completed",
        ),
        (
            json!({"type": "fail_workflow", "message": "no"}),
            "failed",
            "failed",
        ),
        (json!({"type": "continue_as_new"}), "completed", "continued"),
    ] {
        let server = staffed().await;
        server.start("wf").await;
        let task = server.worker("w").workflow_task().await;
        complete(&server, &task, json!([command]))
            .accepted(200)
            .await;
        for call in ["history", "heartbeat", "fail"] {
            let refusal = report(&server, &task, call, fields(call))
                .refused(409, "run_closed")
                .await;
            assert_eq!(refusal["can_continue"], false);
            assert_eq!(refusal["cancel_requested"], false, "{closed_reason}");
            assert_eq!(refusal["stop_reason"], format!("run_{closed_reason}"));
            assert_eq!(refusal["run_status"], status);
            assert_eq!(refusal["run_closed_reason"], closed_reason);
            assert_eq!(refusal["run_closed_at"], "2026-01-01T00:00:00.000000Z");
            assert_eq!(refusal["task_status"], "completed");
        }
        // Another owner is no repeat of the accepted call.
        let mut other = task.clone();
        other["lease_owner"] = json!("v");
        complete(&server, &other, json!([{"type": "complete_workflow"}]))
            .refused(409, "run_closed")
            .await;
    }
}

async fn with_run_timeout(seconds: u64) -> Server {
    let server = staffed().await;
    server
        .start_with(
            json!({"workflow_id": "wf", "workflow_type": "greet", "run_timeout_seconds": seconds}),
        )
        .await;
    server
}

fn expect_timed_out(refusal: &Value, task: &Value) {
    assert_eq!(refusal["recorded"], false);
    assert_eq!(refusal["run_status"], "failed");
    for field in ["run_id", "task_id", "workflow_task_attempt"] {
        assert_eq!(refusal[field], task[field], "{field}");
    }
}

#[tokio::test]
async fn a_report_after_the_runs_deadline_is_refused_with_the_callers_ids() {
    let server = with_run_timeout(10).await;
    let task = server.worker("w").workflow_task().await;
    server.advance(10).await;
    assert_eq!(
        types(&history(&server, &task).await)[2..],
        ["WorkflowTimedOut"]
    );
    for call in ["complete", "fail"] {
        let refusal = report(&server, &task, call, fields(call))
            .refused(409, "run_timed_out")
            .await;
        expect_timed_out(&refusal, &task);
    }
    for call in ["history", "heartbeat"] {
        let refusal = report(&server, &task, call, fields(call))
            .refused(409, "run_closed")
            .await;
        assert_eq!(refusal["stop_reason"], "run_timed_out");
        assert_eq!(refusal["cancel_requested"], false);
        assert_eq!(refusal["run_closed_reason"], "timed_out");
    }
}

#[tokio::test]
async fn a_report_that_finds_the_deadline_passed_closes_the_run_itself() {
    for call in WORKFLOW_CALLS {
        let server = with_run_timeout(10).await;
        let task = server.worker("w").workflow_task().await;
        // Before the sweep has seen it.
        server.clock.advance_seconds(10);
        let reason = if ["complete", "fail"].contains(&call) {
            "run_timed_out"
        } else {
            "run_closed"
        };
        let refusal = report(&server, &task, call, fields(call))
            .refused(409, reason)
            .await;
        assert_eq!(refusal["run_status"], "failed");
        assert_eq!(
            types(&history(&server, &task).await)[2..],
            ["WorkflowTimedOut"],
            "{call}"
        );
    }
}

#[tokio::test]
async fn signals_held_back_are_in_history_before_the_run_stops() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    signal(&server, "go", json!([])).await;
    stop(&server, "cancel").await;
    assert_eq!(
        types(&history(&server, &task).await)[2..],
        ["SignalReceived", "CancelRequested", "WorkflowCancelled"]
    );
}

#[tokio::test]
async fn every_call_on_an_activity_of_a_stopped_run_is_refused() {
    for (verb, status) in [("cancel", "cancelled"), ("terminate", "terminated")] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        server.advance(3).await;
        stop(&server, verb).await;
        let described = server.get("/workflows/wf").accepted(200).await;
        let before = history(&server, &task).await;
        let reason = format!("run_{status}");
        for (call, fields) in [
            ("complete", json!({"result": 1})),
            (
                "fail",
                json!({"failure": {"message": "activity cancelled", "type": "ActivityCancelled"}}),
            ),
        ] {
            let answer = activity_report(&server, &task, call, fields).send().await;
            assert_eq!(answer.status, 409, "{call}: {}", answer.body);
            let mut bare = answer.bare();
            let body = bare.as_object_mut().expect("a body");
            for text in ["message", "error", "lease_owner", "lease_expires_at"] {
                assert!(body.remove(text).is_some(), "{call} has no {text}");
            }
            body.remove("stop_reason");
            assert_eq!(
                bare,
                json!({
                    "reason": reason,
                    "task_id": task["task_id"],
                    "activity_attempt_id": task["activity_attempt_id"],
                    "outcome": "ignored",
                    "recorded": false,
                    "can_continue": false,
                    "cancel_requested": true,
                    "run_status": status,
                    "run_closed_reason": described["closed_reason"],
                    "run_closed_at": described["closed_at"],
                    "activity_status": "cancelled",
                    "attempt_status": "cancelled",
                    "task_status": "cancelled",
                }),
                "{call}"
            );
        }
        for call in ["heartbeat", "status"] {
            let answer = activity_report(&server, &task, call, json!({}))
                .accepted(200)
                .await;
            assert_eq!(answer["reason"], reason, "{call}");
            assert_eq!(
                (&answer["can_continue"], &answer["cancel_requested"]),
                (&json!(false), &json!(true))
            );
            assert_eq!(answer["heartbeat_recorded"], false);
            assert_eq!(answer["run_closed_reason"], described["closed_reason"]);
            assert_eq!(answer["run_closed_at"], described["closed_at"]);
            assert_eq!(answer["run_status"], status);
            assert_eq!(answer["activity_status"], "cancelled");
            assert_eq!(answer["attempt_status"], "cancelled");
            assert_eq!(answer["task_status"], "cancelled");
        }
        assert_eq!(history(&server, &task).await, before);
        expect_no_task(&server, "activity").await;
    }
}

#[tokio::test]
async fn an_activity_of_a_run_that_ended_by_itself_is_not_cancelled() {
    let server = staffed().await;
    let task = {
        decided(
            &server,
            json!([{"type": "schedule_activity", "activity_type": "say"}]),
        )
        .await;
        signal(&server, "go", json!([])).await;
        let activity = server.worker("w").activity_task().await;
        let task = server.worker("w").workflow_task().await;
        complete(&server, &task, json!([{"type": "complete_workflow"}]))
            .accepted(200)
            .await;
        activity
    };
    let refusal = activity_report(&server, &task, "complete", json!({}))
        .refused(409, "run_closed")
        .await;
    assert_eq!(
        (&refusal["can_continue"], &refusal["cancel_requested"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(refusal["run_closed_reason"], "completed");
    let answer = activity_report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        (&answer["reason"], &answer["cancel_requested"]),
        (&json!("run_closed"), &json!(false))
    );
    assert_eq!(answer["can_continue"], false);
    assert_eq!(answer["run_closed_reason"], "completed");
    let events = history(&server, &task).await;
    assert_eq!(types(&events).last(), Some(&"WorkflowCompleted"));
    assert!(
        !types(&events).contains(&"ActivityCancelled"),
        "an ordinary close writes no cancellations"
    );
}

#[tokio::test]
async fn an_activity_that_outlives_its_runs_deadline_is_ignored() {
    let server = with_run_timeout(10).await;
    let task = server.worker("w").workflow_task().await;
    complete(
        &server,
        &task,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .accepted(200)
    .await;
    let activity = server.worker("w").activity_task().await;
    server.clock.advance_seconds(10);
    let refusal = activity_report(&server, &activity, "complete", json!({}))
        .refused(409, "run_closed")
        .await;
    assert_eq!(
        (&refusal["recorded"], &refusal["cancel_requested"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(refusal["run_closed_reason"], "timed_out");
    let events = history(&server, &task).await;
    assert_eq!(
        types(&events)[4..],
        ["ActivityCancelled", "WorkflowTimedOut"]
    );
}

#[tokio::test]
async fn a_late_failure_of_a_stopped_run_is_no_repeat() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    stop(&server, "terminate").await;
    let again = fail(&server, &task, json!({"message": "no"})).send().await;
    // Either the stored outcome or the closed run, never a new failure.
    assert!(
        again.body["duplicate"] == true || again.body["reason"] == "run_closed",
        "{}",
        again.body
    );
}
