//! What handlers of this plane return, and how refusals look.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::gate::Refusal;

/// The answer to a request. Both published clients choose how to read an answer by its content type, so a void one has none.
pub(super) enum Answer {
    Json(String),
    Text(String),
    /// 200 without a body.
    Void,
    /// 204.
    Nothing,
}

impl Answer {
    /// Returns a JSON answer.
    pub(super) fn json<T: Serialize>(value: &T) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => Self::Json(text),
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                Self::Nothing
            }
        }
    }

    pub(super) fn into_response(self) -> Response {
        let (status, kind, body) = match self {
            Self::Json(text) => (StatusCode::OK, Some("application/json"), text),
            Self::Text(text) => (StatusCode::OK, Some("text/plain;charset=UTF-8"), text),
            Self::Void => (StatusCode::OK, None, String::new()),
            Self::Nothing => (StatusCode::NO_CONTENT, None, String::new()),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        if let Some(kind) = kind {
            let kind = http::HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        response
    }
}

impl Refusal {
    /// Renders the refusal in the envelope of this plane. Clients read the status from the body too.
    pub(super) fn into_answer(self, instance: &str) -> Response {
        let mut body = Map::new();
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("message".to_owned(), json!(self.message));
        body.insert("reason".to_owned(), json!(self.reason.as_str()));
        if !self.extra.contains_key("validationErrors") {
            body.insert("instance".to_owned(), json!(instance));
        }
        let retryable = self.extra.get("retryable") == Some(&json!(true));
        body.insert("retryable".to_owned(), json!(retryable));
        for name in ["validationErrors", "error", "error_id"] {
            if let Some(value) = self.extra.get(name) {
                body.insert(name.to_owned(), value.clone());
            }
        }
        let mut response = Answer::Json(Value::Object(body).to_string()).into_response();
        *response.status_mut() = self.status;
        response
    }
}
