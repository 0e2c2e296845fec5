//! From a host error to a status and the fields of a response. The match is exhaustive, so a new kind of error needs a response.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use longhaul_host::api::{Rejection, SessionRefusal};
use longhaul_host::{ConductorRefusal, Error, QuestionRefusal, ValidationRefusal};
use longhaul_protocol::Reason;
use serde_json::json;

use crate::gate::Refusal;
use crate::views::{query_refusal, worker_session};

/// Renders an error as both planes show it. The planes add their own fields for closed runs and leases.
pub(crate) fn refusal(error: &Error) -> Refusal {
    let refusal = Refusal::new(status(error), error.reason(), error.to_string());
    match error {
        Error::Rejected(rejection) => with_rejection(refusal, rejection),
        Error::InstanceNotFound(workflow_id) => refusal.with("workflow_id", workflow_id.as_str()),
        Error::RunNotFound(workflow_id, run_id) => refusal
            .with("workflow_id", workflow_id.as_str())
            .with("run_id", run_id.as_str()),
        Error::NamespaceNotFound(namespace) => refusal.with("namespace", namespace.as_str()).with(
            "remediation",
            "Create it with POST /api/namespaces, or send the X-Namespace header of one that exists.",
        ),
        Error::NamespaceExists(namespace) => refusal.with("namespace", namespace.as_str()),
        Error::AttributeNameReserved(name)
        | Error::SystemAttribute(name)
        | Error::AttributeNotFound(name) => refusal.with("name", name.as_str()),
        Error::AttributeExists(name, existing) => refusal
            .with("name", name.as_str())
            .with("type", existing.as_str()),
        Error::TooManyAttributes { limit } => refusal.with("limit", *limit),
        Error::WorkerNotRegistered(worker_id) => refusal.with("worker_id", worker_id.as_str()),
        Error::DefinitionChanged(worker_id, workflow_type) => refusal
            .with("worker_id", worker_id.as_str())
            .with("workflow_type", workflow_type.as_str())
            .with("remediation", "Restart the worker with a new worker id."),
        Error::TaskQueueMismatch {
            registered,
            requested,
        } => refusal
            .with("registered_task_queue", registered.as_str())
            .with("requested_task_queue", requested.as_str()),
        Error::BuildIdMismatch {
            registered,
            requested,
        } => refusal
            .with("registered_build_id", registered.clone())
            .with("requested_build_id", requested.clone()),
        Error::Query(why) => query_refusal::with_details(refusal, why),
        Error::Conductor(_) => refusal,
        Error::Validation(why) => match validation_status(why) {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                refusal.with("retryable", true).with("retry_after_seconds", 1)
            }
            _ => refusal,
        },
        Error::Question { refusal: why, .. } => match why {
            QuestionRefusal::AttemptMismatch { current } => {
                refusal.with("current_attempt", *current)
            }
            QuestionRefusal::NotFound
            | QuestionRefusal::NotLeased
            | QuestionRefusal::Answered
            | QuestionRefusal::OwnerMismatch
            | QuestionRefusal::LeaseExpired
            | QuestionRefusal::TimedOut => refusal,
        },
        Error::WorkerDraining(worker_id) => refusal.with("worker_id", worker_id.as_str()),
        Error::Session(refused) => worker_session::with_details(refusal, refused),
        Error::SessionNotFound(session_id) => refusal.with("session_id", session_id.as_str()),
        Error::TaskQueueDraining(queue) => refusal
            .with("task_queue", queue.task_queue.as_str())
            .with("routing_status", "draining")
            .with("drain_intent", "draining")
            .with("active_worker_count", 0)
            .with("draining_worker_count", queue.draining_workers)
            .with("stale_worker_count", queue.stale_workers)
            .with("draining_build_ids", json!(queue.build_ids)),
        Error::CompatibilityBlocked {
            task_queue,
            build_id,
        } => refusal
            .with("task_queue", task_queue.as_str())
            .with("build_id", build_id.as_str())
            .with("compatibility", build_id.as_str()),
        Error::RequestRateExhausted {
            namespace,
            limit,
            retry_after_seconds,
        } => refusal
            .with("namespace", namespace.as_str())
            .with("limit", *limit)
            .with("retryable", true)
            .with("retry_after_seconds", *retry_after_seconds),
        Error::RequestConcurrencyExhausted { namespace, limit } => refusal
            .with("namespace", namespace.as_str())
            .with("limit", *limit)
            .with("retryable", true)
            .with("retry_after_seconds", 1),
        Error::CapReached(_)
        | Error::TooManyPolls
        | Error::Contended
        | Error::Unavailable
        | Error::Stopping => {
            refusal.with("retryable", true).with("retry_after_seconds", 1)
        }
        Error::Damaged => refusal.with("retryable", false),
        Error::Internal => {
            // The log and the response contain the same id, so that one can be found from the other.
            let error_id = longhaul_host::mint_error_id();
            tracing::error!(error_id, "a request failed with internal_error");
            refusal.with("retryable", false).with("error_id", error_id)
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        refusal(&error)
    }
}

fn status(error: &Error) -> StatusCode {
    match error {
        Error::Rejected(rejection) => rejected_status(rejection),
        Error::InstanceNotFound(_)
        | Error::RunNotFound(..)
        | Error::NamespaceNotFound(_)
        | Error::SessionNotFound(_)
        | Error::AttributeNotFound(_) => StatusCode::NOT_FOUND,
        Error::Session(refused) => match refused.refusal {
            SessionRefusal::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        },
        Error::TooManyAttributes { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Error::NamespaceExists(_)
        | Error::AttributeNameReserved(_)
        | Error::AttributeExists(..)
        | Error::SystemAttribute(_)
        | Error::DefinitionChanged(..)
        | Error::TaskQueueMismatch { .. }
        | Error::BuildIdMismatch { .. }
        | Error::WorkerDraining(_)
        | Error::TaskQueueDraining(_)
        | Error::CapReached(_)
        | Error::CompatibilityBlocked { .. } => StatusCode::CONFLICT,
        Error::Query(refusal) => query_refusal::status(refusal),
        Error::Conductor(refusal) => conductor_status(refusal),
        Error::Validation(refusal) => validation_status(refusal),
        Error::Question { refusal, .. } => match refusal {
            QuestionRefusal::NotFound => StatusCode::NOT_FOUND,
            QuestionRefusal::NotLeased
            | QuestionRefusal::Answered
            | QuestionRefusal::OwnerMismatch
            | QuestionRefusal::AttemptMismatch { .. }
            | QuestionRefusal::LeaseExpired
            | QuestionRefusal::TimedOut => StatusCode::CONFLICT,
        },
        // The status on polls. Heartbeats and lookups replace it by 404.
        Error::WorkerNotRegistered(_) => StatusCode::PRECONDITION_FAILED,
        Error::TooManyPolls
        | Error::RequestRateExhausted { .. }
        | Error::RequestConcurrencyExhausted { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Contended | Error::Unavailable | Error::Stopping | Error::Damaged => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Error::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the status of a refused operation on definitions or definition runs.
fn conductor_status(refusal: &ConductorRefusal) -> StatusCode {
    match refusal {
        ConductorRefusal::InvalidDefinition(_)
        | ConductorRefusal::BadSearch(_)
        | ConductorRefusal::NoTaskToRerun { .. } => StatusCode::BAD_REQUEST,
        ConductorRefusal::DefinitionExists { .. } => StatusCode::CONFLICT,
        ConductorRefusal::NoSuchDefinition { .. }
        | ConductorRefusal::DefinitionUnusable(_)
        | ConductorRefusal::NoSuchExecution(_)
        | ConductorRefusal::NoSuchTask(_)
        | ConductorRefusal::TaskOfOtherWorkflow { .. }
        | ConductorRefusal::NoBlockedTask { .. }
        | ConductorRefusal::NoOpenTask { .. } => StatusCode::NOT_FOUND,
    }
}

/// Returns the status of an update that could not be validated.
fn validation_status(refusal: &ValidationRefusal) -> StatusCode {
    match refusal {
        ValidationRefusal::RequestIdRequired => StatusCode::UNPROCESSABLE_ENTITY,
        ValidationRefusal::IdempotencyConflict
        | ValidationRefusal::ContractMissing
        | ValidationRefusal::CapabilityUnsupported
        | ValidationRefusal::WorkerIncompatible => StatusCode::CONFLICT,
        ValidationRefusal::WorkerUnavailable
        | ValidationRefusal::WorkerLost
        | ValidationRefusal::WorkerFailed(_) => StatusCode::SERVICE_UNAVAILABLE,
        ValidationRefusal::NotClaimed | ValidationRefusal::ExecutionTimeout => {
            StatusCode::GATEWAY_TIMEOUT
        }
    }
}

fn rejected_status(rejection: &Rejection) -> StatusCode {
    match rejection {
        Rejection::TaskNotFound
        | Rejection::ReferenceUnknown { .. }
        | Rejection::AttemptNotFound
        | Rejection::UnknownSignal { .. } => StatusCode::NOT_FOUND,
        Rejection::NotClaimable { .. }
        | Rejection::SessionRefused(_)
        | Rejection::RunClosed(_)
        | Rejection::RunTimedOut { .. }
        | Rejection::TaskNotLeased { .. }
        | Rejection::LeaseExpired { .. }
        | Rejection::LeaseOwnerMismatch { .. }
        | Rejection::AttemptMismatch { .. }
        | Rejection::TaskMismatch
        | Rejection::StaleAttempt
        | Rejection::AttemptClosed
        | Rejection::ActivityCancelled
        | Rejection::RunNotActive { .. }
        | Rejection::NotCurrent
        | Rejection::RunNotClosed
        | Rejection::RunNotPaused
        | Rejection::RunNotEnded
        | Rejection::RunNotRestartable
        | Rejection::NothingToRetry
        | Rejection::NotSkippable { .. }
        | Rejection::NotRerunnable { .. }
        | Rejection::EarlierLife
        | Rejection::KeyTaken { .. }
        | Rejection::OtherProgram { .. }
        | Rejection::AlreadyStarted { .. }
        | Rejection::RequestIdConflict { .. }
        | Rejection::MessageIdentityConflict { .. }
        | Rejection::NotCooperative
        | Rejection::ActiveClaimNotCooperative { .. }
        | Rejection::CancellationMismatch => StatusCode::CONFLICT,
        Rejection::LocalActivityRefused { reason } => match reason {
            Reason::ActivityAttemptNotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        },
        Rejection::InvalidCommands { .. }
        | Rejection::VersionMarkerConflict { .. }
        | Rejection::OtherWorkflowType { .. }
        | Rejection::InvalidSearchAttributes { .. }
        | Rejection::InvalidSignalArguments { .. }
        | Rejection::LimitExceeded(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Rejection::SchemaMismatch { .. } => StatusCode::BAD_REQUEST,
        Rejection::SchemaNotCompared { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Rejection::UpdateRefused(refused) if refused.reason == Reason::UnknownUpdate => {
            StatusCode::NOT_FOUND
        }
        Rejection::UpdateRefused(_) => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

fn with_rejection(refusal: Refusal, rejection: &Rejection) -> Refusal {
    match rejection {
        Rejection::RunClosed(closed) => {
            let stopped = closed.closed.reason.was_stopped();
            refusal
                .with("can_continue", false)
                .with("cancel_requested", stopped)
                .with(
                    "stop_reason",
                    format!("run_{}", closed.closed.reason.as_str()),
                )
                .with("run_status", closed.status.as_str())
                .with("run_closed_reason", closed.closed.reason.as_str())
                .with("run_closed_at", json!(closed.closed.at))
                .with("task_status", closed.task_status.as_str())
                .with("lease_owner", json!(closed.lease_owner))
                .with("lease_expires_at", json!(closed.lease_expires_at))
        }
        Rejection::RunTimedOut { run_id } => refusal
            .with("run_status", "failed")
            .with("run_id", run_id.as_str()),
        Rejection::TaskNotLeased { task_status } => {
            refusal.with("task_status", task_status.as_str())
        }
        Rejection::LeaseExpired { owner, expires_at } => refusal
            .with("task_status", "leased")
            .with("lease_owner", owner.as_str())
            .with("lease_expires_at", json!(expires_at)),
        Rejection::LeaseOwnerMismatch { owner } => refusal.with("lease_owner", owner.as_str()),
        Rejection::AttemptMismatch { current } => refusal.with("current_attempt", *current),
        Rejection::InvalidCommands { errors } | Rejection::VersionMarkerConflict { errors } => {
            refusal
                .with("errors", json!(errors))
                .with("validation_errors", json!(errors))
        }
        Rejection::RunNotActive { status } => refusal
            .with("run_status", status.as_str())
            .with("is_terminal", status.is_terminal())
            .with("outcome", "rejected_not_active"),
        Rejection::RunNotClosed => refusal.with("outcome", "rejected_run_not_closed"),
        Rejection::KeyTaken { run_id } => refusal.with("workflowId", run_id.as_str()),
        Rejection::RunNotPaused
        | Rejection::RunNotEnded
        | Rejection::RunNotRestartable
        | Rejection::NothingToRetry
        | Rejection::ReferenceUnknown { .. }
        | Rejection::NotSkippable { .. }
        | Rejection::NotRerunnable { .. }
        | Rejection::EarlierLife
        | Rejection::OtherProgram { .. }
        | Rejection::SchemaMismatch { .. }
        | Rejection::SchemaNotCompared { .. } => refusal,
        Rejection::NotCurrent => refusal
            .with("outcome", "rejected_not_current")
            .with("target_scope", "run"),
        Rejection::AlreadyStarted { run_id } => refusal
            .with("run_id", run_id.as_str())
            .with("outcome", "rejected_duplicate")
            .with("command_status", "rejected"),
        Rejection::OtherWorkflowType { workflow_type } => {
            let errors = json!({"workflow_type": [format!("this workflow id belongs to a workflow of type {workflow_type}")]});
            refusal
                .with("errors", errors.clone())
                .with("validation_errors", errors)
        }
        // The server took the task back, so the worker has nothing left to do on it.
        Rejection::LocalActivityRefused {
            reason: Reason::LocalActivityRetryNotDue | Reason::LocalActivityDeadlineExpired,
        } => refusal.with("claim_released", true),
        Rejection::LocalActivityRefused { .. } => refusal,
        Rejection::LimitExceeded(limit) => refusal
            .with("limit_kind", limit.kind)
            .with("current_value", limit.value)
            .with("configured_limit", limit.configured),
        Rejection::RequestIdConflict { command, conflict } => refusal
            .with("request_id", json!(command.request_id))
            .with("retained_command_id", command.command_id.as_str())
            .with("retained_command_type", command.command_type.as_str())
            .with("retained_outcome", command.outcome.as_str())
            .with("conflict", json!(conflict)),
        Rejection::InvalidSearchAttributes { errors } => refusal
            .with("errors", json!(errors))
            .with("validation_errors", json!(errors)),
        Rejection::InvalidSignalArguments { errors } => refusal
            .with("errors", json!(errors))
            .with("validation_errors", json!(errors))
            .with("outcome", "rejected_invalid_arguments"),
        Rejection::UnknownSignal { declared } => refusal
            .with("declared_signals", json!(declared))
            .with("outcome", "rejected_unknown_signal"),
        Rejection::NotCooperative => refusal.with("minimum_protocol_version", "1.20"),
        Rejection::ActiveClaimNotCooperative { task_id, attempt } => refusal
            .with("task_id", task_id.as_str())
            .with("workflow_task_attempt", *attempt),
        Rejection::MessageIdentityConflict { position } => refusal.with("position", *position),
        Rejection::TaskNotFound
        | Rejection::NotClaimable { .. }
        | Rejection::SessionRefused(_)
        | Rejection::UpdateRefused(_)
        | Rejection::CancellationMismatch
        | Rejection::AttemptNotFound
        | Rejection::TaskMismatch
        | Rejection::StaleAttempt
        | Rejection::AttemptClosed
        | Rejection::ActivityCancelled => refusal,
    }
}

/// Returns the refusal of a request whose handler panicked. Other requests go on.
pub(crate) fn panic_refusal(panic: &(dyn std::any::Any + Send)) -> Refusal {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let what = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = what.unwrap_or_default(), "a handler panicked");
    refusal(&Error::Internal)
}

/// Answers a request that panicked outside the two planes.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature is the layer's"
)]
pub(crate) fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let refusal = panic_refusal(&*panic);
    let mut body = refusal.extra;
    body.insert("message".to_owned(), json!(refusal.message));
    body.insert("error".to_owned(), json!(refusal.message));
    body.insert("reason".to_owned(), json!(refusal.reason.as_str()));
    (refusal.status, axum::Json(body)).into_response()
}
