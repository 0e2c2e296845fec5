//! How worker sessions are shown: the stored row for session calls and operators, and the affinity of an activity in a session.

use longhaul_host::api::{Session, SessionRefusal, SessionStatus};
use longhaul_host::{SessionCounts, SessionRefused, SessionView};
use longhaul_protocol::id::{Namespace, TaskQueue};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use serde_json::{Map, Value, json};

use crate::gate::Refusal;

/// Renders the stored row with its holder.
pub(crate) fn snapshot(view: &SessionView) -> Value {
    let session = &view.session;
    let holder = match &view.holder {
        Some(holder) => json!({
            "worker_id": session.lease_owner,
            "task_queue": holder.task_queue,
            "status": holder.status,
            "last_heartbeat_at": holder.last_heartbeat_at,
            "is_stale": holder.is_stale,
        }),
        None => json!({
            "worker_id": session.lease_owner,
            "task_queue": null,
            "status": null,
            "last_heartbeat_at": null,
            "is_stale": true,
        }),
    };
    json!({
        "session_id": session.session_id,
        "namespace": session.namespace,
        "connection": session.connection,
        "queue": session.queue,
        "requirements": session.requirements,
        "status": session.status.as_str(),
        "lease_owner": session.lease_owner,
        "holder": holder,
        "lease_expires_at": session.lease_expires_at,
        "ttl_expires_at": session.ttl_expires_at,
        "closed_at": session.closed_at,
        "failure_reason": session.failure_reason.map(|why| why.as_str()),
        "lease_seconds": session.lease_seconds,
        "ttl_seconds": session.ttl_seconds,
        "max_concurrent_activities": session.max_concurrent_activities,
        "create_if_missing": session.create_if_missing,
        "allow_reacquire_after_failure": session.allow_reacquire_after_failure,
        "active_activity_count": view.active_activity_count,
        "last_heartbeat_at": session.last_heartbeat_at,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
    })
}

/// Renders the activity's options with all defaults and its queue, and the state of the session.
pub(crate) fn affinity(
    options: &WorkerSessionOptions,
    queue: &TaskQueue,
    namespace: &Namespace,
    session: Option<&Session>,
) -> Value {
    let mut shown = json!({
        "session_id": options.session_id,
        "queue": queue,
        "requirements": options.requirements,
        "lease_seconds": options.lease_seconds(),
        "ttl_seconds": options.ttl_seconds(),
        "max_concurrent_activities": options.max_concurrent_activities(),
        "create_if_missing": options.create_if_missing(),
        "allow_reacquire_after_failure": options.allow_reacquire_after_failure(),
        "namespace": namespace,
    });
    if let Some(connection) = &options.connection {
        shown["connection"] = json!(connection);
    }
    if let Some(session) = session {
        shown["status"] = json!(session.status.as_str());
        shown["lease_owner"] = json!(session.lease_owner);
        shown["lease_expires_at"] = json!(session.lease_expires_at);
        shown["ttl_expires_at"] = json!(session.ttl_expires_at);
    }
    shown
}

/// Renders the number of sessions of a namespace by status.
pub(crate) fn counts(counts: &SessionCounts) -> Value {
    let mut shown = Map::new();
    shown.insert("total".to_owned(), json!(counts.total()));
    for status in SessionStatus::ALL {
        shown.insert(status.as_str().to_owned(), json!(counts.of(status)));
    }
    Value::Object(shown)
}

/// Adds the fields that explain the reason.
pub(crate) fn with_details(refusal: Refusal, refused: &SessionRefused) -> Refusal {
    let refusal = match &refused.refusal {
        SessionRefusal::QueueMismatch {
            registered,
            requested,
        } => refusal
            .with("registered_task_queue", registered.as_str())
            .with("requested_session_queue", requested.as_str()),
        SessionRefusal::RequirementsNotMet { missing } => {
            refusal.with("missing_requirements", json!(missing))
        }
        SessionRefusal::WorkerLimit { max } => refusal.with("max_concurrent_worker_sessions", *max),
        SessionRefusal::ActivityLimit(session) => refusal.with(
            "max_concurrent_activities",
            session.max_concurrent_activities,
        ),
        SessionRefusal::Missing
        | SessionRefusal::OwnedByAnother(_)
        | SessionRefusal::Closed(_)
        | SessionRefusal::ReacquireDisallowed(_)
        | SessionRefusal::NotFound
        | SessionRefusal::NotActive(_)
        | SessionRefusal::OwnerMismatch(_) => refusal,
    };
    match &refused.view {
        Some(view) => refusal.with("session", snapshot(view)),
        None => refusal,
    }
}
