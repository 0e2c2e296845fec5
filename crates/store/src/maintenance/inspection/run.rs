//! The rules of the rows of one run.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{CommandRow, TaskRow};
use longhaul_engine::inspection::{
    Problem, ProblemKind, check_chain, check_messages, check_parent, check_run, open_tasks,
};
use longhaul_engine::run::state::{Core, Program, Run, Spec};
use longhaul_engine::visibility::Term;

use super::rows::{AttributeRow, BeforeRows, RunRows, compare, parse};
use crate::encode::{entries, list_status};

/// Returns what is wrong with the rows of a run. `indexed` is how the store writes the values of search attributes.
pub(super) fn check(rows: &RunRows, indexed: impl Fn(&Term) -> String) -> Vec<Problem> {
    let mut problems = rows.unread.clone();
    let run = rows.run.as_ref();
    if let Some(version) = rows.version.filter(|version| *version < 1) {
        let detail = format!("the version is {version}");
        problems.push(Problem::new(ProblemKind::VersionWrong, detail));
    }
    let commands = check_commands(rows, run, &mut problems);
    check_requests(rows, &commands, &mut problems);
    let Some(run) = run else {
        return problems;
    };
    problems.extend(check_run(run));
    problems.extend(rows.history.finish(run));
    if run.spec.program == Program::Code {
        check_code(rows, run, commands, &mut problems);
    }
    let expected = list_columns(&run.spec, &run.core);
    compare(
        &rows.columns,
        &expected,
        ProblemKind::ListColumnDiffers,
        &mut problems,
    );
    check_alarms(rows, run, &mut problems);
    check_attributes(rows, run, indexed, &mut problems);
    check_tasks(rows, run, &mut problems);
    check_numbers(rows, run, &mut problems);
    if rows.has_snapshot == Some(false) {
        let detail = "the snapshot of its definition is not stored";
        problems.push(Problem::new(ProblemKind::RowMissing, detail));
    }
    problems
}

/// Checks a run of code against its messages, the run before it and its parent.
fn check_code(
    rows: &RunRows,
    run: &Run,
    commands: Vec<(i64, CommandRow)>,
    problems: &mut Vec<Problem>,
) {
    let before = rows.before.as_ref();
    let parsed = before.and_then(BeforeRows::parse);
    // What a run before it that cannot be read had is not known.
    if before.is_some() && parsed.is_none() {
        return;
    }
    let next = run.spec.run_number.cast_signed() + 1;
    let has_next = rows.numbers.iter().any(|(number, _)| *number == next);
    problems.extend(check_chain(run, parsed.as_ref(), has_next));
    let can_read_all = commands.len() == rows.commands.len();
    let commands: Vec<CommandRow> = commands.into_iter().map(|(_, command)| command).collect();
    // A message cannot be told from a lost one without its command.
    if can_read_all {
        let messages = rows.history.messages();
        problems.extend(check_messages(run, messages, &commands, parsed.as_ref()));
    }
    let calls = rows.parent_calls.as_deref();
    problems.extend(calls.and_then(|calls| check_parent(run, calls)));
}

/// Returns the columns that follow from the specification and the state, for every table that has some of them.
fn list_columns(spec: &Spec, core: &Core) -> BTreeMap<&'static str, Option<String>> {
    let execution = core.execution.as_deref();
    let closed_at = core.closed.as_ref().map(|closed| closed.at.as_micros());
    let text = |value: &str| Some(value.to_owned());
    let parent = spec.parent.as_deref().filter(|_| execution.is_some());
    let number = |value: i64| value.to_string();
    BTreeMap::from([
        ("run_id", text(spec.run_id.as_str())),
        ("namespace", text(spec.namespace.as_str())),
        ("workflow_id", text(spec.workflow_id.as_str())),
        ("run_number", text(&spec.run_number.to_string())),
        ("workflow_type", text(&spec.workflow_type)),
        ("task_queue", text(spec.task_queue.as_str())),
        ("business_key", spec.business_key.clone()),
        ("compatibility", spec.routing.compatibility.clone()),
        ("started_at", text(&spec.started_at.as_micros().to_string())),
        ("list_status", text(list_status(core))),
        ("closed_at", closed_at.map(number)),
        (
            "correlation_id",
            execution.and_then(|execution| execution.correlation_id.clone()),
        ),
        (
            "parent_id",
            parent.map(|parent| parent.workflow_id.to_string()),
        ),
        ("status", text(core.status.as_str())),
        (
            "updated_at",
            execution.map(|execution| number(execution.updated_at.as_micros())),
        ),
        (
            "definition",
            execution.map(|execution| execution.version.to_string()),
        ),
        (
            "priority",
            execution.map(|execution| execution.priority.to_string()),
        ),
        (
            "created_by",
            execution.and_then(|execution| execution.created_by.clone()),
        ),
        (
            "idempotency_key",
            execution.and_then(|execution| execution.idempotency_key.clone()),
        ),
        (
            "classifier",
            execution.map(|execution| execution.classifier().to_owned()),
        ),
        (
            "reason",
            execution.and_then(|execution| execution.reason.clone()),
        ),
        (
            "failed_references",
            execution.map(|execution| execution.failed_references.clone()),
        ),
    ])
}

fn check_alarms(rows: &RunRows, run: &Run, problems: &mut Vec<Problem>) {
    let expected = run.core.alarm.map(|at| at.as_micros());
    for (column, stored) in &rows.alarms {
        if *stored != expected {
            let detail = format!("{column} is {stored:?} and should be {expected:?}");
            problems.push(Problem::new(ProblemKind::AlarmDiffers, detail));
        }
    }
}

fn check_attributes(
    rows: &RunRows,
    run: &Run,
    indexed: impl Fn(&Term) -> String,
    problems: &mut Vec<Problem>,
) {
    let expected = entries(&run.core.search_attributes).into_iter();
    // A list may contain a string twice.
    let expected: BTreeSet<AttributeRow> = expected
        .map(|entry| AttributeRow {
            name: entry.name,
            kind: entry.kind.as_str().to_owned(),
            value: indexed(&entry.term),
            namespace: run.spec.namespace.to_string(),
            list_status: list_status(&run.core).to_owned(),
            started_at: run.spec.started_at.as_micros(),
        })
        .collect();
    let stored: BTreeSet<AttributeRow> = rows.attributes.iter().cloned().collect();
    if let Some(row) = expected.symmetric_difference(&stored).next() {
        let word = if expected.contains(row) {
            "is missing"
        } else {
            "should not be there"
        };
        let detail = format!("the index row {} {} {word}", row.name, row.value);
        problems.push(Problem::new(ProblemKind::AttributeIndexDiffers, detail));
    }
}

fn check_tasks(rows: &RunRows, run: &Run, problems: &mut Vec<Problem>) {
    for open in open_tasks(run) {
        let stored = rows.tasks.iter().find(|(id, _)| *id == open.id.as_str());
        let Some((id, body)) = stored else {
            let detail = format!("task {} is open and has no row", open.id);
            problems.push(Problem::new(ProblemKind::TaskMissing, detail));
            continue;
        };
        // A body that cannot be read is a problem of the task.
        let Some(task) = parse::<TaskRow>(id, Some(body), &mut Vec::new()) else {
            continue;
        };
        let owner = task.lease_owner.as_ref().map(|owner| owner.as_str());
        if task.run_id != run.spec.run_id
            || task.status != open.status
            || owner != open.owner.as_deref()
        {
            let detail = format!(
                "task {id} is {:?} at {owner:?} for run {}, and the run has it {:?} at {:?}",
                task.status, task.run_id, open.status, open.owner
            );
            problems.push(Problem::new(ProblemKind::TaskDiffers, detail));
        }
    }
}

/// Returns the commands that can be read, by the numbers of their rows.
fn check_commands(
    rows: &RunRows,
    run: Option<&Run>,
    problems: &mut Vec<Problem>,
) -> Vec<(i64, CommandRow)> {
    let newest = run.map(|run| run.core.instance_command_sequence);
    let mut commands = Vec::new();
    for row in &rows.commands {
        let what = format!("command {}", row.sequence);
        let Some(command) = parse::<CommandRow>(&what, Some(&row.body), problems) else {
            continue;
        };
        if command.sequence.get().cast_signed() != row.sequence
            || newest.is_some_and(|newest| command.sequence > newest)
        {
            let detail = format!(
                "{what} has the number {}, and the newest is {newest:?}",
                command.sequence
            );
            problems.push(Problem::new(ProblemKind::CommandDiffers, detail));
        }
        commands.push((row.sequence, command));
    }
    commands
}

fn check_requests(rows: &RunRows, commands: &[(i64, CommandRow)], problems: &mut Vec<Problem>) {
    for (request_id, run_id, sequence) in &rows.requests {
        if *run_id != rows.run_id {
            continue;
        }
        let command = commands.iter().find(|(number, _)| number == sequence);
        let command = command.map(|(_, command)| command);
        if command.is_none_or(|command| command.request_id.as_ref() != Some(request_id)) {
            let detail =
                format!("request id {request_id} names command {sequence}, which does not have it");
            problems.push(Problem::new(ProblemKind::RequestDiffers, detail));
        }
    }
    for (number, command) in commands {
        let Some(request_id) = &command.request_id else {
            continue;
        };
        // The run that took a command over has the row.
        let mut known = rows.requests.iter();
        let is_known = known.any(|(known, _, sequence)| known == request_id && sequence == number);
        if !is_known {
            let detail = format!(
                "command {number} has the request id {request_id}, which is not stored for it"
            );
            problems.push(Problem::new(ProblemKind::RequestDiffers, detail));
        }
    }
}

/// The runs of a workflow are numbered from 1, and only the newest may be open. Each run checks its neighbours.
fn check_numbers(rows: &RunRows, run: &Run, problems: &mut Vec<Problem>) {
    let own = run.spec.run_number.cast_signed();
    let at = |number: i64| rows.numbers.iter().find(|(found, _)| *found == number);
    let is_own =
        at(own).is_some_and(|(_, run_id)| run_id.as_deref() == Some(run.spec.run_id.as_str()));
    if !is_own || own < 1 || (own > 1 && at(own - 1).is_none()) {
        let detail = format!(
            "run number {own} of workflow {} is not stored for it, or the one before is missing",
            run.spec.workflow_id
        );
        problems.push(Problem::new(ProblemKind::RunNumberWrong, detail));
    }
    if run.core.closed.is_none() && at(own + 1).is_some() {
        let detail = format!(
            "run number {own} of workflow {} is open, and there is a newer one",
            run.spec.workflow_id
        );
        problems.push(Problem::new(ProblemKind::OpenRunNotCurrent, detail));
    }
}
