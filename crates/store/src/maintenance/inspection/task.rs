//! The rules of one task.

use std::collections::BTreeMap;

use longhaul_engine::change::{TaskKind, TaskRow, TaskStatus};
use longhaul_engine::inspection::{Problem, ProblemKind};

use super::rows::{TaskRows, compare, parse};
use crate::encode::task_status;

/// Returns the run of a task and what is wrong with its row.
pub(super) fn check(rows: &TaskRows) -> (Option<String>, Vec<Problem>) {
    let mut problems = Vec::new();
    let Some(task) = parse::<TaskRow>("the task", Some(&rows.body), &mut problems) else {
        return (None, problems);
    };
    let session = task.worker_session.as_ref();
    let owner = task.lease_owner.as_ref();
    let expected = BTreeMap::from([
        ("task_id", Some(task.task_id.to_string())),
        ("status", Some(task_status(task.status).to_owned())),
        ("namespace", Some(task.namespace.to_string())),
        ("kind", Some(task.kind.as_str().to_owned())),
        ("queue", Some(task.queue.to_string())),
        ("priority", Some(task.priority.to_string())),
        (
            "available_at",
            Some(task.available_at.as_micros().to_string()),
        ),
        ("lease_owner", owner.map(ToString::to_string)),
        (
            "session_id",
            session.map(|session| session.session_id.to_string()),
        ),
    ]);
    compare(
        &rows.columns,
        &expected,
        ProblemKind::TaskColumnDiffers,
        &mut problems,
    );
    // Conductor workers need no name, and their leases end only if the definition of the task says so.
    let needs_lease = task.status == TaskStatus::Leased && task.kind != TaskKind::Execution;
    if needs_lease && (task.lease_owner.is_none() || task.lease_expires_at.is_none()) {
        let detail = "the task is leased without an owner or without an end";
        problems.push(Problem::new(ProblemKind::LeaseIncomplete, detail));
    }
    check_run(rows, &task, &mut problems);
    (Some(task.run_id.to_string()), problems)
}

fn check_run(rows: &TaskRows, task: &TaskRow, problems: &mut Vec<Problem>) {
    if !rows.has_run {
        let detail = format!(
            "the task belongs to run {}, which is not stored",
            task.run_id
        );
        problems.push(Problem::new(ProblemKind::OrphanRow, detail));
    }
    // A run that cannot be read is a problem of the run.
    let Some(run) = rows.run.as_ref().filter(|_| task.status.is_open()) else {
        return;
    };
    if run.is_closed {
        let detail = format!(
            "the task is {}, and its run is closed",
            task_status(task.status)
        );
        problems.push(Problem::new(ProblemKind::OpenTaskOfClosedRun, detail));
    } else if !run.ids.contains(task.task_id.as_str()) {
        let detail = format!(
            "the task is {}, and its run does not have it",
            task_status(task.status)
        );
        problems.push(Problem::new(ProblemKind::TaskUnknown, detail));
    }
}
