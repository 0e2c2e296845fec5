//! Findings, status and next events of an open definition run, read from its open tasks.

use std::collections::BTreeMap;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskQueue;

use super::findings::{Finding, HasPoller, NextEvent};
use crate::change::TaskKind;
use crate::conductor::execution::record::queue_name;
use crate::conductor::execution::state::{Deadline, Execution, ExecutionTask, Waiting};
use crate::run::state::{Part, Run};

/// Open tasks whose failed attempts are named.
const FAILING_TASKS_MAX: usize = 10;

fn open_tasks(run: &Run) -> impl Iterator<Item = &ExecutionTask> {
    let tasks = run.parts.values().filter_map(Part::as_task);
    tasks.map(AsRef::as_ref).filter(|task| task.is_open())
}

/// Returns the findings: a pause, queues that no worker polls, and tasks that failed before.
pub(super) fn judge(
    run: &Run,
    execution: &Execution,
    has_poller: HasPoller<'_>,
    found: &mut Vec<Finding>,
) {
    if execution.paused {
        found.push(Finding {
            severity: "warning",
            code: "paused",
            message: "The run is paused: no task begins until it is resumed.".to_owned(),
        });
    }
    let mut unserved: BTreeMap<TaskQueue, usize> = BTreeMap::new();
    for task in open_tasks(run) {
        let queue = queue_name(&task.task_type, task.domain.as_deref());
        let is_ready = matches!(task.waiting, Waiting::Queued { offered: true, .. });
        if is_ready && !has_poller(&queue, TaskKind::Execution, &task.task_type) {
            *unserved.entry(queue).or_default() += 1;
        }
    }
    for (queue, count) in unserved {
        found.push(Finding {
            severity: "error",
            code: "no_active_pollers",
            message: format!(
                "No worker polled {queue} in the last minute; {count} task(s) wait for one."
            ),
        });
    }
    let failing = open_tasks(run).filter(|task| task.retry_count > 0);
    for task in failing.take(FAILING_TASKS_MAX) {
        found.push(Finding {
            severity: "warning",
            code: "task_problem",
            message: format!(
                "Task {} failed {} time(s) in a row: {}",
                task.reference,
                task.retry_count,
                last_failure(run, task).unwrap_or("no message")
            ),
        });
    }
}

/// Returns the reason of the attempt before this one.
fn last_failure<'a>(run: &'a Run, task: &ExecutionTask) -> Option<&'a str> {
    let before = task.retried_task_id.as_ref()?;
    let mut tasks = run.parts.values().filter_map(Part::as_task);
    let failed = tasks.find(|task| task.id == *before)?;
    failed.reason.as_deref()
}

/// Returns `running`, `queue_backlog`, `pending_work` or `waiting`.
pub(super) fn status(run: &Run) -> &'static str {
    let rank = |task: &ExecutionTask| match task.waiting {
        Waiting::Leased | Waiting::Serving { .. } => 0,
        Waiting::Queued { offered: true, .. } => 1,
        Waiting::Queued { offered: false, .. } => 2,
        Waiting::Nothing
        | Waiting::Time(_)
        | Waiting::Tasks(_)
        | Waiting::Iteration(_)
        | Waiting::Child(_) => 3,
    };
    match open_tasks(run).map(rank).min() {
        Some(0) => "running",
        Some(1) => "queue_backlog",
        Some(2) => "pending_work",
        _ => "waiting",
    }
}

/// Returns the events that time causes: the end of the run, tasks that become visible, and time-outs of tasks.
pub(super) fn next_events(run: &Run, execution: &Execution) -> Vec<NextEvent> {
    let mut events = Vec::new();
    let mut add = |kind, at: Option<Timestamp>, id: Option<String>| {
        events.extend(at.map(|at| NextEvent { kind, at, id }));
    };
    add("run_timeout", execution.deadline_at, None);
    for task in open_tasks(run) {
        let id = || Some(task.id.to_string());
        match task.waiting {
            Waiting::Queued {
                visible_at,
                offered: false,
            } => add("task_visible", Some(visible_at), id()),
            Waiting::Time(at) => add("timer", Some(at), id()),
            Waiting::Queued { offered: true, .. }
            | Waiting::Nothing
            | Waiting::Leased
            | Waiting::Tasks(_)
            | Waiting::Iteration(_)
            | Waiting::Child(_) => {}
            Waiting::Serving { until } => add("server_lease", Some(until), id()),
        }
        for (deadline, at) in task.deadlines().into_iter().flatten() {
            let kind = match deadline {
                Deadline::Total => "task_total_timeout",
                Deadline::Execution => "task_timeout",
                Deadline::Poll => "task_poll_timeout",
                Deadline::Response => "task_response_timeout",
            };
            add(kind, Some(at), id());
        }
    }
    events
}
