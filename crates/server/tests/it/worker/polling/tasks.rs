//! Every field of a leased task.

use serde_json::{Value, json};

use crate::support::{
    RESUME_FIELDS, Server, complete, decided, envelope, running_activity, staffed,
};

#[tokio::test]
async fn a_workflow_task_has_every_field() {
    let server = staffed().await;
    let run_id = server
        .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "input": ["hello", 42], "priority": 3, "fairness_key": "tenant"}))
        .await;
    let mut task = server.worker("w").workflow_task().await;
    let task_fields = task.as_object_mut().expect("a task");
    for field in RESUME_FIELDS {
        assert_eq!(task_fields.remove(field), Some(Value::Null), "{field}");
    }
    let events = task_fields.remove("history_events").expect("events");
    assert_eq!(events.as_array().map(Vec::len), Some(2));
    let size = task_fields
        .remove("history_size_bytes")
        .and_then(|size| size.as_u64());
    assert!(size.is_some_and(|size| size > 100), "{size:?}");
    let task_id = task_fields.remove("task_id").expect("an id");
    assert_eq!(task_id.as_str().map(str::len), Some(26));
    assert_eq!(
        task,
        json!({
            "task_kind": "workflow",
            "task_type": "workflow",
            "workflow_id": "wf",
            "run_id": run_id,
            "namespace": "default",
            "workflow_type": "greet",
            "workflow_task_attempt": 1,
            "lease_owner": "w",
            "lease_expires_at": "2026-01-01T00:05:00.000000Z",
            "task_queue": "default",
            "connection": null,
            "compatibility": null,
            "priority": 3,
            "fairness_key": "tenant",
            "payload_codec": "avro",
            "arguments": envelope(r#"["hello",42]"#),
            "run_status": "running",
        "sticky_replay_mode": "cold_replay",
            "cancel_requested": false,
            "cancellation_request": null,
            "next_history_page_token": null,
            "total_history_events": 2,
            "last_history_sequence": 2,
            "has_more": false,
            "next_after_sequence": null,
            "history_fan_out": 0,
            "execution_mode": null,
            "continue_as_new_recommended": false,
            "history_budget_pressure": "ok",
            "history_budget_pressure_dimensions": [],
        })
    );
}

#[tokio::test]
async fn a_task_kind_is_there_when_kinds_are_asked_for() {
    let server = staffed().await;
    server.start("wf").await;
    let kinds = json!({"task_kinds": ["workflow", "update_validation"]});
    let answer = server
        .worker("w")
        .poll("workflow", kinds)
        .accepted(200)
        .await;
    assert_eq!(answer["task"]["task_kind"], "workflow");
}

#[tokio::test]
async fn a_workflow_without_input_has_an_empty_list() {
    let server = staffed().await;
    server.start("wf").await;
    assert_eq!(
        server.worker("w").workflow_task().await["arguments"],
        envelope("[]")
    );
}

#[tokio::test]
async fn events_are_shown_to_workers_with_one_name_and_no_principal() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "record_side_effect", "result": envelope("1")}]),
    )
    .await;
    let task = server.worker("w").workflow_task().await;
    let events = task["history_events"].as_array().expect("events");
    assert_eq!(events.len(), 3);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence"], index + 1);
        assert_eq!(event["recorded_at"], "2026-01-01T00:00:00.000000Z");
        assert_eq!(event["id"].as_str().map(str::len), Some(26));
        assert!(event["payload"].is_object());
        let fields = event.as_object().expect("an event");
        assert!(
            !fields.contains_key("type") && !fields.contains_key("principal"),
            "{event}"
        );
    }
    assert_eq!(events[0]["event_type"], "StartAccepted");
    assert_eq!(events[1]["event_type"], "WorkflowStarted");
}

#[tokio::test]
async fn a_fan_out_and_a_long_history_advise_to_continue() {
    let server = staffed().await;
    let size = 160;
    let commands: Vec<Value> = (0..size)
        .map(|index| crate::worker::workflow_tasks::commands::grouped_timer(1, size, index))
        .collect();
    decided(&server, json!(commands)).await;
    crate::support::signal(&server, "go", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["history_fan_out"], 160);
    assert_eq!(task["history_budget_pressure"], "approaching");
    assert_eq!(
        task["history_budget_pressure_dimensions"],
        json!(["fan_out"])
    );
    assert_eq!(task["continue_as_new_recommended"], false);
}

#[tokio::test]
async fn an_activity_task_has_every_field() {
    let server = staffed().await;
    let mut task = running_activity(
        &server,
        json!({
            "arguments": envelope(r#"["hi"]"#),
            "retry_policy": {"max_attempts": 3, "backoff_seconds": [1, 5], "non_retryable_error_types": ["Bad"]},
            "start_to_close_timeout": 60,
            "schedule_to_start_timeout": 70,
            "schedule_to_close_timeout": 200,
            "heartbeat_timeout": 10,
        }),
    )
    .await;
    let fields = task.as_object_mut().expect("a task");
    let execution = fields.remove("activity_execution_id").expect("an id");
    assert_eq!(execution.as_str().map(str::len), Some(26));
    assert_eq!(fields.remove("idempotency_key"), Some(execution));
    let attempt = fields.remove("activity_attempt_id").expect("an id");
    assert_eq!(attempt.as_str().map(str::len), Some(26));
    assert_eq!(fields.remove("attempt_id"), Some(attempt));
    assert!(fields.remove("task_id").is_some_and(|id| id.is_string()));
    assert!(fields.remove("run_id").is_some_and(|id| id.is_string()));
    assert_eq!(
        task,
        json!({
            "task_type": "activity",
            "workflow_id": "wf",
            "namespace": "default",
            "attempt_number": 1,
            "activity_type": "say",
            "payload_codec": "avro",
            "arguments": envelope(r#"["hi"]"#),
            "retry_policy": {
                "snapshot_version": 1, "max_attempts": 3, "backoff_seconds": [1, 5],
                "start_to_close_timeout": 60, "schedule_to_start_timeout": 70,
                "schedule_to_close_timeout": 200, "heartbeat_timeout": 10,
                "non_retryable_error_types": ["Bad"],
            },
            "task_queue": "default",
            "connection": null,
            "lease_owner": "w",
            "lease_expires_at": "2026-01-01T00:05:00.000000Z",
            "deadlines": {
                "schedule_to_start": null,
                "start_to_close": "2026-01-01T00:01:00.000000Z",
                "schedule_to_close": "2026-01-01T00:03:20.000000Z",
                "heartbeat": "2026-01-01T00:00:10.000000Z",
                "run": null,
                "execution": null,
            },
            "start_to_close_timeout": 60,
            "schedule_to_start_timeout": 70,
            "schedule_to_close_timeout": 200,
            "heartbeat_timeout": 10,
            "cancel_requested": false,
        })
    );
}

#[tokio::test]
async fn a_plain_activity_has_no_policy_and_no_deadline() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    assert_eq!(task["retry_policy"], Value::Null);
    assert_eq!(task["arguments"], envelope("[]"));
    for deadline in [
        "schedule_to_start",
        "start_to_close",
        "schedule_to_close",
        "heartbeat",
        "run",
        "execution",
    ] {
        assert_eq!(
            task["deadlines"].get(deadline),
            Some(&Value::Null),
            "{deadline}"
        );
    }
}

#[tokio::test]
async fn deadlines_of_the_run_are_on_its_activities() {
    let server = staffed().await;
    let start = json!({"workflow_id": "wf", "workflow_type": "greet", "run_timeout_seconds": 600, "execution_timeout_seconds": 3600});
    server.start_with(start).await;
    let task = server.worker("w").workflow_task().await;
    let commands = json!([{"type": "schedule_activity", "activity_type": "say"}]);
    complete(&server, &task, commands).accepted(200).await;
    let deadlines = server.worker("w").activity_task().await["deadlines"].clone();
    assert_eq!(deadlines["run"], "2026-01-01T00:10:00.000000Z");
    assert_eq!(deadlines["execution"], "2026-01-01T01:00:00.000000Z");
}

#[tokio::test]
async fn an_activity_goes_to_the_queue_it_names() {
    let server = Server::open().await;
    server
        .register("w", json!({"supported_activity_types": []}))
        .await;
    server
        .register(
            "elsewhere",
            json!({"task_queue": "other", "supported_activity_types": []}),
        )
        .await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say", "queue": "other"}]),
    )
    .await;
    crate::support::expect_no_task(&server, "activity").await;
    let answer = server
        .worker("elsewhere")
        .poll("activity", json!({"task_queue": "other"}))
        .accepted(200)
        .await;
    assert_eq!(answer["task"]["task_queue"], "other");
}
