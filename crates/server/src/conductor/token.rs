//! `POST /api/token`: a token for the owner of a configured key.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use longhaul_protocol::Reason;
use serde_json::{Value, json};

use super::answer::Answer;
use super::call::bad_request;
use super::refused;
use crate::App;
use crate::gate::{Refusal, collect_body};

/// Bytes of a request for a token. It contains an id and a secret.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

pub(super) async fn issue(State(app): State<App>, request: Request<HttpBody>) -> Response {
    match issued(&app, request).await {
        Ok(answer) => answer.into_response(),
        Err(refusal) => refused(&app, refusal),
    }
}

async fn issued(app: &App, request: Request<HttpBody>) -> Result<Answer, Refusal> {
    if app.auth().is_open() {
        // Published clients then go on without a token.
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            Reason::NotFound,
            "This server needs no token.",
        ));
    }
    let (parts, body) = request.into_parts();
    let body = collect_body(&parts.headers, body, REQUEST_BYTES_MAX).await?;
    // The message of the parser could repeat the secret.
    let body: Value = serde_json::from_slice(&body)
        .map_err(|_| bad_request("The body must be JSON with keyId and keySecret.".to_owned()))?;
    let text = |name: &str| {
        body[name]
            .as_str()
            .ok_or_else(|| bad_request(format!("{name}: must be a text")))
    };
    let now = app.host().now();
    match app
        .auth()
        .issue_token(text("keyId")?, text("keySecret")?, now)
    {
        Some(token) => Ok(Answer::json(&json!({ "token": token }))),
        // Not INVALID_TOKEN: on that word the Python client requests a token again, without end, and the JavaScript client waits for
        // its own request.
        None => Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            Reason::Unauthorized,
            "There is no key with this id and this secret.",
        )
        .with("error", "INVALID_CREDENTIALS")),
    }
}
