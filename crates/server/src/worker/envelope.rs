//! The worker envelope: `protocol_version` and `server_capabilities` in every body, the version in a header. The two never change
//! while the server runs, so they are kept as text and put behind each answer.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use longhaul_protocol::version::WORKER_PROTOCOL_VERSION;
use serde_json::{Value, json};

use crate::App;
use crate::gate::Refusal;

const HEADER: HeaderName = HeaderName::from_static("x-durable-workflow-protocol-version");

/// What follows the last own field of an answer, closing brace included.
pub(crate) fn closing(server_capabilities: &Value) -> String {
    format!(
        r#""protocol_version":"{WORKER_PROTOCOL_VERSION}","server_capabilities":{server_capabilities}}}"#
    )
}

/// A success.
pub(super) fn answered(app: &App, status: StatusCode, body: &Value) -> Response {
    render(app, status, body.to_string())
}

/// An answer whose body is already text: a JSON object.
pub(super) fn render(app: &App, status: StatusCode, mut body: String) -> Response {
    debug_assert!(body.ends_with('}'), "an answer is an object");
    body.pop();
    if body.len() > 1 {
        body.push(',');
    }
    body.push_str(app.worker_envelope());
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HEADER, HeaderValue::from_static(WORKER_PROTOCOL_VERSION)),
    ];
    (status, headers, body).into_response()
}

/// A refusal with its reason; both SDKs read `message` first, then `error`.
pub(crate) fn refused(app: &App, refusal: Refusal) -> Response {
    let retry_after = refusal
        .extra
        .get("retry_after_seconds")
        .and_then(Value::as_u64);
    let mut body = refusal.extra;
    body.insert("error".to_owned(), json!(refusal.message));
    body.insert("message".to_owned(), json!(refusal.message));
    body.insert("reason".to_owned(), json!(refusal.reason.as_str()));
    let mut response = answered(app, refusal.status, &Value::Object(body));
    if let Some(seconds) = retry_after
        && let Ok(value) = HeaderValue::from_str(&seconds.to_string())
    {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

/// As [`respond`], for an answer that is text already.
pub(super) fn respond_text(
    app: &App,
    status: StatusCode,
    result: Result<String, Refusal>,
) -> Response {
    match result {
        Ok(body) => render(app, status, body),
        Err(refusal) => refused(app, refusal),
    }
}

/// Either of the two.
pub(super) fn respond(app: &App, status: StatusCode, result: Result<Value, Refusal>) -> Response {
    match result {
        Ok(body) => answered(app, status, &body),
        Err(refusal) => refused(app, refusal),
    }
}
