//! Processes query tasks and update validation tasks: replays the run and calls one handler. Nothing is recorded.

use std::sync::Arc;

use longhaul_protocol::Payload;
use serde_json::{Value, json};

use super::shared::Shared;
use super::wire::{QueryTask, QuestionedRun, ValidationTask};
use crate::error::Failure;
use crate::workflow::{Execution, HistoryEvent, ReplayError, RunInfo};

/// Processes a query task.
pub(super) async fn answer_query(shared: &Arc<Shared>, task: QueryTask) {
    shared.counters.queries.add();
    let answer = replay(shared, &task.run, &task.history_events)
        .and_then(|mut run| run.query(&task.query_name, task.query_arguments.as_ref()));
    let mut body = json!({
        "lease_owner": task.run.lease_owner,
        "query_task_attempt": task.query_task_attempt,
    });
    let refusal = match answer {
        Ok(Some(Ok(result))) => {
            body["result"] = result.display().unwrap_or(Value::Null);
            body["result_envelope"] = json!(result);
            None
        }
        Ok(Some(Err(failure))) => Some((failure, "query_rejected")),
        Ok(None) => {
            let problem = format!(
                "the workflow has no handler for the query `{}`",
                task.query_name
            );
            Some((
                Failure::of_type("UnknownQuery", problem),
                "rejected_unknown_query",
            ))
        }
        Err(error) => Some((unanswerable(&error), "query_rejected")),
    };
    report(
        shared,
        "query-tasks",
        &task.query_task_id,
        ["complete", "fail"],
        body,
        refusal,
    )
    .await;
}

/// Processes an update validation task.
pub(super) async fn validate_update(shared: &Arc<Shared>, task: ValidationTask) {
    shared.counters.validations.add();
    let verdict = replay(shared, &task.run, &task.history_events)
        .and_then(|mut run| run.validate(&task.update_name, task.update_arguments.as_ref()));
    let refusal = match verdict {
        Ok(Some(Ok(()))) => None,
        Ok(Some(Err(failure))) => Some((failure, "update_validator_rejected")),
        Ok(None) => {
            let problem = format!(
                "the workflow has no handler for the update `{}`",
                task.update_name
            );
            Some((
                Failure::of_type("UnknownUpdate", problem),
                "update_validator_rejected",
            ))
        }
        Err(error) => Some((unanswerable(&error), "update_validation_worker_failed")),
    };
    let body = json!({
        "lease_owner": task.run.lease_owner,
        "update_validation_attempt": task.update_validation_attempt,
    });
    report(
        shared,
        "update-validation-tasks",
        &task.update_validation_task_id,
        ["approve", "reject"],
        body,
        refusal,
    )
    .await;
}

fn unanswerable(error: &ReplayError) -> Failure {
    Failure::of_type(error.failure_type(), error.to_string())
}

fn replay(
    shared: &Arc<Shared>,
    run: &QuestionedRun,
    events: &[HistoryEvent],
) -> Result<Execution, ReplayError> {
    let Some(definition) = shared.workflows.get(run.workflow_type.as_str()) else {
        return Err(ReplayError::UnknownWorkflow {
            workflow_type: run.workflow_type.clone(),
        });
    };
    let info = RunInfo {
        workflow_id: run.workflow_id.clone(),
        run_id: run.run_id.clone(),
        workflow_type: run.workflow_type.clone(),
        task_queue: shared.queue.clone(),
        namespace: shared.api.connection.namespace.to_string(),
    };
    let arguments = run
        .workflow_arguments
        .clone()
        .unwrap_or_else(Payload::empty_list);
    let mut execution = Execution::new(definition, info, arguments);
    execution.apply(events)?;
    Ok(execution)
}

/// Reports success with the first verb, or a refusal with the second.
async fn report(
    shared: &Arc<Shared>,
    resource: &str,
    task_id: &str,
    [yes, no]: [&str; 2],
    mut body: Value,
    refusal: Option<(Failure, &str)>,
) {
    let mut verb = yes;
    if let Some((failure, reason)) = refusal {
        verb = no;
        body["failure"] = json!({
            "message": failure.message(),
            "type": failure.exception_type(),
            "reason": reason,
        });
    }
    if let Err(error) = shared.api.report(&[resource, task_id, verb], &body).await {
        // The caller does not wait any more, or another worker has answered.
        tracing::debug!(%error, "could not report the answer to a query or update validation");
    }
}
