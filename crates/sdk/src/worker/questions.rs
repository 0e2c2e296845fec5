//! Queries, and validators of updates: a replay, one handler, an answer. Nothing is recorded.

use std::sync::Arc;

use longhaul_protocol::Payload;
use serde_json::{Value, json};

use super::shared::Shared;
use super::wire::Question;
use crate::error::Failure;
use crate::transport::RequestError;
use crate::workflow::{Execution, ReplayError, RunInfo};

/// Answers a query.
pub(super) async fn answer_query(shared: &Arc<Shared>, question: Question) {
    shared.counters.queries.add();
    let answer = replay(shared, &question)
        .and_then(|mut run| run.query(&question.name, question.arguments.as_ref()));
    let failure = match answer {
        Ok(Some(Ok(result))) => {
            let body = json!({
                "lease_owner": question.lease_owner,
                "query_task_attempt": question.attempt,
                "result": result.display().unwrap_or(Value::Null),
                "result_envelope": result,
            });
            report(
                shared,
                &["query-tasks", &question.task_id, "complete"],
                &body,
            )
            .await;
            return;
        }
        Ok(Some(Err(failure))) => json!({
            "message": failure.message(),
            "type": failure.exception_type(),
            "reason": "query_rejected",
        }),
        Ok(None) => json!({
            "message": format!("the workflow has no query `{}`", question.name),
            "reason": "rejected_unknown_query",
        }),
        Err(error) => json!({
            "message": error.to_string(),
            "type": error.failure_type(),
            "reason": "query_rejected",
        }),
    };
    let body = json!({
        "lease_owner": question.lease_owner,
        "query_task_attempt": question.attempt,
        "failure": failure,
    });
    report(shared, &["query-tasks", &question.task_id, "fail"], &body).await;
}

/// Asks a validator whether an update may come in.
pub(super) async fn validate_update(shared: &Arc<Shared>, question: Question) {
    shared.counters.validations.add();
    let verdict = replay(shared, &question)
        .and_then(|mut run| run.validate(&question.name, question.arguments.as_ref()));
    let refusal = match verdict {
        Ok(Some(Ok(()))) => None,
        Ok(Some(Err(failure))) => Some((failure, "update_validator_rejected")),
        Ok(None) => {
            let failure = Failure::of_type("UnknownUpdate", "the workflow has no such update");
            Some((failure, "update_validator_rejected"))
        }
        Err(error) => Some((
            Failure::of_type(error.failure_type(), error.to_string()),
            "update_validation_worker_failed",
        )),
    };
    let mut body = json!({
        "lease_owner": question.lease_owner,
        "update_validation_attempt": question.attempt,
    });
    let verb = match refusal {
        None => "approve",
        Some((failure, reason)) => {
            body["failure"] = json!({
                "message": failure.message(),
                "type": failure.exception_type(),
                "reason": reason,
            });
            "reject"
        }
    };
    report(
        shared,
        &["update-validation-tasks", &question.task_id, verb],
        &body,
    )
    .await;
}

fn replay(shared: &Arc<Shared>, question: &Question) -> Result<Execution, ReplayError> {
    let Some(definition) = shared.workflows.get(question.workflow_type.as_str()) else {
        return Err(ReplayError::UnknownWorkflow {
            workflow_type: question.workflow_type.clone(),
        });
    };
    let info = RunInfo {
        workflow_id: question.workflow_id.clone(),
        run_id: question.run_id.clone(),
        workflow_type: question.workflow_type.clone(),
        task_queue: shared.queue.clone(),
        namespace: shared.api.connection.namespace.to_string(),
    };
    let arguments = question
        .workflow_arguments
        .clone()
        .unwrap_or_else(Payload::empty_list);
    let mut execution = Execution::new(definition, info, arguments);
    execution.apply(&question.history_events)?;
    Ok(execution)
}

async fn report(shared: &Arc<Shared>, segments: &[&str], body: &Value) {
    let reported: Result<Value, RequestError> = shared.api.report(segments, body).await;
    if let Err(error) = reported {
        // Nobody waits for it any more, or somebody else answered.
        tracing::debug!(%error, "an answer came too late");
    }
}
