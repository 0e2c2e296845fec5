//! What all polls share: the request, and the replies to it.

use std::time::Duration;

use longhaul_host::{Error, Poll, Polled, Throttle};
use longhaul_protocol::Timestamp;
use longhaul_protocol::describe::clamp_poll_timeout_seconds;
use longhaul_protocol::id::{TaskQueue, WorkerId};
use serde_json::{Value, json};

use super::{Call, NAME_MAX, Reply};
use crate::App;
use crate::error;
use crate::gate::Refusal;
use crate::request::body::Body;

/// Clients ignore longer hints.
const RETRY_AFTER_SECONDS_MAX: u64 = 60;

pub(super) fn read_poll(call: &Call) -> Poll {
    let body = &call.body;
    let queues = if body.raw("task_queue").is_none() {
        body.texts("task_queues")
    } else {
        None
    };
    let task_queue = match queues {
        Some(queues) if queues.len() == 1 => queues.into_iter().next().unwrap_or_default(),
        _ => body.required_text("task_queue", NAME_MAX),
    };
    let timeout = poll_seconds(body, "timeout_seconds")
        .or_else(|| poll_seconds(body, "poll_timeout_seconds"));
    Poll {
        namespace: call.namespace.clone(),
        worker_id: WorkerId::from(body.required_text("worker_id", NAME_MAX)),
        task_queue: TaskQueue::from(task_queue),
        build_id: body.text("build_id", NAME_MAX),
        poll_request_id: body.text("poll_request_id", NAME_MAX),
        timeout: Duration::from_secs(clamp_poll_timeout_seconds(timeout)),
    }
}

/// Reads a number of seconds. Every whole number is clamped and none is refused, also one that does not fit into an `i64`.
fn poll_seconds(body: &Body, field: &str) -> Option<i64> {
    match body.value(field)?.as_u64() {
        Some(seconds) => Some(i64::try_from(seconds).unwrap_or(i64::MAX)),
        None => body.integer(field),
    }
}

/// A leased task as JSON text, and its lease.
pub(super) struct Leased {
    pub(super) task: String,
    pub(super) leased_at: Timestamp,
    pub(super) lease_expires_at: Timestamp,
}

/// Replies to a poll; `render` renders a leased task.
pub(super) async fn reply<T, F: Future<Output = Leased>>(
    app: &App,
    polled: Result<Polled<T>, Error>,
    poll: &Poll,
    kind: &'static str,
    render: impl FnOnce(T) -> F,
) -> Result<Reply, Refusal> {
    match polled {
        Ok(Polled::Leased(task)) => Ok(leased(render(task).await, app.host().now())),
        Ok(Polled::Empty) => Ok(empty(app.host().now())),
        Ok(Polled::Throttled(throttle)) => Ok(throttled(&throttle, app.host().now())),
        Err(error) => Err(refused(&error, poll, kind)),
    }
}

/// No task was ready before the timeout.
fn empty(now: Timestamp) -> Reply {
    Reply::ok(
        &json!({"task": null, "poll_status": "empty", "reason": null, "lease": null, "server_time": now}),
    )
}

/// A task is ready, but a cap withholds it. The poll was held until its timeout, so a client that polls again at once does not
/// spin.
fn throttled(throttle: &Throttle, now: Timestamp) -> Reply {
    let wait = throttle.room_at.map_or(0, |at| now.micros_until(at));
    Reply::ok(&json!({
        "task": null,
        "poll_status": "throttled",
        "reason": "throttled",
        "lease": null,
        "server_time": now,
        "admission_limit": throttle.cap.as_str(),
        "retryable": true,
        "retry_after_seconds": wait.div_ceil(1_000_000).clamp(1, RETRY_AFTER_SECONDS_MAX),
    }))
}

/// A leased task. Its JSON is appended as text, because it may contain a long history.
fn leased(leased: Leased, now: Timestamp) -> Reply {
    let Leased {
        task,
        leased_at,
        lease_expires_at,
    } = leased;
    Reply::text(format!(
        r#"{{"poll_status":"leased","reason":null,"lease":{{"leased_at":"{leased_at}","lease_expires_at":"{lease_expires_at}"}},"server_time":"{now}","task":{task}}}"#
    ))
}

/// Renders a refused poll. One client fails at once if a field of a retryable refusal is missing.
fn refused(error: &Error, poll: &Poll, kind: &'static str) -> Refusal {
    let mut refusal = error::refusal(error).with("task", Value::Null);
    match error {
        Error::TooManyPolls | Error::Contended => {
            refusal = refusal
                .with("poll_status", error.reason().as_str())
                .with("task_kind", kind)
                .with("task_queue", poll.task_queue.as_str())
                .with("namespace", poll.namespace.as_str());
        }
        Error::Unavailable => {
            refusal = refusal
                .with("poll_status", error.reason().as_str())
                .with("operation", format!("poll_{kind}"))
                .with("outcome", "unknown")
                .with("worker_id", poll.worker_id.as_str())
                .with("task_queue", poll.task_queue.as_str())
                .with("poll_request_id", json!(poll.poll_request_id))
                .with("retry_same_poll_request_id", true);
        }
        Error::Stopping => {
            refusal = refusal.with("poll_status", "unavailable");
        }
        // There is no `retry_after_seconds`: one client stops, the other backs off by itself.
        Error::WorkerDraining(worker_id) => {
            refusal = refusal
                .with("poll_status", "draining")
                .with("worker_id", worker_id.as_str())
                .with("worker_status", "draining")
                .with("drain_intent", "draining")
                .with("task_queue", poll.task_queue.as_str());
        }
        Error::Rejected(_)
        | Error::CapReached(_)
        | Error::TaskQueueDraining(_)
        | Error::CompatibilityBlocked { .. }
        | Error::RequestRateExhausted { .. }
        | Error::RequestConcurrencyExhausted { .. }
        | Error::InstanceNotFound(_)
        | Error::RunNotFound(..)
        | Error::NamespaceNotFound(_)
        | Error::NamespaceExists(_)
        | Error::WorkerNotRegistered(_)
        | Error::DefinitionChanged(..)
        | Error::TaskQueueMismatch { .. }
        | Error::BuildIdMismatch { .. }
        | Error::AttributeNameReserved(_)
        | Error::AttributeExists(..)
        | Error::TooManyAttributes { .. }
        | Error::SystemAttribute(_)
        | Error::AttributeNotFound(_)
        | Error::Query(_)
        | Error::Conductor(_)
        | Error::Validation(_)
        | Error::Question { .. }
        | Error::Session(_)
        | Error::SessionNotFound(_)
        | Error::Damaged
        | Error::Internal => {}
    }
    refusal
}
