//! Registrations of workers: register, heartbeat, deregister.

use http::StatusCode;
use longhaul_host::{Error, WorkerRow};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{TaskQueue, WorkerId};
use serde_json::{Value, json};

use super::{Call, NAME_MAX, Reply};
use crate::error;
use crate::gate::Refusal;

/// Longest SDK version.
const VERSION_MAX: usize = 64;

/// Capacities of a worker that does not send them.
const CONCURRENCY_DEFAULT: u64 = 100;
const SESSIONS_DEFAULT: u64 = 10;

pub(super) async fn register(call: Call) -> Result<Reply, Refusal> {
    let registration = read_registration(&call)?;
    let view = call.host().workers().register(registration).await?;
    let (config, row) = (call.host().config(), &view.row);
    let body = json!({
        "worker_id": row.worker_id,
        "registered": true,
        "namespace": row.namespace,
        "task_queue": row.task_queue,
        "runtime": row.runtime,
        "sdk_version": row.sdk_version,
        "build_id": row.build_id,
        "status": view.status(),
        "capabilities": row.capabilities,
        "capability_manifest": row.capability_manifest,
        "heartbeat_interval_seconds": config.worker_heartbeat_seconds,
        "stale_after_seconds": config.worker_stale_seconds,
    });
    Ok(Reply::new(StatusCode::CREATED, &body))
}

fn read_registration(call: &Call) -> Result<WorkerRow, Refusal> {
    let body = &call.body;
    let task_queue = match (body.raw("task_queue"), body.texts("task_queues")) {
        (None, Some(queues)) if queues.len() == 1 => queues.into_iter().next().unwrap_or_default(),
        (None, Some(_)) => {
            body.refuse("task_queues", "must name exactly one queue");
            String::new()
        }
        _ => body.required_text("task_queue", NAME_MAX),
    };
    let worker_id = body.text("worker_id", NAME_MAX).map(WorkerId::from);
    let now = call.host().now();
    let registration = WorkerRow {
        namespace: call.namespace.clone(),
        worker_id: worker_id.unwrap_or_else(|| call.host().workers().mint_id()),
        task_queue: TaskQueue::from(task_queue),
        runtime: body.required_text("runtime", NAME_MAX),
        sdk_version: body.text("sdk_version", VERSION_MAX),
        build_id: body.text("build_id", NAME_MAX),
        supported_workflow_types: body.texts("supported_workflow_types").unwrap_or_default(),
        supported_activity_types: body.texts("supported_activity_types").unwrap_or_default(),
        workflow_definition_fingerprints: body
            .object("workflow_definition_fingerprints")
            .unwrap_or_default(),
        workflow_command_contracts: body
            .object("workflow_command_contracts")
            .unwrap_or_default(),
        capabilities: body.texts("capabilities").unwrap_or_default(),
        capability_manifest: body.object("capability_manifest").unwrap_or_default(),
        max_concurrent_workflow_tasks: body
            .count("max_concurrent_workflow_tasks", 1)
            .unwrap_or(CONCURRENCY_DEFAULT),
        max_concurrent_activity_tasks: body
            .count("max_concurrent_activity_tasks", 1)
            .unwrap_or(CONCURRENCY_DEFAULT),
        max_concurrent_worker_sessions: body
            .count("max_concurrent_worker_sessions", 1)
            .unwrap_or(SESSIONS_DEFAULT),
        task_slots: body.object("task_slots").map(Value::Object),
        process_metrics: body.object("process_metrics").map(Value::Object),
        registered_at: now,
        last_heartbeat_at: now,
        updated_at: now,
    };
    body.count("heartbeat_interval_seconds", 1);
    body.check()?;
    Ok(registration)
}

pub(super) async fn heartbeat(call: Call) -> Result<Reply, Refusal> {
    let worker_id = WorkerId::from(call.body.required_text("worker_id", NAME_MAX));
    let task_slots = call.body.object("task_slots").map(Value::Object);
    let process_metrics = call.body.object("process_metrics").map(Value::Object);
    call.body.check()?;
    let view = call
        .host()
        .workers()
        .heartbeat(&call.namespace, &worker_id, task_slots, process_metrics)
        .await
        .map_err(|error| unknown_worker(&error, Reason::WorkerNotRegistered))?;
    let config = call.host().config();
    Ok(Reply::ok(&json!({
        "worker_id": view.row.worker_id,
        "acknowledged": true,
        "heartbeat_interval_seconds": config.worker_heartbeat_seconds,
        "stale_after_seconds": config.worker_stale_seconds,
        "status": view.status(),
    })))
}

pub(super) async fn deregister(call: Call) -> Result<Reply, Refusal> {
    let worker_id = WorkerId::from(call.segment("worker_id"));
    let recovered = call
        .host()
        .workers()
        .deregister(&call.namespace, &worker_id)
        .await
        .map_err(|error| unknown_worker(&error, Reason::WorkerNotFound))?;
    Ok(Reply::ok(&json!({
        "worker_id": worker_id,
        "outcome": "deregistered",
        "recovered_workflow_task_count": recovered,
    })))
}

/// Renders an unknown worker as a 404; on a poll it is a 412.
fn unknown_worker(error: &Error, reason: Reason) -> Refusal {
    let mut refusal = error::refusal(error);
    if matches!(error, Error::WorkerNotRegistered(_)) {
        refusal.status = StatusCode::NOT_FOUND;
        refusal.reason = reason;
    }
    refusal
}
