//! Liveness and readiness, without credentials: load balancers call these routes.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use longhaul_host::DEFAULT_NAMESPACE;
use serde_json::json;

use crate::App;

/// Liveness.
pub(crate) async fn health(State(app): State<App>) -> Response {
    // The list of namespaces is short and is read from the store, not from memory, so only a working store can return it.
    let works = app.host().namespaces().list().await.is_ok();
    let body = json!({
        "status": if works { "serving" } else { "degraded" },
        "timestamp": app.host().now(),
        "checks": {"database": if works { "ok" } else { "unavailable" }},
        // Conductor clients read these.
        "healthy": works,
        "healthResults": [],
        "suppressedHealthResults": [],
    });
    (status(works), axum::Json(body)).into_response()
}

/// Readiness.
pub(in crate::control) async fn ready(State(app): State<App>) -> Response {
    let namespaces = app.host().namespaces().list().await;
    let has_store = namespaces.is_ok();
    let has_default = namespaces.is_ok_and(|all| {
        all.iter()
            .any(|namespace| namespace.name.as_str() == DEFAULT_NAMESPACE)
    });
    let writes = app.host().check_writes().await.is_ok();
    let works = has_store && has_default && writes;
    let check = |works: bool| json!({"status": if works { "ok" } else { "failed" }});
    let body = json!({
        "status": if works { "ready" } else { "not_ready" },
        "timestamp": app.host().now(),
        "checks": {
            "database": check(has_store),
            // The store is opened and its schema updated before the first request is accepted.
            "migrations": check(has_store),
            "default_namespace": check(has_default),
            // False while the disk is full.
            "writer": check(writes),
            "cache": check(true),
            "auth": check(true),
            "workflow_v2": check(has_store),
            "storage_admission": {"status": "ok", "message": "not configured"},
        },
    });
    (status(works), axum::Json(body)).into_response()
}

fn status(works: bool) -> StatusCode {
    if works {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}
