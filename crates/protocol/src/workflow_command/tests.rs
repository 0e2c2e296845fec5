//! Shapes that are taken, and the field each refusal names.

use serde_json::json;

use super::*;

#[track_caller]
fn check(commands: Value, field: &str) {
    let errors = parse_commands(&commands).unwrap_err();
    assert!(
        errors.contains_key(field),
        "expected an error on {field}, got {errors:?}"
    );
}

#[test]
fn takes_what_the_published_workers_send() {
    let commands = json!([
        {"type": "record_side_effect", "result": "wwHioz3/VYAiNwA="},
        {"type": "schedule_activity", "activity_type": "say", "queue": "q",
         "arguments": {"codec": "avro", "blob": "wwHioz3/VYAiNwwCCgp3b3JsZAA="}, "retry_policy": {"max_attempts": null, "backoff_seconds": [1, 2]},
         "start_to_close_timeout": 30, "heartbeat_timeout": null},
        {"type": "start_timer", "delay_seconds": 0},
        {"type": "open_condition_wait", "condition_key": "ready", "timeout_seconds": 0},
        {"type": "open_signal_wait", "signal_name": "go"},
        {"type": "record_version_marker", "change_id": "c", "version": -1, "min_supported": -1, "max_supported": 1},
        {"type": "upsert_search_attributes", "attributes": {"Tier": "gold", "Old": null, "Tags": ["a"]}, "attribute_types": {"Tier": "keyword"}},
        {"type": "complete_workflow", "result": null}
    ]);
    let parsed = parse_commands(&commands).unwrap();
    assert_eq!(parsed.len(), 8);
    let WorkflowCommand::ScheduleActivity(activity) = &parsed[1] else {
        panic!("{:?}", parsed[1])
    };
    assert_eq!(
        activity.retry_policy.as_ref().unwrap().max_attempts,
        Some(None)
    );
    assert_eq!(activity.heartbeat_timeout, None);
}

#[test]
fn names_the_field_that_is_wrong() {
    check(json!({}), "commands");
    check(json!([]), "commands");
    check(json!([7]), "commands.0");
    check(json!([{"type": "fly"}]), "commands.0.type");
    check(
        json!([{"type": "schedule_activity"}]),
        "commands.0.activity_type",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": ""}]),
        "commands.0.activity_type",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "start_to_close_timeout": 0}]),
        "commands.0.start_to_close_timeout",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "start_to_close_timeout": 5, "heartbeat_timeout": 6}]),
        "commands.0.heartbeat_timeout",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "retry_policy": {"max_attempts": 0}}]),
        "commands.0.retry_policy.max_attempts",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "arguments": {"codec": "json", "blob": "x"}}]),
        "commands.0.arguments.codec",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "worker_session": "gpu"}]),
        "commands.0.worker_session",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "worker_session": {"session_id": " "}}]),
        "commands.0.worker_session.session_id",
    );
    check(
        json!([{"type": "schedule_activity", "activity_type": "a", "worker_session": {"session_id": "s", "requirements": ["a", 7]}}]),
        "commands.0.worker_session.requirements.1",
    );
    check(
        json!([{"type": "start_timer", "delay_seconds": 1, "worker_session": {"session_id": "s"}}]),
        "commands.0.worker_session",
    );
    check(json!([{"type": "start_timer"}]), "commands.0.delay_seconds");
    check(
        json!([{"type": "start_timer", "delay_seconds": -1}]),
        "commands.0.delay_seconds",
    );
    check(
        json!([{"type": "start_timer", "delay_seconds": 1.5}]),
        "commands.0.delay_seconds",
    );
    check(
        json!([{"type": "start_timer", "delay_seconds": 1, "retry_policy": {}}]),
        "commands.0.retry_policy",
    );
    check(json!([{"type": "record_side_effect"}]), "commands.0.result");
    check(
        json!([{"type": "record_version_marker", "change_id": "c", "version": 3, "min_supported": 0, "max_supported": 1}]),
        "commands.0.version",
    );
    check(
        json!([{"type": "upsert_search_attributes", "attributes": {}}]),
        "commands.0.attributes",
    );
    check(json!([{"type": "fail_workflow"}]), "commands.0.message");
    check(
        json!([{"type": "complete_workflow"}, {"type": "complete_workflow"}]),
        "commands.0.type",
    );
    check(
        json!([{"type": "complete_workflow"}, {"type": "start_timer", "delay_seconds": 1}]),
        "commands.0.type",
    );
}

#[test]
fn a_null_in_a_foreign_field_is_ignored() {
    assert!(
        parse_commands(&json!([{"type": "start_timer", "delay_seconds": 1, "retry_policy": null}]))
            .is_ok()
    );
}
