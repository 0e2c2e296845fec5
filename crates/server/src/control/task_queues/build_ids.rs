//! Builds of a queue's workers: list, drain, resume, promote. The engine decides what a change does and what blocks it.

use longhaul_host::api::RolloutChange;
use std::collections::BTreeSet;

use http::StatusCode;
use longhaul_host::{Blocked, Cohort, WorkerView};
use longhaul_protocol::Reason;
use longhaul_protocol::id::TaskQueue;
use serde_json::{Map, Value, json};

use super::deployments;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;

/// Characters of a build id.
const BUILD_ID_MAX: usize = 255;

pub(in crate::control) async fn list(call: Call) -> Result<Reply, Refusal> {
    let queue = TaskQueue::from(call.segment("name"));
    let cohorts = call
        .host()
        .rollouts()
        .cohorts(&call.namespace, &queue)
        .await?;
    let rows: Vec<Value> = cohorts
        .iter()
        .map(|cohort| Value::Object(row(cohort)))
        .collect();
    Ok(Reply::ok(json!({
        "namespace": call.namespace,
        "task_queue": queue,
        "stale_after_seconds": call.host().config().worker_stale_seconds,
        "build_ids": rows,
    })))
}

pub(in crate::control) async fn drain(call: Call) -> Result<Reply, Refusal> {
    change(call, RolloutChange::Drain).await
}

pub(in crate::control) async fn resume(call: Call) -> Result<Reply, Refusal> {
    change(call, RolloutChange::Resume).await
}

pub(in crate::control) async fn promote(call: Call) -> Result<Reply, Refusal> {
    change(call, RolloutChange::Promote).await
}

async fn change(call: Call, change: RolloutChange) -> Result<Reply, Refusal> {
    let queue = TaskQueue::from(call.segment("name"));
    // Null selects the cohort without a build id, so an absent key is refused.
    if !call.body.has("build_id") {
        call.body.refuse(
            "build_id",
            "is required; null means workers without a build id",
        );
    }
    let build_id = call.body.characters("build_id", BUILD_ID_MAX);
    call.body.check()?;
    let changed = call
        .host()
        .rollouts()
        .change(&call.namespace, &queue, build_id, change)
        .await?;
    let cohort = changed.map_err(|blocked| refused(&blocked))?;
    let mut body = said(&cohort);
    body.insert("namespace".to_owned(), json!(call.namespace));
    body.insert("task_queue".to_owned(), json!(queue));
    if change == RolloutChange::Promote {
        body.insert("deployment".to_owned(), deployments::shown(&cohort));
    }
    Ok(Reply::ok(Value::Object(body)))
}

/// Renders the operator's decisions about a cohort, and whether new runs use it.
fn said(cohort: &Cohort) -> Map<String, Value> {
    let rollout = &cohort.rollout;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("build_id", json!(rollout.build_id));
    set("drain_intent", json!(rollout.drain_intent()));
    set("drained_at", json!(rollout.drained_at));
    set("promoted_at", json!(rollout.promoted_at));
    set("rolled_back_at", json!(rollout.rolled_back_at));
    set("new_start_selected", json!(cohort.is_selected));
    body
}

fn row(cohort: &Cohort) -> Map<String, Value> {
    let workers = &cohort.workers;
    let count = |status: &str| {
        workers
            .iter()
            .filter(|worker| worker.status() == status)
            .count()
    };
    let (active, draining, stale) = (count("active"), count("draining"), count("stale"));
    let rollout_status = match (active, draining, stale) {
        (0, 0, 0) => "no_workers",
        (0, 0, _) => "stale_only",
        (0, _, _) => "draining",
        (_, 0, _) => "active",
        (_, _, _) => "active_with_draining",
    };
    let fingerprints: BTreeSet<String> = workers
        .iter()
        .flat_map(|worker| &worker.row.workflow_definition_fingerprints)
        .map(|(workflow_type, fingerprint)| format!("{workflow_type} {fingerprint}"))
        .collect();
    let conflicts: Vec<Value> = cohort
        .fingerprint_conflicts
        .iter()
        .map(|(workflow_type, count)| {
            json!({"workflow_type": workflow_type, "fingerprint_count": count})
        })
        .collect();
    let mut body = said(cohort);
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("rollout_status", json!(rollout_status));
    set("active_worker_count", json!(active));
    set("draining_worker_count", json!(draining));
    set("stale_worker_count", json!(stale));
    set("total_worker_count", json!(workers.len()));
    set(
        "runtimes",
        distinct(workers, |worker| Some(&worker.row.runtime)),
    );
    set(
        "sdk_versions",
        distinct(workers, |worker| worker.row.sdk_version.as_ref()),
    );
    set(
        "workflow_definition_fingerprint_count",
        json!(fingerprints.len()),
    );
    set(
        "workflow_definition_fingerprint_conflicts",
        json!(conflicts),
    );
    let heard = workers.iter().map(|worker| worker.row.last_heartbeat_at);
    set("last_heartbeat_at", json!(heard.max()));
    let seen = workers.iter().map(|worker| worker.row.registered_at);
    set("first_seen_at", json!(seen.min()));
    body
}

fn distinct(workers: &[WorkerView], of: impl Fn(&WorkerView) -> Option<&String>) -> Value {
    let values: BTreeSet<&String> = workers.iter().filter_map(of).collect();
    json!(values)
}

/// Renders a change that is blocked. The first blockage is the reason.
pub(in crate::control) fn refused(blocked: &Blocked) -> Refusal {
    let rollout = &blocked.cohort.rollout;
    let blockages: Vec<Value> = blocked
        .blockages
        .iter()
        .map(|blockage| {
            json!({
                "reason": blockage.reason.as_str(),
                "message": blockage.message,
                "scope": "deployment",
                "expected_resolution": blockage.expected_resolution,
            })
        })
        .collect();
    let first = blocked.blockages.first();
    let reason = first.map_or(Reason::InternalError, |blockage| blockage.reason);
    let message = first.map_or("The change is not possible.", |blockage| &blockage.message);
    let outcome = format!("rejected_{}", reason.as_str());
    Refusal::new(StatusCode::CONFLICT, reason, message)
        .with("error", reason.as_str())
        .with("rejection_reason", reason.as_str())
        .with(
            "expected_resolution",
            first.map(|blockage| blockage.expected_resolution),
        )
        .with("outcome", outcome.as_str())
        .with("control_plane_outcome", outcome)
        .with("command_status", "rejected")
        .with("command_source", "control_plane")
        .with("namespace", rollout.namespace.as_str())
        .with("task_queue", rollout.task_queue.as_str())
        .with("build_id", json!(rollout.build_id))
        .with("deployment", deployments::shown(&blocked.cohort))
        .with("blockages", blockages)
}
