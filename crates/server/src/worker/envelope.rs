//! The worker envelope: `protocol_version` and `server_capabilities` in every body, the version in a header. Neither changes while
//! the server runs, so both are rendered once and appended to each body as text.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use longhaul_protocol::version::WORKER_PROTOCOL_VERSION;
use serde_json::{Value, json};

use crate::App;
use crate::gate::Refusal;

const HEADER: HeaderName = HeaderName::from_static("x-durable-workflow-protocol-version");

/// Returns the text that follows the last field of a body, closing brace included.
pub(crate) fn closing(server_capabilities: &Value) -> String {
    format!(
        r#""protocol_version":"{WORKER_PROTOCOL_VERSION}","server_capabilities":{server_capabilities}}}"#
    )
}

/// A success before it is rendered.
pub(super) struct Reply {
    status: StatusCode,
    /// A JSON object as text.
    body: String,
}

impl Reply {
    /// `body` is a JSON object.
    pub(super) fn new(status: StatusCode, body: &Value) -> Self {
        Self {
            status,
            body: body.to_string(),
        }
    }

    pub(super) fn ok(body: &Value) -> Self {
        Self::new(StatusCode::OK, body)
    }

    /// A body that is already text: a JSON object. History is passed on as it is stored, without being parsed.
    pub(super) fn text(body: String) -> Self {
        Self {
            status: StatusCode::OK,
            body,
        }
    }

    /// The reply to a report. A repeat of an accepted report gets the same reply, marked as a duplicate.
    pub(super) fn recorded(mut body: Value, duplicate: bool) -> Self {
        if duplicate {
            body["duplicate"] = json!(true);
        }
        Self::ok(&body)
    }
}

/// Renders what a handler returned.
pub(super) fn render(app: &App, result: Result<Reply, Refusal>) -> Response {
    match result {
        Ok(reply) => enveloped(app, reply),
        Err(refusal) => refused(app, refusal),
    }
}

/// Renders a refusal. Both SDKs read `message` first, then `error`.
pub(crate) fn refused(app: &App, refusal: Refusal) -> Response {
    let retry_after = refusal
        .extra
        .get("retry_after_seconds")
        .and_then(Value::as_u64);
    let mut body = refusal.extra;
    body.insert("error".to_owned(), json!(refusal.message));
    body.insert("message".to_owned(), json!(refusal.message));
    body.insert("reason".to_owned(), json!(refusal.reason.as_str()));
    let mut response = enveloped(app, Reply::new(refusal.status, &Value::Object(body)));
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn enveloped(app: &App, reply: Reply) -> Response {
    let Reply { status, mut body } = reply;
    debug_assert!(body.ends_with('}'), "a body is an object");
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
