//! Queries on workflows, open or closed, for the current run or a named one (control-plane.md §10.4). Nothing is recorded: the
//! answer comes from a worker that replays the history.

use http::StatusCode;
use longhaul_host::QueryRefusal;
use longhaul_protocol::payload;
use serde_json::json;

use super::commands::check_name;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;

pub(in crate::control) async fn query(call: Call) -> Result<Reply, Refusal> {
    let name = call.segment("query_name").to_owned();
    let workflow_id = call.workflow_id();
    let run_id = call.run_id();
    let scope = if run_id.is_some() { "run" } else { "instance" };
    let result = query_named(call, &name, scope).await;
    result.map_err(|refusal| {
        let refusal = refusal
            .with("workflow_id", workflow_id.as_str())
            .with("query_name", name)
            .with("target_scope", scope);
        match &run_id {
            Some(run_id) => refusal.with("run_id", run_id.as_str()),
            None => refusal,
        }
    })
}

async fn query_named(call: Call, name: &str, scope: &str) -> Result<Reply, Refusal> {
    check_name(name, "query_name")?;
    call.check_input()?;
    let body = &call.body;
    let arguments = body.payload(payload::input_list(body.raw("input"), "input"));
    body.check_codec();
    let arguments = body.finish(arguments)?;
    let workflow_id = call.workflow_id();
    let run_id = call.run_id();
    let queried = call
        .host()
        .query_workflow(
            &call.namespace,
            &workflow_id,
            run_id.as_ref(),
            name,
            arguments,
        )
        .await?;
    Ok(Reply::ok(json!({
        "workflow_id": workflow_id,
        "run_id": queried.run_id,
        "workflow_type": queried.workflow_type,
        "query_name": name,
        "target_scope": scope,
        "result": queried.result.shown,
        "result_envelope": queried.result.envelope,
        "reason": null,
    })))
}

/// The status of a query that has no result.
pub(crate) fn status(refusal: &QueryRefusal) -> StatusCode {
    match refusal {
        QueryRefusal::Unknown { .. } => StatusCode::NOT_FOUND,
        QueryRefusal::InvalidArguments { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        QueryRefusal::WorkerUnavailable(_) | QueryRefusal::WorkerIncompatible(_) => {
            StatusCode::CONFLICT
        }
        QueryRefusal::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
        QueryRefusal::QueueUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        QueryRefusal::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
        QueryRefusal::Failed(failure) => match failure.reason.as_deref() {
            Some("rejected_unknown_query") => StatusCode::NOT_FOUND,
            Some("invalid_query_arguments") => StatusCode::UNPROCESSABLE_ENTITY,
            Some(_) | None => StatusCode::CONFLICT,
        },
    }
}

/// What the answer tells beside its reason.
pub(crate) fn with_details(refusal: Refusal, why: &QueryRefusal) -> Refusal {
    match why {
        QueryRefusal::Unknown { declared } => refusal.with("declared_queries", json!(declared)),
        QueryRefusal::InvalidArguments { errors } => refusal
            .with("errors", json!(errors))
            .with("validation_errors", json!(errors)),
        QueryRefusal::WorkerUnavailable(queue) | QueryRefusal::WorkerIncompatible(queue) => {
            refusal.with("task_queue", queue.as_str())
        }
        QueryRefusal::QueueFull { limit } => refusal
            .with("configured_limit", *limit)
            .with("retryable", true)
            .with("retry_after_seconds", 1),
        QueryRefusal::QueueUnavailable => refusal
            .with("retryable", true)
            .with("retry_after_seconds", 1),
        QueryRefusal::TimedOut(stage) => refusal.with("timeout_stage", stage.as_str()),
        QueryRefusal::Failed(failure) => {
            let reason = failure.reason.clone();
            let mut refusal = refusal
                .with("failure_type", json!(failure.failure_type))
                .with("validation_errors", json!(failure.validation_errors));
            // The worker's word stands, also one that this server does not know.
            if let Some(reason) = reason {
                refusal = refusal.with("reason", reason);
            }
            refusal
        }
    }
}
