//! What is true of every definition run after every decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::change::TaskStatus as RowStatus;
use longhaul_engine::command::ContinuePass;
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::lookup::{LookupResults, Step};
use longhaul_engine::conductor::execution::state::{ExecutionTask, Stored, Waiting};
use longhaul_engine::conductor::execution::view::status_of;
use longhaul_engine::inspection;
use longhaul_engine::run::state::{Part, PartKey, Run};
use longhaul_engine::{Command, Limits, Moment};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{TaskStatus, TimeoutPolicy};
use longhaul_protocol::id::RunId;
use serde_json::Value;

use super::fold::is_open;
use super::world::World;

/// Checks a run after a decision.
pub(crate) fn check(world: &World, run_id: &RunId) {
    let run = &world.runs[run_id];
    let tasks: Vec<&Arc<ExecutionTask>> = world.tasks(run_id).collect();
    check_numbers(run, &tasks);
    check_fold(world, run, &tasks);
    check_rows(world, run, &tasks);
    check_counters(world, run, &tasks);
    check_alarm(run, &tasks);
    check_storage(run);
    check_inspection(world, run);
    if run.core.closed.is_some() {
        check_closed(run, &tasks);
    } else {
        check_moves(world, run, &tasks);
    }
}

/// Checks a run that has nothing to do at once: deciding again changes nothing, and the end of a run reached its children.
pub(crate) fn check_rest(world: &World, run_id: &RunId) {
    let run = &world.runs[run_id];
    assert!(!has_work(run));
    let limits = Limits::default();
    let moment = Moment {
        now: world.now,
        entropy: 1,
        limits: &limits,
    };
    match ContinuePass.step(run, moment, &LookupResults::default()) {
        Step::Decided(decision) => {
            assert!(decision.changes.run.is_none() && decision.changes.created.is_empty());
        }
        Step::Needs(_) => panic!("a resting run needs nothing"),
    }
    if run.core.closed.is_some() {
        for task in world.tasks(run_id) {
            let child = task
                .sub_workflow_id
                .as_ref()
                .map(|child| &world.runs[child]);
            // A child may be opened again that its parent no longer waits for.
            let is_open = child.is_some_and(|child| {
                let life = child.core.execution.as_ref().unwrap().life;
                child.core.closed.is_none() && life <= task.child_life
            });
            assert!(!is_open, "a closed run has no open child");
        }
    }
    let execution = run.core.execution.as_ref().unwrap();
    if !execution.paused {
        let unprocessed = run.parts.values().filter(
            |part| matches!(part, Part::Task(task) if !task.is_open() && !task.is_skipped()),
        );
        assert_eq!(unprocessed.count(), 0, "every end is processed");
    }
}

/// Checks that a check of the store finds nothing in these rows.
fn check_inspection(world: &World, run: &Run) {
    let problems = inspection::check_run(run);
    assert_eq!(problems, [], "a check of the store finds a problem");
    for open in inspection::open_tasks(run) {
        let row = &world.rows[&open.id];
        assert_eq!(row.status, open.status, "the row of task {}", open.id);
        let owner = row.lease_owner.as_ref().map(ToString::to_string);
        assert_eq!(owner, open.owner, "the owner of task {}", open.id);
    }
}

fn check_numbers(run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    let execution = run.core.execution.as_ref().unwrap();
    let open = tasks.iter().filter(|task| task.is_open()).count() as u64;
    assert_eq!(open, execution.open_tasks, "the number of open tasks");
    let mut attempts = BTreeSet::new();
    for task in tasks {
        assert!(
            attempts.insert((&task.reference, task.retry_count)),
            "one task per reference and attempt: {}",
            task.reference
        );
        assert_eq!(task.is_open(), task.ended_at.is_none());
        assert!(task.is_open() || task.waiting == Waiting::Nothing);
    }
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for task in tasks {
        newest.insert(&task.reference, task.seq);
    }
    for (reference, seq) in newest {
        assert_eq!(run.index.exact(reference), Some(seq), "index: {reference}");
    }
    assert!(execution.backlog.iter().all(|seq| run.task(*seq).is_some()));
}

fn check_fold(world: &World, run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    let run_id = run.run_id();
    let fold = &world.folds[run_id];
    let value = |stored: &Stored| match stored.get() {
        Ok(value) => Value::clone(value),
        Err(reference) => {
            let event = &world.events[run_id][usize::try_from(reference.event.get()).unwrap() - 1];
            let member = format!("{:?}", reference.member).to_lowercase();
            event[member].clone()
        }
    };
    let of_run = |key: PartKey| match run.parts.get(&key) {
        Some(Part::Value(stored)) => value(stored),
        _ => Value::Object(serde_json::Map::new()),
    };
    assert_eq!(fold.status, status_of(&run.core).as_str());
    assert_eq!(fold.output, of_run(PartKey::Output));
    assert_eq!(fold.variables, of_run(PartKey::Variables));
    assert_eq!(fold.input, of_run(PartKey::Input));
    let by_seq: BTreeMap<u64, &Arc<ExecutionTask>> =
        tasks.iter().map(|task| (task.seq, *task)).collect();
    for (seq, folded) in &fold.tasks {
        let Some(task) = by_seq.get(seq) else {
            // Only a loop that keeps its last iterations deletes records.
            let dropped = folded.iteration > 0 && !is_open(&folded.status);
            assert!(dropped, "task {seq} is missing");
            continue;
        };
        let found = super::fold::FoldedTask {
            id: task.id.to_string(),
            reference: task.reference.clone(),
            status: task.status.as_str().to_owned(),
            reason: task.reason.clone(),
            worker: task.worker_id.clone(),
            polls: u64::from(task.poll_count),
            iteration: u64::from(task.iteration),
            retry_count: u64::from(task.retry_count),
            retried: task.retried,
            sub_workflow: task.sub_workflow_id.as_ref().map(ToString::to_string),
            input: value(&task.input),
            output: value(&task.output),
        };
        assert_eq!(found, *folded, "the events give task {seq}");
    }
    assert_eq!(fold.last, run.core.execution.as_ref().unwrap().last_seq);
    let kept = |seq: &u64| fold.removed.contains(seq) && by_seq.contains_key(seq);
    assert!(
        !(1..=fold.last).any(|seq| kept(&seq)),
        "a removed task is gone"
    );
}

fn check_rows(world: &World, run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    let rows = world
        .rows
        .values()
        .filter(|row| row.run_id == *run.run_id());
    for row in rows.filter(|row| row.status.is_open()) {
        let task = run.task(row.sequence.get());
        assert!(
            task.is_some_and(|task| task.id == row.task_id),
            "a row without a task"
        );
    }
    for task in tasks {
        let row = &world.rows[&task.id];
        let expected = match (&task.waiting, task.status) {
            (Waiting::Queued { offered: true, .. }, _) => RowStatus::Ready,
            (Waiting::Leased | Waiting::Serving { .. }, _) => RowStatus::Leased,
            (_, TaskStatus::Scheduled | TaskStatus::InProgress) => RowStatus::Scheduled,
            (_, TaskStatus::Canceled) => RowStatus::Cancelled,
            (_, status) if status.is_successful() => RowStatus::Completed,
            _ => RowStatus::Failed,
        };
        assert_eq!(row.status, expected, "row of {}", task.reference);
        assert_eq!(row.run_id, *run.run_id());
        assert_eq!(row.sequence.get(), task.seq);
        let queue = match &task.domain {
            Some(domain) => format!("{domain}:{}", task.task_type),
            None => task.task_type.clone(),
        };
        assert_eq!(row.queue.as_str(), queue);
        let owner = row.lease_owner.as_ref().map(|owner| owner.as_str());
        assert_eq!(
            owner,
            task.worker_id
                .as_deref()
                .filter(|_| task.waiting.is_leased())
        );
        if let Waiting::Queued { visible_at, .. } = task.waiting {
            assert_eq!(row.available_at, visible_at);
        }
    }
}

/// A join and a loop count the tasks that they wait for.
fn check_counters(world: &World, run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    let is_unfiled = |task: &ExecutionTask| run.parts.contains_key(&PartKey::Task(task.seq));
    for task in tasks.iter().filter(|task| task.is_open()) {
        match task.waiting {
            Waiting::Tasks(count) => {
                let waits = join_waits(world, run, task);
                assert_eq!(
                    count,
                    waits.len() as u64,
                    "{} waits for {waits:?}",
                    task.reference
                );
            }
            Waiting::Iteration(count) => {
                let body = tasks.iter().filter(|body| {
                    body.looped_by == Some(task.seq)
                        && body.iteration == task.iteration
                        && is_unfiled(body)
                });
                assert_eq!(count, body.count() as u64, "tasks in {}", task.reference);
            }
            _ => {}
        }
    }
}

/// Returns the references that a join waits for.
fn join_waits(world: &World, run: &Run, join: &ExecutionTask) -> BTreeSet<String> {
    let fold = &world.folds[run.run_id()].tasks[&join.seq];
    let list = fold.input["joinOn"].as_array().unwrap();
    let references = list.iter().map(|name| match join.looped_by {
        Some(_) => format!("{}__{}", name.as_str().unwrap(), join.iteration),
        None => name.as_str().unwrap().to_owned(),
    });
    references
        .filter(|reference| {
            let newest = run.index.exact(reference).and_then(|seq| run.task(seq));
            !newest.is_some_and(|task| run.parts.contains_key(&PartKey::Past(task.seq)))
        })
        .collect()
}

fn check_alarm(run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    let mut due: Vec<Timestamp> = Vec::new();
    for part in run.parts.values() {
        if let Part::Outbox(message) = part {
            due.push(message.retry_at);
        }
    }
    if run.core.closed.is_none() {
        due.extend(run.core.execution.as_ref().unwrap().deadline_at);
        due.extend(tasks.iter().flat_map(|task| due_times(task)));
    }
    if let Some(earliest) = due.into_iter().min() {
        let alarm = run
            .core
            .alarm
            .expect("something is due, so there is an alarm");
        assert!(alarm <= earliest, "the alarm is late");
    } else {
        assert!(run.core.closed.is_none() || run.core.alarm.is_none());
    }
}

fn due_times(task: &ExecutionTask) -> Vec<Timestamp> {
    if !task.is_open() {
        return Vec::new();
    }
    let mut due = Vec::new();
    let mut add = |from: Option<Timestamp>, seconds: u64| {
        if let Some(from) = from.filter(|_| seconds > 0) {
            due.push(from.plus_seconds(seconds));
        }
    };
    let limits = &task.timeouts;
    if task.waiting.is_leased() {
        add(Some(task.updated_at), limits.response);
    }
    if limits.policy != Some(TimeoutPolicy::AlertOnly) {
        add(Some(task.first_scheduled_at), limits.total);
        add(task.started_at, limits.execution);
        if let Waiting::Queued { visible_at, .. } = task.waiting {
            add(Some(visible_at), limits.poll);
        }
    }
    match task.waiting {
        Waiting::Time(at)
        | Waiting::Serving { until: at }
        | Waiting::Queued {
            visible_at: at,
            offered: false,
        } => due.push(at),
        _ => {}
    }
    due
}

/// What is stored is read as it was, and the index follows from it.
fn check_storage(run: &Run) {
    let core = serde_json::to_string(&run.core).unwrap();
    assert_eq!(
        serde_json::from_str::<longhaul_engine::run::state::Core>(&core).unwrap(),
        run.core
    );
    for part in run.parts.values() {
        let text = serde_json::to_string(part).unwrap();
        assert_eq!(serde_json::from_str::<Part>(&text).unwrap(), *part);
    }
    let spec = Arc::clone(&run.spec);
    let read = Run::new(run.version, spec, run.core.clone(), run.parts.clone());
    assert_eq!(read.index, run.index, "the index follows from the parts");
}

fn check_closed(run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    assert!(tasks.iter().all(|task| !task.is_open()));
    assert!(run.core.execution.as_ref().unwrap().backlog.is_empty());
    let is_left = |(key, part): (&PartKey, &Part)| {
        matches!(key, PartKey::Task(_)) && part.as_task().is_some_and(|task| !task.is_skipped())
    };
    assert!(!run.parts.iter().any(is_left), "every task is filed");
}

/// An open run has something that moves it.
fn check_moves(world: &World, run: &Run, tasks: &[&Arc<ExecutionTask>]) {
    let execution = run.core.execution.as_ref().unwrap();
    let moves = |task: &ExecutionTask| match &task.waiting {
        Waiting::Queued { .. } | Waiting::Leased | Waiting::Serving { .. } | Waiting::Time(_) => {
            true
        }
        Waiting::Child(child) => world.runs.contains_key(child),
        // They wait for a caller. An EXCLUSIVE_JOIN of tasks that are never scheduled does so too.
        Waiting::Nothing => matches!(
            &*task.task_type,
            "HUMAN"
                | "WAIT"
                | "YIELD"
                | "HTTP"
                | "EVENT"
                | "PULL_WORKFLOW_MESSAGES"
                | "EXCLUSIVE_JOIN"
        ),
        // A join on a task that is never scheduled waits for an update.
        Waiting::Tasks(_) => join_waits(world, run, task)
            .iter()
            .any(|reference| run.index.exact(reference).is_none()),
        Waiting::Iteration(_) => false,
    };
    let is_moved = execution.is_new
        || !execution.backlog.is_empty()
        || tasks.iter().any(|task| task.is_open() && moves(task));
    assert!(is_moved, "nothing moves {}", world.trace(run.run_id()));
}
