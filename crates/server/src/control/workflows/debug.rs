//! `GET /api/workflows/{w}/debug` and `…/runs/{r}/debug`: why a run waits, in one response.

use longhaul_host::DebugView;
use longhaul_host::StoredEvent;
use longhaul_host::api::{
    Activity, LocalActivity, OpenWait, Part, Program, Run, WorkflowTask, waits,
};
use longhaul_protocol::Timestamp;
use serde_json::{Map, Value, json};

use super::compatibility::show_compatibility;
use super::describe::identity;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::control::task_queues;
use crate::control::workflows::local_activity_options::local_options;
use crate::gate::Refusal;

/// Rows of each list.
const PENDING_MAX: usize = 25;
const FAILURES_MAX: usize = 10;

/// Newest tasks of a definition run among which failed ones are looked for.
const TASKS_SEARCHED: u64 = 1000;

/// Bytes shown of the newest event's payload.
const PREVIEW_MAX: usize = 4096;

/// Events that end an activity.
const ACTIVITY_CLOSES: [(&str, &str); 4] = [
    ("ActivityCompleted", "completed"),
    ("ActivityFailed", "failed"),
    ("ActivityTimedOut", "timed_out"),
    ("ActivityCancelled", "cancelled"),
];

/// Events that record a failure.
const FAILURES: [&str; 6] = [
    "ActivityFailed",
    "ActivityTimedOut",
    "ActivityRetryScheduled",
    "ChildRunFailed",
    "WorkflowFailed",
    "WorkflowTimedOut",
];

pub(in crate::control) async fn debug(call: Call) -> Result<Reply, Refusal> {
    let with_preview = call.parameters.flag("include_last_event_payload");
    call.parameters.check()?;
    let view = call
        .host()
        .workflows()
        .debug(&call.namespace, &call.workflow_id(), call.run_id().as_ref())
        .await?;
    let now = call.host().now();
    let run = &view.description.run;
    let pin = run.spec.routing.compatibility.as_deref();
    let workers = call.host().workers().pinned(&call.namespace, [pin]).await?;
    let mut compatibility = Map::new();
    show_compatibility(&mut compatibility, &workers, pin, &run.spec.task_queue);
    let queue = match run.spec.program {
        Program::Code => {
            let queue = &run.spec.task_queue;
            Some(task_queues::detail(call.host(), &call.namespace, queue).await?)
        }
        // Each of its tasks has a queue of its own.
        Program::Definition => None,
    };
    let findings: Vec<Value> = view
        .findings
        .iter()
        .map(|finding| {
            json!({"severity": finding.severity, "code": finding.code, "message": finding.message})
        })
        .collect();
    let body = json!({
        "generated_at": now,
        "workflow_id": run.spec.workflow_id,
        "run_id": run.spec.run_id,
        "namespace": run.spec.namespace,
        "diagnostic_status": view.diagnostic_status,
        "execution": execution(&view, with_preview),
        "pending_workflow_tasks": pending_workflow_tasks(run, now),
        "pending_activities": pending_activities(&view, now),
        "pending_tasks": pending_tasks(run),
        "recent_activities": recent_activities(&view.recent),
        "task_queue": queue,
        "recent_failures": recent_failures(&view),
        "compatibility": pin.map(|_| compatibility),
        "findings": findings,
    });
    Ok(Reply::ok(body))
}

/// Renders the run's state, its newest event and the next event that time causes.
fn execution(view: &DebugView, with_preview: bool) -> Value {
    let mut shown = identity(&view.description);
    for known in [
        "memo",
        "search_attributes",
        "workflow_id",
        "run_id",
        "namespace",
    ] {
        shown.remove(known);
    }
    let last = view.recent.last().map(|event| {
        let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
        let keys: Vec<&String> = payload
            .as_object()
            .map(Map::keys)
            .into_iter()
            .flatten()
            .collect();
        let mut last = json!({
            "sequence": event.sequence,
            "event_type": event.event_type,
            "recorded_at": event.recorded_at,
            "payload_summary": {"keys": keys, "bytes": event.payload.len()},
        });
        if with_preview {
            last["payload_preview"] = json!(beginning(&event.payload));
        }
        last
    });
    shown.insert("last_event".to_owned(), json!(last));
    let next = view.next_event.as_ref();
    shown.insert(
        "next_scheduled_event".to_owned(),
        json!(next.map(|next| json!({"kind": next.kind, "at": next.at, "id": next.id}))),
    );
    Value::Object(shown)
}

/// Returns the part of a text that is shown, cut between characters.
fn beginning(text: &str) -> &str {
    let end = (0..=text.len().min(PREVIEW_MAX))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn pending_workflow_tasks(run: &Run, now: Timestamp) -> Vec<Value> {
    let shown = |task: &WorkflowTask| {
        let lease = task.lease.as_ref();
        let report = task.last_reply.as_ref();
        let diagnosis = report.and_then(|report| report.diagnosis.as_ref());
        json!({
            "task_id": task.id,
            "task_type": "workflow",
            "status": match lease {
                Some(_) => "leased",
                None if task.available_at > now => "scheduled",
                None => "ready",
            },
            "workflow_task_attempt": task.attempt,
            "available_at": task.available_at,
            "lease_owner": lease.map(|lease| &lease.owner),
            "leased_at": lease.map(|lease| lease.leased_at),
            "lease_expires_at": lease.map(|lease| lease.expires_at),
            "is_lease_expired": lease.is_some_and(|lease| lease.expires_at <= now),
            "workflow_wait_kind": task.resume.workflow_wait_kind,
            "consecutive_failures": task.failures,
            "replay_blocked": task.replay_blocked,
            "last_error": task.last_error,
            "last_error_type": diagnosis.and_then(|said| said.failure_type.as_deref()),
            "last_error_at": diagnosis.map(|said| said.at),
            "stack_trace": diagnosis.and_then(|said| said.stack_trace.as_deref()),
        })
    };
    let ordinary = run.core.workflow_task.as_deref().into_iter().map(shown);
    ordinary.chain(retry_tasks(run, now)).collect()
}

/// Tasks that wait for the next attempt of a local activity.
fn retry_tasks(run: &Run, now: Timestamp) -> impl Iterator<Item = Value> {
    locals(run).filter_map(move |local| {
        let task = local.retry_task.as_ref()?;
        Some(json!({
            "task_id": task.id,
            "task_type": "workflow",
            "status": if task.available_at > now { "scheduled" } else { "ready" },
            "workflow_task_attempt": 0,
            "available_at": task.available_at,
            "workflow_wait_kind": "local_activity",
            "open_wait_id": format!("local-activity:{}", local.execution_id),
            "activity_execution_id": local.execution_id,
        }))
    })
}

fn locals(run: &Run) -> impl Iterator<Item = &LocalActivity> {
    run.parts.values().filter_map(|part| match part {
        Part::LocalActivity(local) => Some(local.as_ref()),
        _ => None,
    })
}

fn pending_activities(view: &DebugView, now: Timestamp) -> Vec<Value> {
    let run = &view.description.run;
    let activities = run.parts.values().filter_map(|part| match part {
        Part::Activity(activity) => Some(activity.as_ref()),
        _ => None,
    });
    let queued = activities.map(|activity| {
        let blocked = view.session_blocked.get(&activity.sequence);
        let mut shown = pending_activity(activity, now);
        shown["session_blocked_reason"] = json!(blocked.map(|why| why.reason().as_str()));
        shown
    });
    let local = locals(run).map(|local| pending_local(local, now));
    queued.chain(local).take(PENDING_MAX).collect()
}

fn pending_local(local: &LocalActivity, now: Timestamp) -> Value {
    let attempt = local.attempt.as_ref();
    let retry = local.retry_task.as_ref();
    let policy = local.retry.as_ref().map(|retry| json!(retry));
    json!({
        "activity_execution_id": local.execution_id,
        "activity_type": local.activity_type,
        "sequence": local.sequence,
        "task_id": attempt.map(|attempt| &attempt.task_id).or_else(|| retry.map(|task| &task.id)),
        "task_queue": null,
        "status": if attempt.is_some() { "running" } else { "pending" },
        "attempt_number": local.attempt_count,
        "activity_attempt_id": attempt.map(|attempt| &attempt.id),
        "lease_owner": attempt.map(|attempt| &attempt.owner),
        "lease_expires_at": attempt.map(|attempt| attempt.lease_expires_at),
        "is_lease_expired": attempt.is_some_and(|attempt| attempt.lease_expires_at <= now),
        "scheduled_at": local.scheduled_at,
        "available_at": retry.map(|task| task.available_at),
        "started_at": attempt.map(|attempt| attempt.started_at),
        "last_heartbeat_at": attempt.and_then(|attempt| attempt.last_heartbeat_at),
        "progress": attempt.and_then(|attempt| attempt.progress.as_ref()),
        "schedule_to_start_deadline_at": null,
        "schedule_to_close_deadline_at": local.schedule_to_close_deadline_at,
        "start_to_close_deadline_at": attempt.and_then(|attempt| attempt.close_deadline_at),
        "heartbeat_deadline_at": attempt.and_then(|attempt| attempt.heartbeat_deadline_at),
        "activity_options": local_options(policy.as_ref()),
        "execution_mode": "local",
        "local_activity": true,
        "open_wait_id": retry.map(|_| format!("local-activity:{}", local.execution_id)),
        "session_blocked_reason": null,
    })
}

fn pending_activity(activity: &Activity, now: Timestamp) -> Value {
    let attempt = activity.attempt.as_ref();
    let lease_expires_at = attempt.and_then(|attempt| attempt.lease_expires_at);
    let status = match (lease_expires_at, activity.available_at > now) {
        (Some(_), _) => "running",
        (None, true) => "scheduled",
        (None, false) => "ready",
    };
    json!({
        "activity_execution_id": activity.execution_id,
        "activity_type": activity.activity_type,
        "sequence": activity.sequence,
        "task_id": activity.task_id,
        "task_queue": activity.queue,
        "status": status,
        "attempt_number": activity.attempt_count,
        "activity_attempt_id": attempt.map(|attempt| &attempt.id),
        "lease_owner": attempt.map(|attempt| &attempt.owner),
        "lease_expires_at": lease_expires_at,
        "is_lease_expired": attempt.is_some() && lease_expires_at.is_none_or(|at| at <= now),
        "scheduled_at": activity.scheduled_at,
        "available_at": activity.available_at,
        "started_at": attempt.map(|attempt| attempt.started_at),
        "last_heartbeat_at": attempt.and_then(|attempt| attempt.last_heartbeat_at),
        "progress": attempt.and_then(|attempt| attempt.progress.as_ref()),
        "schedule_to_start_deadline_at": activity.schedule_deadline_at,
        "schedule_to_close_deadline_at": activity.schedule_to_close_deadline_at,
        "start_to_close_deadline_at": attempt.and_then(|attempt| attempt.close_deadline_at),
        "heartbeat_deadline_at": attempt.and_then(|attempt| attempt.heartbeat_deadline_at),
        "activity_options": {
            "queue": activity.queue,
            "cancellation_policy": activity.cancellation_policy,
            "retry_policy": activity.retry,
            "worker_session": activity.worker_session,
        },
        "execution_mode": null,
        "local_activity": false,
    })
}

/// Renders the open tasks of a definition run, oldest first.
fn pending_tasks(run: &Run) -> Vec<Value> {
    let shown = waits(run).filter_map(|wait| match wait {
        OpenWait::Task(task) => Some(json!({
            "task_id": task.id,
            "reference_task_name": task.reference,
            "task_type": task.task_type,
            "domain": task.domain,
            "status": task.status,
            "retry_count": task.retry_count,
            "poll_count": task.poll_count,
            "worker_id": task.worker_id,
            "scheduled_at": task.scheduled_at,
            "started_at": task.started_at,
            "sub_workflow_id": task.sub_workflow_id,
            "waits_for": wait.describe(run),
        })),
        _ => None,
    });
    shown.take(PENDING_MAX).collect()
}

/// Renders the tasks of a definition run that failed last, newest first.
fn failed_tasks(run: &Run) -> impl Iterator<Item = Value> {
    let failed = |number: &u64| {
        run.task(*number)
            .filter(|task| !task.is_open() && !task.status.is_successful())
    };
    let numbers = run.core.execution.iter().flat_map(|execution| {
        let oldest = execution.last_seq.saturating_sub(TASKS_SEARCHED);
        (oldest..=execution.last_seq).rev()
    });
    numbers.filter_map(move |number| {
        let task = failed(&number)?;
        Some(json!({
            "source_kind": "task",
            "source_id": task.id,
            "event_sequence": null,
            "event_type": "ExecutionTaskEnded",
            "reference_task_name": task.reference,
            "attempt_number": task.retry_count + 1,
            "message": task.reason,
            "failure_category": task.status,
            "recorded_at": task.ended_at,
        }))
    })
}

/// Renders the activities that ended last, newest first.
fn recent_activities(recent: &[StoredEvent]) -> Vec<Value> {
    // The policy is in the event that scheduled the call, which may be older than the events at hand.
    let policy = |execution_id: &Value| {
        recent.iter().find_map(|event| {
            let payload: Value = (event.event_type == "ActivityScheduled")
                .then(|| serde_json::from_str(&event.payload).ok())??;
            (payload["activity_execution_id"] == *execution_id)
                .then(|| payload["activity"].get("retry_policy").cloned())?
        })
    };
    let closes = recent.iter().rev().filter_map(|event| {
        let (_, status) = ACTIVITY_CLOSES
            .iter()
            .find(|(name, _)| *name == event.event_type)?;
        let payload: Value = serde_json::from_str(&event.payload).ok()?;
        let is_local = payload["execution_mode"] == "local";
        let options =
            is_local.then(|| local_options(policy(&payload["activity_execution_id"]).as_ref()));
        Some(json!({
            "activity_execution_id": payload["activity_execution_id"],
            "activity_type": payload["activity_type"],
            "sequence": payload["sequence"],
            "status": status,
            "attempt_number": payload["attempt_number"],
            "activity_attempt_id": payload["activity_attempt_id"],
            "closed_at": event.recorded_at,
            "event_sequence": event.sequence,
            "activity_options": options,
            "execution_mode": payload["execution_mode"],
            "local_activity": is_local,
        }))
    });
    closes.take(PENDING_MAX).collect()
}

/// Renders the last failures, newest first, with the diagnostics that workers reported.
fn recent_failures(view: &DebugView) -> Vec<Value> {
    let run = &view.description.run;
    let task = run.core.workflow_task.iter().filter_map(|task| {
        let message = task.last_error.as_deref()?;
        let report = task.last_reply.as_ref();
        let diagnosis = report.and_then(|report| report.diagnosis.as_ref());
        Some(json!({
            "source_kind": "workflow_task",
            "source_id": task.id,
            "event_sequence": null,
            "event_type": null,
            "message": message,
            "exception_type": diagnosis.and_then(|said| said.failure_type.as_deref()),
            "failure_category": "task_failure",
            "recorded_at": diagnosis.map(|said| said.at),
            "stack_trace": diagnosis.and_then(|said| said.stack_trace.as_deref()),
        }))
    });
    let events = view
        .recent
        .iter()
        .rev()
        .filter(|event| FAILURES.contains(&event.event_type.as_str()))
        .filter_map(|event| {
            let payload: Value = serde_json::from_str(&event.payload).ok()?;
            let (kind, id) = match event.event_type.as_str() {
                "ChildRunFailed" => ("child_workflow_run", &payload["child_workflow_run_id"]),
                "WorkflowFailed" | "WorkflowTimedOut" => {
                    ("workflow_run", &payload["workflow_run_id"])
                }
                _ => ("activity_execution", &payload["activity_execution_id"]),
            };
            let task_id = event.workflow_task_id.as_ref();
            let diagnosis = task_id.and_then(|task_id| view.diagnoses.get(task_id));
            Some(json!({
                "source_kind": kind,
                "source_id": id,
                "event_sequence": event.sequence,
                "event_type": event.event_type,
                "activity_type": payload["activity_type"],
                "attempt_number": payload["attempt_number"],
                "message": payload["message"],
                "exception_type": payload["exception_type"],
                "exception_class": payload["exception_class"],
                "failure_category": payload["failure_category"],
                "non_retryable": payload["non_retryable"],
                "timeout_kind": payload["timeout_kind"],
                "recorded_at": event.recorded_at,
                "stack_trace": diagnosis.and_then(|said| said.stack_trace.as_deref()),
            }))
        });
    let all = task.chain(failed_tasks(run)).chain(events);
    all.take(FAILURES_MAX).collect()
}
