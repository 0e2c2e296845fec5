//! The load of task queues and the server's caps on them. A limit that is not configured is null.

use longhaul_host::api::{TaskKind, TaskRow};
use longhaul_host::{FairnessView, Host, QueueAdmission, QueueView, WorkerView};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskQueue};
use serde_json::{Map, Value, json};

use super::envelope::Reply;
use super::workers::{read_name, write_name};
use super::{Call, workers};
use crate::gate::Refusal;

pub(super) mod build_ids;
pub(super) mod deployments;

/// Default and largest page size.
const PAGE_SIZE_MAX: usize = 1000;

/// Pollers shown for one queue; its statistics count all.
const POLLERS_SHOWN_MAX: usize = 200;

pub(super) async fn list(call: Call) -> Result<Reply, Refusal> {
    let after = call.parameters.page_token(read_name).map(TaskQueue::from);
    let limit = call.parameters.page_size(PAGE_SIZE_MAX, PAGE_SIZE_MAX);
    call.parameters.check()?;
    let (queues, has_more) = call
        .host()
        .task_queues()
        .list(&call.namespace, after.as_ref(), limit)
        .await?;
    let last = queues.last().filter(|_| has_more);
    let next = last.map(|queue| write_name(queue.name.as_str()));
    let rows: Vec<Value> = queues
        .iter()
        .map(|queue| {
            Value::Object(shown(
                call.host(),
                &call.namespace,
                queue,
                &Expired::default(),
            ))
        })
        .collect();
    Ok(Reply::ok(
        json!({"namespace": call.namespace, "task_queues": rows, "next_page_token": next}),
    ))
}

/// Shows one queue. An unknown queue is shown as an empty one.
pub(super) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let name = TaskQueue::from(call.segment("name"));
    Ok(Reply::ok(
        detail(call.host(), &call.namespace, &name).await?,
    ))
}

/// Renders one queue with its pollers and leases.
pub(super) async fn detail(
    host: &Host,
    namespace: &Namespace,
    name: &TaskQueue,
) -> Result<Value, Refusal> {
    let (queue, leases) = host.task_queues().describe(namespace, name).await?;
    let now = host.now();
    let mut body = shown(host, namespace, &queue, &Expired::among(&leases, now));
    let pollers: Vec<Value> = queue
        .workers
        .iter()
        .take(POLLERS_SHOWN_MAX)
        .map(|worker| {
            let mut poller = workers::shown(host, worker);
            poller.insert("is_stale".to_owned(), json!(worker.is_stale));
            Value::Object(poller)
        })
        .collect();
    body.insert("pollers".to_owned(), json!(pollers));
    body.insert(
        "current_leases".to_owned(),
        leases.iter().map(|lease| lease_shown(lease, now)).collect(),
    );
    Ok(Value::Object(body))
}

/// Leases that expired and were not released yet. A run releases its own within milliseconds, so the list, which does not read
/// leases, shows none.
#[derive(Default)]
struct Expired {
    workflow: u64,
    activity: u64,
}

impl Expired {
    fn among(leases: &[TaskRow], now: Timestamp) -> Self {
        let count = |kind| {
            leases
                .iter()
                .filter(|lease| lease.kind == kind && is_expired(lease, now))
                .count() as u64
        };
        Self {
            workflow: count(TaskKind::Workflow),
            activity: count(TaskKind::Activity),
        }
    }
}

fn is_expired(lease: &TaskRow, now: Timestamp) -> bool {
    lease.lease_expires_at.is_some_and(|at| at <= now)
}

/// The load of one kind of task on one queue.
struct Load {
    ready: u64,
    leased: u64,
    expired: u64,
    oldest_ready_at: Option<Timestamp>,
    added: u64,
    dispatched: u64,
}

impl Load {
    fn of(queue: &QueueView, kind: TaskKind, expired: u64) -> Self {
        let count = queue.counts.iter().find(|count| count.kind == kind);
        let rates = queue.rates.iter().find(|rates| rates.kind == kind);
        Self {
            added: rates.map_or(0, |rates| rates.added),
            dispatched: rates.map_or(0, |rates| rates.dispatched),
            ready: count.map_or(0, |count| count.ready),
            leased: count.map_or(0, |count| count.leased),
            expired,
            oldest_ready_at: count.and_then(|count| count.oldest_ready_at),
        }
    }

    /// Renders the counts. Those of the last minute are this server's own.
    fn stats(&self) -> Value {
        json!({
            "ready_count": self.ready,
            "leased_count": self.leased,
            "expired_lease_count": self.expired,
            "added_last_minute": self.added,
            "dispatched_last_minute": self.dispatched,
        })
    }
}

fn shown(
    host: &Host,
    namespace: &Namespace,
    queue: &QueueView,
    expired: &Expired,
) -> Map<String, Value> {
    let workflow = Load::of(queue, TaskKind::Workflow, expired.workflow);
    let activity = Load::of(queue, TaskKind::Activity, expired.activity);
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(queue.name));
    body.insert("namespace".to_owned(), json!(namespace));
    body.insert("stats".to_owned(), stats(host, queue, &workflow, &activity));
    body.insert(
        "repair".to_owned(),
        repair(workflow.expired + activity.expired),
    );
    body.insert(
        "admission".to_owned(),
        admission(host, namespace, queue, &workflow, &activity),
    );
    body
}

fn stats(host: &Host, queue: &QueueView, workflow: &Load, activity: &Load) -> Value {
    let oldest = [
        ("workflow", workflow.oldest_ready_at),
        ("activity", activity.oldest_ready_at),
    ]
    .into_iter()
    .filter_map(|(kind, at)| at.map(|at| (at, kind)))
    .min();
    let age_seconds = oldest.map(|(at, _)| at.micros_until(host.now()) / 1_000_000);
    let stale = queue
        .workers
        .iter()
        .filter(|worker| worker.is_stale)
        .count();
    json!({
        "approximate_backlog_count": workflow.ready + activity.ready,
        "approximate_backlog_age": age_seconds.map(|seconds| format!("{seconds}s")),
        "approximate_backlog_age_seconds": age_seconds,
        "oldest_ready_task": oldest.map(|(at, kind)| json!({"task_type": kind, "available_at": at})),
        "workflow_tasks": workflow.stats(),
        "activity_tasks": activity.stats(),
        "pollers": {
            "active_count": queue.workers.len() - stale,
            "stale_count": stale,
            "stale_after_seconds": host.config().worker_stale_seconds,
        },
        "tasks_added_last_minute": workflow.added + activity.added,
        "tasks_dispatched_last_minute": workflow.dispatched + activity.dispatched,
        "activity_attempts": activity_attempts(activity),
    })
}

/// Renders the open attempts. Only the runs know the finished ones, so those are not counted per queue.
fn activity_attempts(activity: &Load) -> Value {
    json!({
        "total_count": activity.leased,
        "running_count": activity.leased,
        "retrying_count": 0,
        "timed_out_count": 0,
        "expired_count": activity.expired,
        "failed_count": 0,
        "completed_count": 0,
        "cancelled_count": 0,
        "open_count": activity.leased,
        "terminal_count": 0,
    })
}

/// Renders the repair candidates. Runs repair themselves, so only leases that are not released yet are candidates.
fn repair(expired_leases: u64) -> Value {
    json!({
        "candidates": expired_leases,
        "dispatch_failed": 0,
        "expired_leases": expired_leases,
        "dispatch_overdue": 0,
        "oldest_candidate_at": null,
        "needs_attention": expired_leases > 0,
        "policy": repair_policy(),
    })
}

/// Returns the published repair policy.
pub(super) fn repair_policy() -> Value {
    json!({
        "redispatch_after_seconds": 3,
        "loop_throttle_seconds": 5,
        "scan_limit": 25,
        "scan_strategy": "scope_fair_round_robin",
        "failure_backoff_max_seconds": 60,
        "failure_backoff_strategy": "exponential_by_repair_count",
    })
}

fn admission(
    host: &Host,
    namespace: &Namespace,
    queue: &QueueView,
    workflow: &Load,
    activity: &Load,
) -> Value {
    let active: Vec<&WorkerView> = queue
        .workers
        .iter()
        .filter(|worker| !worker.is_stale && !worker.is_draining)
        .collect();
    // Workers may report any number, so the sum must not overflow.
    let total = |slots: fn(&WorkerView) -> u64| {
        active
            .iter()
            .map(|worker| slots(worker))
            .fold(0, u64::saturating_add)
    };
    let workflow_slots = total(|worker| worker.row.max_concurrent_workflow_tasks);
    let activity_slots = total(|worker| worker.row.max_concurrent_activity_tasks);
    json!({
        "workflow_tasks": task_admission("workflow", &Slots { active_workers: active.len(), count: workflow_slots }, workflow, &queue.workflow_tasks),
        "activity_tasks": task_admission("activity", &Slots { active_workers: active.len(), count: activity_slots }, activity, &queue.activity_tasks),
        "query_tasks": query_admission(host, namespace, queue),
    })
}

/// Queries wait in this server's memory, so no lock is needed to count them.
fn query_admission(host: &Host, namespace: &Namespace, queue: &QueueView) -> Value {
    let admission = host.queries().admission(namespace, &queue.name);
    let status = if admission.is_stopping {
        "unavailable"
    } else if admission.pending >= admission.pending_max {
        "full"
    } else {
        "accepting"
    };
    json!({
        "status": status,
        "budget_source": "server.query_tasks.max_pending_per_queue",
        "max_pending_per_queue": admission.pending_max,
        "approximate_pending_count": admission.pending,
        "remaining_pending_capacity": admission.pending_max.saturating_sub(admission.pending),
        "lock_required": false,
        "lock_supported": true,
    })
}

/// How many tasks the queue's workers can run at once.
struct Slots {
    active_workers: usize,
    count: u64,
}

fn task_admission(kind: &str, slots: &Slots, load: &Load, server: &QueueAdmission) -> Value {
    let QueueAdmission { caps, usage } = server;
    let withheld = caps.admit(usage).err();
    let status = if withheld.is_some() {
        "throttled"
    } else if slots.active_workers == 0 {
        "no_active_workers"
    } else if slots.count == 0 {
        "no_slots"
    } else if load.leased >= slots.count {
        "saturated"
    } else {
        "accepting"
    };
    // Usage is counted only for configured caps.
    let used = |cap: Option<u64>, used: u64| cap.map(|_| used);
    let left = |cap: Option<u64>, used: u64| cap.map(|cap| cap.saturating_sub(used));
    json!({
        "status": status,
        "budget_source": format!("worker_registration.max_concurrent_{kind}_tasks"),
        "server_budget_source": withheld.map(|cap| format!("server.{kind}_tasks.{}", cap.as_str())),
        "active_worker_count": slots.active_workers,
        "configured_slot_count": slots.count,
        "leased_count": load.leased,
        "ready_count": load.ready,
        "available_slot_count": slots.count.saturating_sub(load.leased),
        "server_max_active_leases_per_queue": caps.max_active_leases,
        "server_active_lease_count": load.leased,
        "server_remaining_active_lease_capacity": left(caps.max_active_leases, usage.queue_leases),
        "server_max_active_leases_per_namespace": caps.max_active_leases_per_namespace,
        "server_namespace_active_lease_count": used(caps.max_active_leases_per_namespace, usage.namespace_leases),
        "server_remaining_namespace_active_lease_capacity": left(caps.max_active_leases_per_namespace, usage.namespace_leases),
        "server_max_dispatches_per_minute": caps.max_dispatches_per_minute,
        "server_dispatch_count_this_minute": used(caps.max_dispatches_per_minute, usage.queue_dispatches),
        "server_remaining_dispatch_capacity": left(caps.max_dispatches_per_minute, usage.queue_dispatches),
        "server_max_dispatches_per_minute_per_namespace": caps.max_dispatches_per_minute_per_namespace,
        "server_namespace_dispatch_count_this_minute": used(caps.max_dispatches_per_minute_per_namespace, usage.namespace_dispatches),
        "server_remaining_namespace_dispatch_capacity": left(caps.max_dispatches_per_minute_per_namespace, usage.namespace_dispatches),
        "server_dispatch_budget_group": caps.dispatch_budget_group,
        "server_max_dispatches_per_minute_per_budget_group": caps.max_dispatches_per_minute_per_budget_group,
        "server_budget_group_dispatch_count_this_minute": used(caps.max_dispatches_per_minute_per_budget_group, usage.group_dispatches),
        "server_remaining_budget_group_dispatch_capacity": left(caps.max_dispatches_per_minute_per_budget_group, usage.group_dispatches),
        "server_lock_required": false,
        "server_lock_supported": true,
    })
}

/// Shows the order of ready tasks.
pub(super) async fn priority_fairness(call: Call) -> Result<Reply, Refusal> {
    let queue = TaskQueue::from(call.segment("name"));
    let view = |kind| {
        let view = call
            .host()
            .task_queues()
            .fairness(&call.namespace, &queue, kind);
        fairness_shown(&view)
    };
    Ok(Reply::ok(json!({
        "namespace": call.namespace,
        "queue": queue,
        "workflow_task": view(TaskKind::Workflow),
        "activity_task": view(TaskKind::Activity),
    })))
}

fn fairness_shown(view: &FairnessView) -> Value {
    let mut ready = 0;
    let mut tiers = Vec::new();
    for tier in &view.tiers {
        let count: usize = tier.classes.iter().map(|class| class.ready).sum();
        ready += count;
        let classes: Vec<Value> = tier
            .classes
            .iter()
            .map(|class| {
                json!({
                    "fairness_key": class.fairness_key,
                    "count": class.ready,
                    "fairness_weight": class.fairness_weight,
                })
            })
            .collect();
        tiers.push(json!({"priority": tier.priority, "count": count, "classes": classes}));
    }
    let recent: Vec<Value> = view
        .recent
        .iter()
        .map(|(key, score)| json!({"fairness_key": key, "score": score}))
        .collect();
    json!({"ready_tasks": ready, "priority_tiers": tiers, "recent_dispatch": recent})
}

fn lease_shown(lease: &TaskRow, now: Timestamp) -> Value {
    let mut shown = json!({
        "task_id": lease.task_id,
        "task_type": lease.kind.as_str(),
        "workflow_id": lease.workflow_id,
        "run_id": lease.run_id,
        "lease_owner": lease.lease_owner,
        "lease_expires_at": lease.lease_expires_at,
        "is_expired": is_expired(lease, now),
    });
    match lease.kind {
        TaskKind::Execution => shown["poll_count"] = json!(lease.attempt),
        TaskKind::Workflow => shown["workflow_task_attempt"] = json!(lease.attempt),
        TaskKind::Activity => {
            // Only the run knows the id of the attempt; people compare the number.
            shown["activity_attempt_id"] = Value::Null;
            shown["attempt_number"] = json!(lease.attempt);
        }
    }
    shown
}
