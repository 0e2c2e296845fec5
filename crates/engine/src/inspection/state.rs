//! Compares the state of a run with its parts.

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;

use super::{Problem, ProblemKind};
use crate::change::TaskStatus;
use crate::conductor::execution::state::Waiting;
use crate::run::advance_time::next_due;
use crate::run::state::{Message, Part, PartKey, Program, Run};
use crate::{Limits, Moment};

/// A task that is open in a run, as its row must show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTask {
    pub id: TaskId,
    pub status: TaskStatus,
    /// The owner of the lease, if it is leased. Conductor workers need no name.
    pub owner: Option<String>,
}

/// Returns the tasks that are open in a run. Each has a row.
pub fn open_tasks(run: &Run) -> Vec<OpenTask> {
    let mut tasks = Vec::new();
    let waiting = |id: &TaskId, offered: bool| OpenTask {
        id: id.clone(),
        status: if offered {
            TaskStatus::Ready
        } else {
            TaskStatus::Scheduled
        },
        owner: None,
    };
    let leased = |id: &TaskId, owner: Option<&str>| OpenTask {
        id: id.clone(),
        status: TaskStatus::Leased,
        owner: owner.map(str::to_owned),
    };
    if let Some(task) = &run.core.workflow_task {
        tasks.push(match &task.lease {
            Some(lease) => leased(&task.id, Some(lease.owner.as_str())),
            None => waiting(&task.id, task.offered),
        });
    }
    for part in run.parts.values() {
        if let Some(activity) = part.as_activity() {
            let attempt = activity.attempt.as_ref();
            let lease = attempt.filter(|attempt| attempt.lease_expires_at.is_some());
            tasks.push(match lease {
                Some(attempt) => leased(&activity.task_id, Some(attempt.owner.as_str())),
                None => waiting(&activity.task_id, activity.offered),
            });
        } else if let Some(retry) = part.as_local().and_then(|local| local.retry_task.as_ref()) {
            tasks.push(waiting(&retry.id, retry.offered));
        } else if let Some(task) = part.as_task().filter(|task| task.is_open()) {
            tasks.push(match task.waiting {
                Waiting::Leased | Waiting::Serving { .. } => {
                    leased(&task.id, task.worker_id.as_deref())
                }
                Waiting::Queued { offered, .. } => waiting(&task.id, offered),
                Waiting::Nothing
                | Waiting::Time(_)
                | Waiting::Tasks(_)
                | Waiting::Iteration(_)
                | Waiting::Child(_) => waiting(&task.id, false),
            });
        }
    }
    tasks
}

/// Returns what is wrong between the state and the parts of a run.
pub fn check_run(run: &Run) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_status(run, &mut problems);
    match run.spec.program {
        Program::Code => check_counts(run, &mut problems),
        Program::Definition => check_tasks(run, &mut problems),
    }
    if run.core.closed.is_some() {
        check_closed(run, &mut problems);
    } else {
        check_open(run, &mut problems);
    }
    // Only a definition run that has its execution can be asked when it is due.
    if (run.spec.program == Program::Definition) == run.core.execution.is_some() {
        check_alarm(run, &mut problems);
    }
    problems
}

fn check_status(run: &Run, problems: &mut Vec<Problem>) {
    let status = run.core.status;
    let closed = run.core.closed.as_ref();
    let expected = closed.map(|closed| closed.reason.status());
    if expected.is_some_and(|expected| expected != status)
        || expected.is_none() == status.is_terminal()
    {
        let how = closed.map_or("open", |closed| closed.reason.as_str());
        let detail = format!("the status is {}, and the run is {how}", status.as_str());
        problems.push(Problem::new(ProblemKind::StatusDiffers, detail));
    }
    let has_execution = run.core.execution.is_some();
    if (run.spec.program == Program::Definition) != has_execution {
        let program = run.spec.program.as_str();
        let detail = format!("the program is {program}, and the state does not fit");
        problems.push(Problem::new(ProblemKind::StatusDiffers, detail));
    }
}

fn check_counts(run: &Run, problems: &mut Vec<Problem>) {
    let count = |is_counted: fn(&Part) -> bool| {
        run.parts.values().filter(|part| is_counted(part)).count() as u64
    };
    let open = &run.core.open;
    let counts = [
        (
            "activities",
            open.activities,
            count(|part| matches!(part, Part::Activity(_))),
        ),
        (
            "local activities",
            open.local_activities,
            count(|part| matches!(part, Part::LocalActivity(_))),
        ),
        (
            "timers",
            open.timers,
            count(|part| matches!(part, Part::Timer(_))),
        ),
        (
            "children",
            open.children,
            count(|part| matches!(part, Part::Child(_))),
        ),
        ("updates", open.updates, count(is_update)),
    ];
    for (what, expected, found) in counts {
        if expected != found {
            let detail = format!("{found} {what} are open, and the state has {expected}");
            problems.push(Problem::new(ProblemKind::OpenCountDiffers, detail));
        }
    }
}

fn is_update(part: &Part) -> bool {
    part.as_update().is_some() || matches!(part.as_buffered(), Some(Message::Update(_)))
}

fn check_tasks(run: &Run, problems: &mut Vec<Problem>) {
    let Some(execution) = &run.core.execution else {
        return;
    };
    let tasks = || run.parts.values().filter_map(Part::as_task);
    let open = tasks().filter(|task| task.is_open()).count() as u64;
    if open != execution.open_tasks {
        let expected = execution.open_tasks;
        let detail = format!("{open} tasks are open, and the state has {expected}");
        problems.push(Problem::new(ProblemKind::OpenCountDiffers, detail));
    }
    let highest = tasks().map(|task| task.seq).max().unwrap_or(0);
    let missing = execution
        .backlog
        .iter()
        .find(|seq| run.task(**seq).is_none());
    if highest > execution.last_seq || missing.is_some() {
        let detail = format!(
            "the state ends at task {} and waits for {:?}, and the parts do not fit",
            execution.last_seq, execution.backlog
        );
        problems.push(Problem::new(ProblemKind::OpenCountDiffers, detail));
    }
}

fn check_closed(run: &Run, problems: &mut Vec<Problem>) {
    let is_left = |key: &PartKey, part: &Part| match run.spec.program {
        Program::Code => matches!(key, PartKey::Outcome | PartKey::Outbox(_)),
        // A task that was passed over before the flow reached it stays as it is: the run may be opened again.
        Program::Definition => {
            !matches!(key, PartKey::Task(_)) || part.as_task().is_some_and(|task| task.is_skipped())
        }
    };
    let mut parts = run.parts.iter();
    if let Some((key, _)) = parts.find(|(key, part)| !is_left(key, part)) {
        let detail = format!("{key} is open in a closed run");
        problems.push(Problem::new(ProblemKind::OpenPartOfClosedRun, detail));
    }
    if run.core.workflow_task.is_some() {
        let detail = "a workflow task is open in a closed run";
        problems.push(Problem::new(ProblemKind::OpenPartOfClosedRun, detail));
    }
}

/// What waits in an open run has a turn.
fn check_open(run: &Run, problems: &mut Vec<Problem>) {
    let task = run.core.workflow_task.as_ref();
    let is_leased = task.is_some_and(|task| task.lease.is_some());
    let has_update_turn = task.is_some_and(|task| task.is_update());
    if run.core.next_wake.is_some() && !is_leased && !has_update_turn {
        let detail = "a wake waits, and not behind a lease or an update";
        problems.push(Problem::new(ProblemKind::WakeLost, detail));
    }
    if task.is_none() && run.parts.values().any(|part| part.as_update().is_some()) {
        let detail = "an update is open, and there is no task for it";
        problems.push(Problem::new(ProblemKind::WakeLost, detail));
    }
    // Messages of streams also wait for the first decision of the workflow.
    let is_undecided = run.core.handled_sequence == 0;
    let may_wait = |message: &Message| match message {
        Message::Signal(signal) => signal.stream.is_some() && is_undecided,
        Message::Update(_) => false,
    };
    let mut buffered = run.parts.values().filter_map(Part::as_buffered);
    if !is_leased && buffered.any(|message| !may_wait(message)) {
        let detail = "a message waits, and not behind a lease";
        problems.push(Problem::new(ProblemKind::SignalWrong, detail));
    }
    let Some(execution) = run.core.execution.as_deref() else {
        return;
    };
    let has_work = execution.is_new || execution.open_tasks > 0 || !execution.backlog.is_empty();
    let has_message = run
        .parts
        .values()
        .any(|part| part.as_outbox_message().is_some());
    if !has_work && !has_message && run.core.alarm.is_none() {
        let detail = "the run is open, and nothing would ever happen";
        problems.push(Problem::new(ProblemKind::NothingOpen, detail));
    }
}

/// The stored alarm may be earlier than needed, never later.
fn check_alarm(run: &Run, problems: &mut Vec<Problem>) {
    let limits = Limits::default();
    let moment = Moment {
        // Work that is due at once is then due at the end of time, so that only a missing alarm counts as late.
        now: Timestamp::from_micros(i64::MAX),
        entropy: 0,
        limits: &limits,
    };
    let Some(due) = next_due(run, moment) else {
        return;
    };
    if run.core.alarm.is_none_or(|alarm| alarm > due) {
        let detail = match run.core.alarm {
            Some(alarm) => format!("something is due at {due}, and the alarm is at {alarm}"),
            None => "something is due, and there is no alarm".to_owned(),
        };
        problems.push(Problem::new(ProblemKind::AlarmLate, detail));
    }
}

/// Returns whether a part is of the kind that its key names.
pub fn part_matches(key: PartKey, part: &Part) -> bool {
    match key {
        PartKey::Activity(_) => matches!(part, Part::Activity(_)),
        PartKey::LocalActivity(_) => matches!(part, Part::LocalActivity(_)),
        PartKey::Arguments(_) => matches!(part, Part::Arguments(_)),
        PartKey::Timer(_) => matches!(part, Part::Timer(_)),
        PartKey::Wait(_) => matches!(part, Part::Wait(_)),
        PartKey::Signal(_) => matches!(part, Part::Signal(_)),
        PartKey::Update(_) => matches!(part, Part::Update(_)),
        PartKey::Buffered(_) => matches!(part, Part::Buffered(_)),
        PartKey::Child(_) => matches!(part, Part::Child(_)),
        PartKey::Adopted(_) => matches!(part, Part::Adopted(_)),
        PartKey::Outbox(_) => matches!(part, Part::Outbox(_)),
        PartKey::Group(_) => matches!(part, Part::Group(_)),
        PartKey::Member(_) => matches!(part, Part::Member(_)),
        PartKey::Outcome => matches!(part, Part::Outcome(_)),
        PartKey::Task(_) => matches!(part, Part::Task(_)),
        PartKey::Past(_) => matches!(part, Part::Past(_)),
        PartKey::Inbox(_) => matches!(part, Part::Inbox(_)),
        PartKey::Input | PartKey::Variables | PartKey::Output => matches!(part, Part::Value(_)),
    }
}
