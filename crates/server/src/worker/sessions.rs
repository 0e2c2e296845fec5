//! Worker sessions by name: create, heartbeat, close.

use http::StatusCode;
use longhaul_host::{Error, SessionReceipt};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{SessionId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Call, NAME_MAX, Reply};
use crate::error;
use crate::gate::Refusal;
use crate::request::body::Body;
use crate::views::worker_session::snapshot;

/// The fields of a create that describe the session.
const OPTIONS: [&str; 9] = [
    "session_id",
    "connection",
    "queue",
    "requirements",
    "lease_seconds",
    "ttl_seconds",
    "max_concurrent_activities",
    "create_if_missing",
    "allow_reacquire_after_failure",
];

pub(super) async fn create(call: Call) -> Result<Reply, Refusal> {
    let worker_id = WorkerId::from(call.body.required_text("worker_id", NAME_MAX));
    let options = read_options(&call.body)?;
    call.host()
        .sessions()
        .create(&call.namespace, &worker_id, &options)
        .await
        .map(|receipt| admitted(&receipt))
        .map_err(|error| refused(&error, &worker_id))
}

pub(super) async fn heartbeat(call: Call) -> Result<Reply, Refusal> {
    let worker_id = WorkerId::from(call.body.required_text("worker_id", NAME_MAX));
    let lease_seconds = call.body.count("lease_seconds", 1);
    call.body.check()?;
    let session_id = SessionId::from(call.segment("session_id"));
    call.host()
        .sessions()
        .heartbeat(&call.namespace, &worker_id, &session_id, lease_seconds)
        .await
        .map(|receipt| admitted(&receipt))
        .map_err(|error| refused(&error, &worker_id))
}

/// A DELETE with a body: which worker closes the session, and why.
pub(super) async fn close(call: Call) -> Result<Reply, Refusal> {
    let worker_id = WorkerId::from(call.body.required_text("worker_id", NAME_MAX));
    // The reason is only logged, so it may have any shape.
    let reason = call.body.raw("reason").map(RawValue::get).map(shown);
    call.body.check()?;
    let session_id = SessionId::from(call.segment("session_id"));
    call.host()
        .sessions()
        .close(&call.namespace, &worker_id, &session_id, reason.as_deref())
        .await
        .map(|receipt| admitted(&receipt))
        .map_err(|error| refused(&error, &worker_id))
}

/// Characters of a reason that are logged: a sentence or two.
const REASON_SHOWN_MAX: usize = 200;

/// Returns the beginning of a JSON value for the log; a string loses its quotes.
fn shown(json: &str) -> String {
    let text = serde_json::from_str::<String>(json);
    let text = text.as_deref().unwrap_or(json);
    text.chars().take(REASON_SHOWN_MAX).collect()
}

/// Reads the options of a session. A blank session id has its own reason; all other mistakes are refused together.
fn read_options(body: &Body) -> Result<WorkerSessionOptions, Refusal> {
    let mut said = Map::new();
    for field in OPTIONS {
        if let Some(value) = body.value(field) {
            said.insert(field.to_owned(), value);
        }
    }
    let is_blank = said
        .get("session_id")
        .and_then(Value::as_str)
        .is_some_and(|text| text.trim().is_empty());
    let mut errors = FieldErrors::new();
    let options = WorkerSessionOptions::read(&said, "", &mut errors);
    for (field, messages) in &errors {
        if !(is_blank && field == "session_id") {
            for message in messages {
                body.refuse(field, message);
            }
        }
    }
    body.check()?;
    options.ok_or_else(|| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let refusal = Refusal::new(
            status,
            Reason::InvalidWorkerSession,
            "A session needs an id that is not blank.",
        );
        not_admitted(refusal)
    })
}

fn admitted(receipt: &SessionReceipt) -> Reply {
    let status = match receipt.outcome {
        "created" => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let body = json!({
        "admitted": true,
        "outcome": receipt.outcome,
        "status": status.as_u16(),
        "reason": null,
        "activity_task_id": null,
        "session": snapshot(&receipt.view),
    });
    Reply::new(status, &body)
}

/// Renders a refusal. The published result has a closed set of reasons; other refusals keep the ordinary shape.
fn refused(error: &Error, worker_id: &WorkerId) -> Refusal {
    let refusal = error::refusal(error);
    match error {
        Error::Session(_) => not_admitted(refusal.with("worker_id", worker_id.as_str())),
        Error::WorkerNotRegistered(_) => not_admitted(refusal),
        _ => refusal,
    }
}

fn not_admitted(refusal: Refusal) -> Refusal {
    let status = refusal.status.as_u16();
    refusal.with("admitted", false).with("status", status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_without_the_quotes_of_its_json() {
        assert_eq!(shown("\"worker_shutdown\""), "worker_shutdown");
        assert_eq!(shown("{\"code\": 7}"), "{\"code\": 7}");
        assert_eq!(
            shown(&format!("\"{}\"", "x".repeat(1000))).len(),
            REASON_SHOWN_MAX
        );
    }
}
