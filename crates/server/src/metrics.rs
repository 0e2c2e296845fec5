//! `/metrics` for Prometheus. On a server with credentials it needs an operator's or administrator's token.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::{App, control};

/// The media type that Prometheus requests.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn render(State(app): State<App>, headers: HeaderMap) -> Response {
    if let Err(refused) = control::admit_operator(&app, &headers) {
        return *refused;
    }
    let mut registry = Registry::default();
    app.host().metrics().register(&mut registry);
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
