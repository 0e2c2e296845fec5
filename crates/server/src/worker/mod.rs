//! The worker plane, `/api/worker/…`: a file per resource. Every response has the worker envelope and the protocol header, also
//! an error and an unknown route.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use longhaul_protocol::Reason;

use crate::App;
use crate::gate::Refusal;
use crate::routes::Routes;

mod activity_tasks;
mod call;
mod cancellations;
pub(crate) mod envelope;
mod history;
mod local_activities;
mod polls;
mod query_tasks;
mod registrations;
mod sessions;
mod task_reply;
mod update_validation_tasks;
mod workflow_tasks;

use call::{Call, GATE, delete, get, post, unknown_route};
use envelope::Reply;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .route("/register", post(registrations::register))
        .route("/heartbeat", post(registrations::heartbeat))
        .route(
            "/registrations/{worker_id}",
            delete(registrations::deregister),
        )
        .route("/workflow-tasks/poll", post(workflow_tasks::poll))
        .route(
            "/workflow-tasks/{task_id}/history",
            post(workflow_tasks::history),
        )
        .route(
            "/workflow-tasks/{task_id}/heartbeat",
            post(workflow_tasks::heartbeat),
        )
        .route(
            "/workflow-tasks/{task_id}/deliver-cancellation",
            post(cancellations::deliver_cancellation),
        )
        .route(
            "/workflow-tasks/{task_id}/complete",
            post(workflow_tasks::complete),
        )
        .route("/workflow-tasks/{task_id}/fail", post(workflow_tasks::fail))
        .merge(local_activity_routes())
        .route("/activity-tasks/poll", post(activity_tasks::poll))
        .route(
            "/activity-tasks/{task_id}/complete",
            post(activity_tasks::complete),
        )
        .route("/activity-tasks/{task_id}/fail", post(activity_tasks::fail))
        .route(
            "/activity-tasks/{task_id}/heartbeat",
            post(activity_tasks::heartbeat),
        )
        .route(
            "/activity-tasks/{task_id}/status",
            post(activity_tasks::status),
        )
        .route("/query-tasks/poll", post(query_tasks::poll))
        .route(
            "/query-tasks/{task_id}/complete",
            post(query_tasks::complete),
        )
        .route("/query-tasks/{task_id}/fail", post(query_tasks::fail))
        .route("/query-tasks/{task_id}/status", get(query_tasks::status))
        .route(
            "/update-validation-tasks/{task_id}/approve",
            post(update_validation_tasks::approve),
        )
        .route(
            "/update-validation-tasks/{task_id}/reject",
            post(update_validation_tasks::reject),
        )
        .route(
            "/activity-tasks/{task_id}/acknowledge-cancellation",
            post(activity_tasks::acknowledge_cancellation),
        )
        .route("/sessions", post(sessions::create))
        .route("/sessions/{session_id}", delete(sessions::close))
        .route(
            "/sessions/{session_id}/heartbeat",
            post(sessions::heartbeat),
        )
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
}

fn local_activity_routes() -> Routes {
    let at = |rest: &str| format!("/workflow-tasks/{{task_id}}/local-activities/{rest}");
    let of_attempt = |rest: &str| at(&format!("{{attempt_id}}/{rest}"));
    Routes::default()
        .route(&at("checkpoint"), post(local_activities::checkpoint))
        .route(
            &at("checkpoint-group"),
            post(local_activities::checkpoint_group),
        )
        .route(&at("prepare"), post(local_activities::prepare))
        .route(&at("recover"), post(local_activities::recover))
        .route(&of_attempt("control"), post(local_activities::control))
        .route(&of_attempt("heartbeat"), post(local_activities::heartbeat))
        .route(&of_attempt("outcome"), post(local_activities::outcome))
        .route(
            &of_attempt("acknowledge-cancellation"),
            post(local_activities::acknowledge_cancellation),
        )
}

/// Bytes of an id, a type, a queue or a build id.
const NAME_MAX: usize = 255;

/// Bytes of a failure's message. Both SDKs trim theirs to this.
const MESSAGE_MAX: usize = 1024 * 1024;

/// Bytes kept of a stack trace: some hundred frames. It is written again with every change of its task, so it must stay small.
const STACK_TRACE_KEPT: usize = 16 * 1024;

/// Reads a failure's stack trace and keeps its end. Most runtimes put the innermost frames last.
fn stack_trace(failure: &crate::request::body::Body) -> Option<String> {
    let value = failure.value("stack_trace")?;
    let Some(text) = value.as_str() else {
        failure.refuse("stack_trace", "must be a string");
        return None;
    };
    let start = (text.len().saturating_sub(STACK_TRACE_KEPT)..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    (!text.is_empty()).then(|| text[start..].to_owned())
}

/// Answers a request whose handler panicked, in the worker envelope.
pub(crate) fn panicked(app: &App, panic: &(dyn std::any::Any + Send)) -> Response {
    envelope::refused(app, crate::error::panic_refusal(panic))
}

async fn not_found(State(app): State<App>, request: Request<HttpBody>) -> Response {
    let refusal = unknown_route(&app, request.headers(), request.uri().path());
    envelope::refused(&app, refusal)
}

async fn method_not_allowed(State(app): State<App>, request: Request<HttpBody>) -> Response {
    let refusal = match GATE.admit(&app, request.headers()) {
        Ok(_) => {
            let message = format!(
                "{} does not take {}.",
                request.uri().path(),
                request.method()
            );
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                Reason::MethodNotAllowed,
                message,
            )
        }
        Err(refusal) => refusal,
    };
    envelope::refused(&app, refusal)
}
