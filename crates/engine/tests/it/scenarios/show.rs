//! What a step changed, as stories tell it.

use std::fmt::Write;

use serde_json::Value;

pub(super) fn show_answer(body: &Value) -> String {
    let mut text = body["outcome"].as_str().unwrap_or("?").to_owned();
    for key in ["run_status", "reason", "limit_kind", "retry_scheduled"] {
        if let Some(value) = body.get(key).filter(|value| !value.is_null()) {
            let _ = write!(
                text,
                " {key}={}",
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            );
        }
    }
    text
}

/// The keys of a payload that a reader of stories cares about; ids would only distract.
pub(super) fn show_payload(payload: &str) -> String {
    let body: Value = serde_json::from_str(payload).unwrap();
    let mut text = String::new();
    for key in [
        "sequence",
        "activity_type",
        "attempt_number",
        "retry_after_attempt",
        "retry_backoff_seconds",
        "retry_reason",
        "timeout_kind",
        "delay_seconds",
        "timer_kind",
        "signal_name",
        "workflow_sequence",
        "condition_key",
        "change_id",
        "version",
        "merged",
        "outcome",
        "reason",
        "failure_category",
        "exception_type",
        "message",
        "continued_to_run_number",
        "update_name",
        "terminal_reason",
        "child_workflow_type",
        "child_run_number",
        "parent_close_policy",
        "retry_attempt",
        "policy",
        "error",
        "member_key",
        "operation_kind",
        "resolution_event_type",
        "stream_key",
        "previous_position",
        "new_position",
        "call_kind",
    ] {
        if let Some(value) = body
            .get(key)
            .filter(|value| !value.is_object() || key == "merged" && value.get("codec").is_none())
        {
            let _ = write!(
                text,
                " {key}={}",
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            );
        }
    }
    text
}
