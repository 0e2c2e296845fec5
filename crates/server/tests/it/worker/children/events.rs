//! Child workflows as workers see them: every key in the parent's history, why the parent wakes, close policies, retries and
//! time limits.

use serde_json::{Value, json};

use crate::support::{
    BEGIN, Server, complete, decided, envelope, expect_no_task, merge, payload_of, staffed, types,
};
use crate::worker::workflow_tasks::events::{checked_events, take_id};
use crate::worker::workflow_tasks::resume_context::expect_context_also_after_redelivery;

const FAIL: &str = r#"[{"type": "fail_workflow", "message": "no stock", "exception_type": "NoStock", "exception_class": "shop.NoStock"}]"#;

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Returns the first task of `wf`, which starts a child, and the child's first task.
async fn family(server: &Server, fields: Value) -> (Value, Value) {
    let mut command = json!({"type": "start_child_workflow", "workflow_type": "ship", "arguments": envelope("[7]")});
    merge(&mut command, fields);
    let parent = decided(server, json!([command])).await;
    let child = server.worker("w").workflow_task().await;
    assert_eq!(child["workflow_type"], "ship");
    (parent, child)
}

/// Completes a task and waits until its messages to other runs are delivered.
async fn settle(server: &Server, task: &Value, commands: Value) {
    complete(server, task, commands).accepted(200).await;
    server.advance(0).await;
}

async fn run_of(server: &Server, task: &Value) -> Value {
    let (workflow, run) = (
        task["workflow_id"].as_str().expect("an id"),
        task["run_id"].as_str().expect("an id"),
    );
    server
        .get(&format!("/workflows/{workflow}/runs/{run}"))
        .accepted(200)
        .await
}

/// Returns the keys that every event of the call repeats.
fn call_keys(child: &Value, call_id: &str, policy: &str) -> Value {
    json!({
        "sequence": 1, "child_call_id": call_id, "workflow_link_id": call_id,
        "child_workflow_instance_id": child["workflow_id"], "child_workflow_run_id": child["run_id"],
        "child_workflow_type": "ship", "parent_close_policy": policy,
    })
}

fn with(mut payload: Value, fields: Value) -> Value {
    merge(&mut payload, fields);
    payload
}

fn call_id(events: &[Value]) -> String {
    let id = &payload_of(events, "ChildWorkflowScheduled")["child_call_id"];
    id.as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn the_event_of_a_child_has_the_options_of_its_call() {
    let server = staffed().await;
    let (parent, child) = family(
        &server,
        json!({
            "parent_close_policy": "terminate", "execution_timeout_seconds": 3600, "run_timeout_seconds": 600,
            "retry_policy": {"max_attempts": 3, "backoff_seconds": [1, 5], "non_retryable_error_types": ["Fatal"]},
        }),
    )
    .await;
    let events = checked_events(&server, &parent).await;
    assert_eq!(
        types(&events)[2..],
        ["ChildWorkflowScheduled", "ChildRunStarted"]
    );
    let call = call_id(&events);
    assert_eq!(call.len(), 26);
    let policies = json!({
        "retry_policy": {"snapshot_version": 1, "max_attempts": 3, "backoff_seconds": [1, 5], "non_retryable_error_types": ["Fatal"]},
        "timeout_policy": {"snapshot_version": 1, "execution_timeout_seconds": 3600, "run_timeout_seconds": 600},
    });
    let scheduled = with(call_keys(&child, &call, "terminate"), policies.clone());
    assert_eq!(events[2]["payload"], scheduled);
    let timing = json!({
        "execution_timeout_seconds": 3600, "run_timeout_seconds": 600,
        "execution_deadline_at": "2026-01-01T01:00:00.000000Z", "run_deadline_at": "2026-01-01T00:10:00.000000Z",
    });
    let started = with(
        with(scheduled, timing.clone()),
        json!({"child_run_number": 1}),
    );
    assert_eq!(events[3]["payload"], started);
    // The child knows its call, and gets its arguments in the codec of every run.
    let started = &checked_events(&server, &child).await[0];
    assert_eq!(started["event_type"], "WorkflowStarted");
    let expected = with(
        with(policies, timing),
        json!({
            "parent_workflow_instance_id": "wf", "parent_workflow_run_id": parent["run_id"], "parent_sequence": 1,
            "workflow_link_id": call, "child_call_id": call, "workflow_type": "ship",
        }),
    );
    for (key, value) in expected.as_object().expect("keys") {
        assert_eq!(&started["payload"][key], value, "{key}");
    }
    assert_eq!(
        (&child["payload_codec"], &child["arguments"]),
        (&json!("avro"), &envelope("[7]"))
    );
    assert_eq!(run_of(&server, &child).await["payload_codec"], "avro");
}

#[tokio::test]
async fn the_end_of_a_child_wakes_its_parent() {
    let message = |child: &Value, how: &str| {
        let id = child["workflow_id"].as_str().expect("an id");
        format!("Child workflow {id} closed as {how}: enough")
    };
    for (how, event_type) in [
        ("completed", "ChildRunCompleted"),
        ("failed", "ChildRunFailed"),
        ("cancelled", "ChildRunCancelled"),
        ("terminated", "ChildRunTerminated"),
    ] {
        let server = staffed().await;
        let (parent, child) = family(&server, json!({})).await;
        let workflow = child["workflow_id"].as_str().expect("an id");
        match how {
            "completed" => {
                let done = json!([{"type": "complete_workflow", "result": envelope("5")}]);
                settle(&server, &child, done).await;
            }
            "failed" => settle(&server, &child, json_of(FAIL)).await,
            stopped => {
                let verb = if stopped == "cancelled" {
                    "cancel"
                } else {
                    "terminate"
                };
                server
                    .post(
                        &format!("/workflows/{workflow}/{verb}"),
                        &json!({"reason": "enough"}),
                    )
                    .accepted(200)
                    .await;
                server.advance(0).await;
            }
        }
        let events = checked_events(&server, &parent).await;
        let call = call_id(&events);
        let mut closed = payload_of(&events, event_type).clone();
        let mut expected = with(
            call_keys(&child, &call, "abandon"),
            json!({"child_run_number": 1, "child_status": how, "closed_reason": how, "closed_at": "2026-01-01T00:00:00.000000Z"}),
        );
        if how == "completed" {
            let result =
                json!({"result": envelope("5"), "output": envelope("5"), "payload_codec": "avro"});
            merge(&mut expected, result);
        } else {
            take_id(&mut closed, "failure_id");
            let failure = if how == "failed" {
                json!({
                    "failure_category": "application", "non_retryable": false, "exception_type": "NoStock",
                    "exception_class": "shop.NoStock", "message": "no stock",
                    "exception": {"type": "NoStock", "class": "shop.NoStock", "message": "no stock"},
                })
            } else {
                // What the stop itself recorded is passed on; the message names the child.
                json!({
                    "failure_category": how, "message": message(&child, how),
                    "non_retryable": closed["non_retryable"], "exception_type": closed["exception_type"],
                    "exception_class": closed["exception_class"], "exception": closed["exception"],
                })
            };
            merge(&mut expected, failure);
            let null = |value: &Value| value.is_null();
            expected
                .as_object_mut()
                .expect("keys")
                .retain(|_, value| !null(value));
        }
        assert_eq!(closed, expected, "{how}");
        let context = json!({
            "workflow_wait_kind": "child",
            "open_wait_id": format!("child:{call}"),
            "resume_source_kind": "child_workflow_run",
            "resume_source_id": child["run_id"],
            "child_call_id": call,
            "child_workflow_run_id": child["run_id"],
            "workflow_sequence": 1,
            "workflow_event_type": event_type,
        });
        expect_context_also_after_redelivery(&server, &context).await;
    }
}

#[tokio::test]
async fn a_closing_parent_applies_its_close_policy() {
    for (policy, status) in [
        (None, "running"),
        (Some("abandon"), "running"),
        (Some("request_cancel"), "cancelled"),
        (Some("terminate"), "terminated"),
    ] {
        let server = staffed().await;
        let fields = policy.map_or_else(
            || json!({}),
            |policy| json!({"parent_close_policy": policy}),
        );
        let (parent, child) = family(&server, fields).await;
        let fail = server.post("/workflows/wf/signal/go", &json!({}));
        fail.accepted(202).await;
        let woken = server.worker("w").workflow_task().await;
        assert_eq!(woken["run_id"], parent["run_id"]);
        settle(&server, &woken, json!([{"type": "complete_workflow"}])).await;
        let shown = run_of(&server, &child).await;
        let found = if status == "running" {
            &shown["status_bucket"]
        } else {
            &shown["status"]
        };
        assert_eq!(found, status, "{policy:?}: {shown}");
        let events = checked_events(&server, &parent).await;
        if status == "running" {
            assert_eq!(types(&events).last(), Some(&"WorkflowCompleted"));
            // It goes on, and no other run is notified of its end.
            settle(&server, &child, json!([{"type": "complete_workflow"}])).await;
            assert_eq!(checked_events(&server, &parent).await, events);
            continue;
        }
        let policy = policy.expect("a policy");
        let reason = format!("Parent workflow closed (completed); parent-close policy: {policy}.");
        assert_eq!(types(&events).last(), Some(&"ParentClosePolicyApplied"));
        assert_eq!(
            payload_of(&events, "ParentClosePolicyApplied"),
            &json!({
                "child_instance_id": child["workflow_id"], "child_run_id": child["run_id"], "policy": policy, "reason": reason,
            })
        );
        assert_eq!(shown["closed_reason"], status);
    }
}

#[tokio::test]
async fn an_invalid_child_is_refused_and_none_begins() {
    for (fields, field) in [
        (json!({"workflow_type": ""}), "workflow_type"),
        (json!({"workflow_type": null}), "workflow_type"),
        (
            json!({"parent_close_policy": "forget"}),
            "parent_close_policy",
        ),
        (json!({"parent_close_policy": 1}), "parent_close_policy"),
        (json!({"retry_policy": {"max_attempts": 0}}), "retry_policy"),
        (json!({"run_timeout_seconds": 0}), "run_timeout_seconds"),
        (
            json!({"run_timeout_seconds": 20, "execution_timeout_seconds": 10}),
            "run_timeout_seconds",
        ),
    ] {
        let server = staffed().await;
        server.start("wf").await;
        let task = server.worker("w").workflow_task().await;
        let command = with(
            json!({"type": "start_child_workflow", "workflow_type": "ship"}),
            fields.clone(),
        );
        let answer = complete(&server, &task, json!([command])).send().await;
        assert_eq!(answer.status, 422, "{fields}: {}", answer.body);
        assert!(
            answer.body["errors"].to_string().contains(field),
            "{}",
            answer.body
        );
        assert_eq!(types(&checked_events(&server, &task).await).len(), 2);
        let list = server.get("/workflows").accepted(200).await;
        assert_eq!(list["workflows"].as_array().map(Vec::len), Some(1));
        // The lease stays, and the corrected command is the first attempt.
        let command = json!([{"type": "start_child_workflow", "workflow_type": "ship"}]);
        complete(&server, &task, command).accepted(200).await;
        let started = checked_events(&server, &task).await;
        assert_eq!(
            payload_of(&started, "ChildRunStarted")["child_run_number"],
            1
        );
    }
}

#[tokio::test]
async fn a_child_that_fails_twice_and_then_succeeds_is_a_success() {
    let server = staffed().await;
    let policy = json!({"retry_policy": {"max_attempts": 3, "backoff_seconds": [2, 5]}, "execution_timeout_seconds": 600, "run_timeout_seconds": 60});
    let (parent, mut child) = family(&server, policy).await;
    let workflow = child["workflow_id"].clone();
    let mut elapsed = 0;
    for (attempt, backoff) in [(2, 2), (3, 5)] {
        let failed_run = child["run_id"].clone();
        settle(&server, &child, json_of(FAIL)).await;
        expect_no_task(&server, "workflow").await;
        server.advance(backoff - 1).await;
        expect_no_task(&server, "workflow").await;
        server.advance(1).await;
        child = server.worker("w").workflow_task().await;
        assert_eq!(
            (&child["workflow_id"], &child["arguments"]),
            (&workflow, &envelope("[7]"))
        );
        assert_ne!(child["run_id"], failed_run);
        let events = checked_events(&server, &parent).await;
        let started = &events.last().expect("events")["payload"];
        let retry = json!({
            "child_run_number": attempt, "retry_attempt": attempt, "retry_of_child_workflow_run_id": failed_run,
            "retry_backoff_seconds": backoff, "child_call_id": call_id(&events),
            "child_workflow_run_id": child["run_id"],
            // The whole chain shares one moment; each run has its own.
            "execution_deadline_at": "2026-01-01T00:10:00.000000Z",
            "run_deadline_at": BEGIN.plus_seconds(elapsed + backoff + 60),
        });
        for (key, value) in retry.as_object().expect("keys") {
            assert_eq!(&started[key], value, "{key}");
        }
        let own = &checked_events(&server, &child).await[0]["payload"];
        for key in [
            "retry_attempt",
            "retry_of_child_workflow_run_id",
            "retry_backoff_seconds",
            "execution_deadline_at",
        ] {
            assert_eq!(own[key], started[key], "{key}");
        }
        elapsed += backoff;
    }
    settle(
        &server,
        &child,
        json!([{"type": "complete_workflow", "result": envelope("1")}]),
    )
    .await;
    let events = checked_events(&server, &parent).await;
    assert_eq!(
        types(&events)[2..],
        [
            "ChildWorkflowScheduled",
            "ChildRunStarted",
            "ChildRunStarted",
            "ChildRunStarted",
            "ChildRunCompleted"
        ]
    );
    assert_eq!(
        payload_of(&events, "ChildRunCompleted")["child_run_number"],
        3
    );
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_wait_kind"],
        "child"
    );
}

#[tokio::test]
async fn a_child_is_not_retried_if_its_policy_forbids_it() {
    let policy = |fields: Value| with(json!({"max_attempts": 3, "backoff_seconds": [0]}), fields);
    for (policy, failure) in [
        (policy(json!({"max_attempts": 1})), json!({})),
        (policy(json!({})), json!({"non_retryable": true})),
        (
            policy(json!({"non_retryable_error_types": ["NoStock"]})),
            json!({}),
        ),
        (
            policy(json!({"non_retryable_error_types": ["shop.NoStock"]})),
            json!({}),
        ),
    ] {
        let server = staffed().await;
        let (parent, child) = family(&server, json!({"retry_policy": policy})).await;
        let failure = with(json_of(FAIL)[0].clone(), failure);
        settle(&server, &child, json!([failure])).await;
        let events = checked_events(&server, &parent).await;
        assert_eq!(types(&events)[4..], ["ChildRunFailed"], "{policy}");
    }
}

#[tokio::test]
async fn a_child_run_that_lasts_too_long_fails_its_call() {
    let server = staffed().await;
    let (parent, child) = family(&server, json!({"run_timeout_seconds": 30})).await;
    settle(
        &server,
        &child,
        json!([{"type": "start_timer", "delay_seconds": 900}]),
    )
    .await;
    server.advance(30).await;
    let own = checked_events(&server, &child).await;
    assert_eq!(types(&own).last(), Some(&"WorkflowTimedOut"));
    assert_eq!(
        payload_of(&own, "WorkflowTimedOut")["timeout_kind"],
        "run_timeout"
    );
    let events = checked_events(&server, &parent).await;
    let failed = payload_of(&events, "ChildRunFailed");
    assert_eq!(
        (
            &failed["child_status"],
            &failed["closed_reason"],
            &failed["failure_category"]
        ),
        (&json!("failed"), &json!("timed_out"), &json!("timeout"))
    );
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_event_type"],
        "ChildRunFailed"
    );
}

/// Retried runs share the execution timeout: after it no other run begins.
#[tokio::test]
async fn the_execution_time_of_a_child_covers_all_its_runs() {
    let server = staffed().await;
    let fields = json!({"execution_timeout_seconds": 30, "retry_policy": {"max_attempts": 9, "backoff_seconds": [20]}});
    let (parent, child) = family(&server, fields).await;
    settle(&server, &child, json_of(FAIL)).await;
    server.advance(20).await;
    let second = server.worker("w").workflow_task().await;
    server.advance(10).await;
    let own = checked_events(&server, &second).await;
    assert_eq!(
        payload_of(&own, "WorkflowTimedOut")["timeout_kind"],
        "execution_timeout"
    );
    let events = checked_events(&server, &parent).await;
    assert_eq!(types(&events)[4..], ["ChildRunStarted", "ChildRunFailed"]);
    let answer = server
        .worker("w")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["task"]["run_id"], parent["run_id"]);
}
