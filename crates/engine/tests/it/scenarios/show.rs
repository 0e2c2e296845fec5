//! Renders the changes of a step for stories.

use std::fmt::Write;

use longhaul_engine::change::TaskOutcome;
use serde_json::Value;

pub(super) fn show_outcome(outcome: &TaskOutcome) -> String {
    match outcome {
        TaskOutcome::WorkflowTaskCompleted(completed) => {
            let mut text = format!("completed run_status={}", completed.run_status.as_str());
            if let Some(limit) = &completed.limit {
                let _ = write!(
                    text,
                    " reason=structural_limit_exceeded limit_kind={}",
                    limit.kind
                );
            }
            text
        }
        TaskOutcome::WorkflowTaskFailed(failed) => format!(
            "{} run_status={}",
            failed.outcome.as_str(),
            failed.run_status.as_str()
        ),
        TaskOutcome::ActivityReported(reported) => {
            let mut text = reported.outcome.as_str().to_owned();
            if reported.limit.is_some() {
                text.push_str(" reason=structural_limit_exceeded");
            }
            if let Some(retry_scheduled) = reported.retry_scheduled {
                let _ = write!(text, " retry_scheduled={retry_scheduled}");
            }
            text
        }
    }
}

/// Returns the keys of a payload that matter to a reader of stories; ids would only distract.
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
