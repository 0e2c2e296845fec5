//! Update validation tasks: approve, reject. Workflow polls that ask for them receive them.

use longhaul_host::{LeasedQuestion, QuestionHolder};
use serde_json::json;

use super::query_tasks::{read_failure, read_holder, with_run};
use super::{Call, Reply};
use crate::gate::Refusal;

/// The kind in a poll's `task_kinds`, and the `task_kind` of such a task.
pub(super) const TASK_KIND: &str = "update_validation";

pub(super) fn task_json(task: &LeasedQuestion) -> String {
    let view = json!({
        "task_id": task.task_id,
        "task_kind": TASK_KIND,
        // The stream contract has three task types; this task is received by workflow polls.
        "task_type": "workflow",
        "update_validation_task_id": task.task_id,
        "update_validation_attempt": task.lease.attempt,
        "update_name": task.name,
        "update_arguments": task.arguments,
    });
    with_run(view, task)
}

pub(super) async fn approve(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call, "update_validation_attempt");
    call.body.check()?;
    let repeated = call.host().validations().approve(&holder).await?;
    Ok(accepted(&holder, "approved", repeated))
}

pub(super) async fn reject(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call, "update_validation_attempt");
    let failure = read_failure(&call.body, "The validator refused the update.");
    let failure = call.body.finish(failure)?;
    let repeated = call.host().validations().reject(&holder, failure).await?;
    Ok(accepted(&holder, "rejected", repeated))
}

fn accepted(holder: &QuestionHolder, outcome: &str, repeated: bool) -> Reply {
    let body = json!({
        "update_validation_task_id": holder.task_id,
        "update_validation_attempt": holder.attempt,
        "outcome": outcome,
        "reason": null,
    });
    Reply::recorded(body, repeated)
}
