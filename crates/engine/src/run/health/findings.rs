//! What an operator should know about one run: findings with a severity, a status of one word, and the next event that needs no
//! call. They depend on the run and on the workers that poll.

use std::collections::BTreeMap;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskQueue;
use longhaul_protocol::sequence::CommandSeq;

use super::{definition, trouble};
use crate::change::TaskKind;
use crate::run::state::{Activity, Part, Run, TimerKind};
use crate::session::Refusal;

/// One fact for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `error` if the run needs an operator, `warning` if it may continue by itself.
    pub severity: &'static str,
    pub code: &'static str,
    pub message: String,
}

/// The next event that needs no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextEvent {
    pub kind: &'static str,
    pub at: Timestamp,
    /// The id of the timer, activity or task, if it has one.
    pub id: Option<String>,
}

/// Returns whether a live worker accepts tasks of this queue, kind and type.
pub type HasPoller<'a> = &'a dyn Fn(&TaskQueue, TaskKind, &str) -> bool;

/// Ready activities whose session refuses every worker, by the sequence of the call.
pub type Blocked = BTreeMap<CommandSeq, Refusal>;

/// Returns all findings, the most severe first.
pub fn findings(
    run: &Run,
    has_poller: HasPoller<'_>,
    blocked: &Blocked,
    now: Timestamp,
) -> Vec<Finding> {
    let mut found = Vec::new();
    if run.spec.arguments.decode().is_err() {
        found.push(Finding {
            severity: "error",
            code: "unsupported_payload_codec",
            message: "The run's arguments cannot be read.".to_owned(),
        });
    }
    if run.core.closed.is_some() {
        return found;
    }
    if let Some(task) = &run.core.workflow_task {
        judge_workflow_task(run, task, has_poller, now, &mut found);
    }
    for activity in activities(run) {
        judge_activity(activity, has_poller, now, &mut found);
        found.extend(
            blocked
                .get(&activity.sequence)
                .and_then(|refusal| session_blocked(activity, refusal)),
        );
    }
    if let Some(execution) = &run.core.execution {
        definition::judge(run, execution, has_poller, &mut found);
    }
    if let Some(trouble) = trouble(run, now).filter(|trouble| trouble.is_stuck()) {
        found.push(Finding {
            severity: "error",
            code: "repair_attention",
            message: format!("The run is stuck ({}); repair it.", trouble.as_str()),
        });
    }
    found.sort_by_key(|finding| finding.severity != "error");
    found
}

fn judge_workflow_task(
    run: &Run,
    task: &crate::run::state::WorkflowTask,
    has_poller: HasPoller<'_>,
    now: Timestamp,
    found: &mut Vec<Finding>,
) {
    let error = task.last_error.as_deref().unwrap_or("no message");
    if task.replay_blocked {
        found.push(Finding {
            severity: "error",
            code: "workflow_replay_blocked",
            message: format!(
                "The deployed code does not match the run's history; deploy code that does. The error was: {error}"
            ),
        });
    } else if task.failures > 0 {
        found.push(Finding {
            severity: "warning",
            code: "task_problem",
            message: format!(
                "The workflow task failed {} time(s) in a row: {error}",
                task.failures
            ),
        });
    }
    match &task.lease {
        Some(lease) if lease.expires_at <= now => found.push(expired(&format!(
            "Worker {} held the workflow task until {}.",
            lease.owner, lease.expires_at
        ))),
        Some(_) => {}
        None => {
            let queue = &run.spec.task_queue;
            if !has_poller(queue, TaskKind::Workflow, &run.spec.workflow_type) {
                let what = format!("workflow type {}", run.spec.workflow_type);
                found.push(no_pollers(
                    queue,
                    &what,
                    run.spec.routing.compatibility.as_deref(),
                ));
            }
        }
    }
}

fn judge_activity(
    activity: &Activity,
    has_poller: HasPoller<'_>,
    now: Timestamp,
    found: &mut Vec<Finding>,
) {
    let what = format!("activity type {}", activity.activity_type);
    match &activity.attempt {
        Some(attempt) if attempt.lease_expires_at.is_none_or(|at| at <= now) => {
            found.push(expired(&format!(
                "Worker {} held {what} (attempt {}) and its lease has run out.",
                attempt.owner, attempt.number
            )));
        }
        Some(_) => {}
        None if !has_poller(&activity.queue, TaskKind::Activity, &activity.activity_type) => {
            found.push(no_pollers(&activity.queue, &what, None));
        }
        None => {}
    }
}

/// Returns a finding if the session blocks the activity. A full session is no finding: the next activity starts when one ends.
fn session_blocked(activity: &Activity, refusal: &Refusal) -> Option<Finding> {
    let severity = match refusal {
        Refusal::ActivityLimit(_) => return None,
        Refusal::Closed(_) | Refusal::ReacquireDisallowed(_) => "error",
        Refusal::QueueMismatch { .. }
        | Refusal::RequirementsNotMet { .. }
        | Refusal::Missing
        | Refusal::WorkerLimit { .. }
        | Refusal::OwnedByAnother(_)
        | Refusal::NotFound
        | Refusal::NotActive(_)
        | Refusal::OwnerMismatch(_) => "warning",
    };
    let session = activity.worker_session.as_ref()?;
    Some(Finding {
        severity,
        code: "session_blocked",
        message: format!(
            "Activity type {} waits for session {}: {refusal} ({}).",
            activity.activity_type,
            session.session_id,
            refusal.reason()
        ),
    })
}

fn expired(message: &str) -> Finding {
    Finding {
        severity: "warning",
        code: "expired_leases",
        message: message.to_owned(),
    }
}

fn no_pollers(queue: &TaskQueue, what: &str, pin: Option<&str>) -> Finding {
    let pinned = pin.map_or_else(String::new, |pin| format!(" and has build {pin}"));
    Finding {
        severity: "error",
        code: "no_active_pollers",
        message: format!("No live worker on queue {queue} takes {what}{pinned}."),
    }
}

fn activities(run: &Run) -> impl Iterator<Item = &Activity> {
    run.parts.values().filter_map(|part| {
        if let Part::Activity(activity) = part {
            Some(activity.as_ref())
        } else {
            None
        }
    })
}

/// Returns `terminal`, `needs_attention`, `running`, `queue_backlog`, `pending_work` or `waiting`.
pub fn diagnostic_status(run: &Run, findings: &[Finding], now: Timestamp) -> &'static str {
    if run.core.closed.is_some() {
        return "terminal";
    }
    if !findings.is_empty() {
        return "needs_attention";
    }
    if run.core.execution.is_some() {
        return definition::status(run);
    }
    let task = run.core.workflow_task.as_ref();
    if task.is_some_and(|task| task.lease.is_some())
        || activities(run).any(|activity| activity.attempt.is_some())
    {
        "running"
    } else if task.is_some_and(|task| task.available_at <= now)
        || activities(run).any(|activity| activity.available_at <= now)
    {
        "queue_backlog"
    } else if task.is_some()
        || activities(run).next().is_some()
        || run.core.open.local_activities > 0
    {
        "pending_work"
    } else {
        "waiting"
    }
}

/// Returns the next event that needs no call.
pub fn next_event(run: &Run) -> Option<NextEvent> {
    if run.core.closed.is_some() {
        return None;
    }
    let mut candidates = match &run.core.execution {
        Some(execution) => definition::next_events(run, execution),
        None => Vec::new(),
    };
    let mut candidate = |kind, at: Option<Timestamp>, id: Option<String>| {
        candidates.extend(at.map(|at| NextEvent { kind, at, id }));
    };
    candidate("run_timeout", run.spec.run_deadline_at, None);
    candidate("execution_timeout", run.spec.execution_deadline_at, None);
    if let Some(task) = &run.core.workflow_task {
        let id = Some(task.id.to_string());
        match &task.lease {
            Some(lease) => candidate("workflow_task_lease_expiry", Some(lease.expires_at), id),
            None if !task.offered => candidate("workflow_task_retry", Some(task.available_at), id),
            None => {}
        }
    }
    for part in run.parts.values() {
        if let Part::Timer(timer) = part {
            let kind = match timer.kind {
                TimerKind::Plain => "timer",
                TimerKind::ConditionTimeout => "condition_timeout",
                TimerKind::SignalTimeout => "signal_timeout",
            };
            candidate(kind, Some(timer.fire_at), Some(timer.id.to_string()));
        }
    }
    for activity in activities(run) {
        let id = || Some(activity.execution_id.to_string());
        if activity.attempt.is_none() && !activity.offered {
            candidate("activity_retry", Some(activity.available_at), id());
        }
        let deadline = activity.schedule_to_close_deadline_at;
        candidate("activity_schedule_to_close", deadline, id());
        match &activity.attempt {
            Some(attempt) => {
                candidate("activity_start_to_close", attempt.close_deadline_at, id());
                candidate(
                    "activity_heartbeat_timeout",
                    attempt.heartbeat_deadline_at,
                    id(),
                );
                candidate("activity_lease_expiry", attempt.lease_expires_at, id());
            }
            None => candidate(
                "activity_schedule_to_start",
                activity.schedule_deadline_at,
                id(),
            ),
        }
    }
    for local in run.parts.values().filter_map(Part::as_local) {
        let id = || Some(format!("local-activity:{}", local.execution_id));
        let retry = local.retry_task.as_ref().filter(|task| !task.offered);
        candidate("local_activity", retry.map(|task| task.available_at), id());
        let deadline = local.schedule_to_close_deadline_at;
        candidate("activity_schedule_to_close", deadline, id());
        if let Some(attempt) = &local.attempt {
            candidate("activity_start_to_close", attempt.close_deadline_at, id());
            candidate(
                "activity_heartbeat_timeout",
                attempt.heartbeat_deadline_at,
                id(),
            );
        }
    }
    candidates.into_iter().min_by_key(|event| event.at)
}
