//! The probes: liveness, health and readiness. They need no credential, because load balancers and supervisors call them.
//!
//! A supervisor restarts a server whose liveness fails. So liveness must not read the store: an outage of the database would restart
//! all servers, and none of them would help.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use longhaul_host::{ClockSkew, DEFAULT_NAMESPACE, SkewLevel};
use serde_json::{Value, json};

use crate::App;

/// Liveness of the process alone: 200 as long as it answers requests.
pub(crate) async fn live() -> Response {
    axum::Json(json!({"status": "alive"})).into_response()
}

/// Whether the store can be read.
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

/// Whether a balancer should send requests here.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    let namespaces = app.host().namespaces().list().await;
    let has_store = namespaces.is_ok();
    let has_default = namespaces.is_ok_and(|all| {
        all.iter()
            .any(|namespace| namespace.name.as_str() == DEFAULT_NAMESPACE)
    });
    let checked = app.host().check_writes().await;
    let writes = checked.is_ok();
    let skew = checked.ok().flatten();
    let has_time = skew.is_none_or(|skew| skew.level() != SkewLevel::TooFar);
    let works = has_store && has_default && writes && has_time;
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
            "clock": clock(skew),
            "cache": check(true),
            "auth": check(true),
            "workflow_v2": check(has_store),
            "storage_admission": {"status": "ok", "message": "not configured"},
        },
    });
    (status(works), axum::Json(body)).into_response()
}

/// Renders the distance between the clocks of this server and of the database.
fn clock(skew: Option<ClockSkew>) -> Value {
    let Some(skew) = skew else {
        return json!({"status": "ok"});
    };
    let ahead_ms = skew.ahead_ms();
    let apart =
        |status: &str| json!({"status": status, "reason": "clock_skew", "ahead_ms": ahead_ms});
    match skew.level() {
        SkewLevel::Fine => json!({"status": "ok", "ahead_ms": ahead_ms}),
        SkewLevel::Warning => apart("warning"),
        SkewLevel::TooFar => apart("failed"),
    }
}

fn status(works: bool) -> StatusCode {
    if works {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}
