//! How a query without a result is answered: its status and its fields.

use http::StatusCode;
use longhaul_host::QueryRefusal;
use serde_json::json;

use crate::gate::Refusal;

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

/// Adds the fields that explain the reason.
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
            // The reason that the worker gave is passed on, even if this server does not know it.
            if let Some(reason) = reason {
                refusal = refusal.with("reason", reason);
            }
            refusal
        }
    }
}
