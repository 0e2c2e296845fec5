//! The reply to a complete or fail as workers read it.

use longhaul_host::api::{LimitReason, TaskOutcome};
use longhaul_protocol::Reason;
use serde_json::{Value, json};

/// Returns the body of the reply.
pub(super) fn render(outcome: &TaskOutcome) -> Value {
    match outcome {
        TaskOutcome::WorkflowTaskCompleted(completed) => {
            let mut body = json!({
                "task_id": completed.task_id,
                "workflow_task_attempt": completed.attempt,
                "outcome": "completed",
                "recorded": true,
                "run_id": completed.run_id,
                "run_status": completed.run_status.as_str(),
                "created_task_ids": completed.created_task_ids,
                "reason": null,
            });
            if let Some(limit) = &completed.limit {
                body["reason"] = json!(Reason::StructuralLimitExceeded.as_str());
                body["limit_kind"] = json!(limit.kind);
                body["current_value"] = json!(limit.value);
                body["configured_limit"] = json!(limit.configured);
            }
            body
        }
        TaskOutcome::WorkflowTaskFailed(failed) => json!({
            "task_id": failed.task_id,
            "workflow_task_attempt": failed.attempt,
            "outcome": failed.outcome.as_str(),
            "recorded": true,
            "run_status": failed.run_status.as_str(),
            "reason": null,
            "next_task_id": failed.next_task_id,
        }),
        TaskOutcome::ActivityReported(reported) => {
            let reason = reported.limit.map(|LimitReason::StructuralLimitExceeded| {
                Reason::StructuralLimitExceeded.as_str()
            });
            let mut body = json!({
                "task_id": reported.task_id,
                "activity_attempt_id": reported.activity_attempt_id,
                "outcome": reported.outcome.as_str(),
                "recorded": true,
                "reason": reason,
                "next_task_id": reported.next_task_id,
            });
            if let Some(retry_scheduled) = reported.retry_scheduled {
                body["retry_scheduled"] = json!(retry_scheduled);
            }
            body
        }
    }
}
