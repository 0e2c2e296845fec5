//! Invariants that must hold after every step. They are checked on histories, rows and state by code that shares nothing with the
//! engine's decisions: the rules of `longhaul_engine::inspection`, which a check of a store uses, and those that need more than rows.
//! The numbers in the messages are those of `docs/protocol/invariants.md`.

mod calls;
mod family;
mod locals;
mod messages;
mod selections;
mod wakes;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{Changes, CommandRow, TaskKind, TaskStatus};
use longhaul_engine::inspection::{self, Before, ChildCall, History, RecordedEvent};
use longhaul_engine::run::start::IDLE_COMMANDS_MAX;
use longhaul_engine::run::state::{Message, Part, PartKey, Run};
use longhaul_engine::{Rejection, RunChange};
use longhaul_protocol::Reason;
use longhaul_protocol::history::Event;
use longhaul_protocol::id::{RunId, TaskId, WorkflowId};
use serde_json::Value;

pub(crate) use family::{adopted, check_all_delivered, owed};

use crate::world::World;

const TERMINAL: [&str; 6] = [
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowTimedOut",
    "WorkflowContinuedAsNew",
    "WorkflowCancelled",
    "WorkflowTerminated",
];

/// Checks the runs that a step changed.
pub(crate) fn check(world: &World, touched: &[RunId]) {
    let mut workflows = BTreeSet::new();
    for run_id in touched {
        let run = &world.runs[run_id];
        check_inspection(world, run);
        calls::check(world, run);
        locals::check(world, run);
        selections::check(world, run);
        check_run(world, run);
        check_room(world, run);
        check_commands(world, run);
        wakes::check(world, run);
        workflows.insert(run.spec.workflow_id.clone());
    }
    for workflow_id in &workflows {
        let runs = runs_of(world, workflow_id);
        check_chain(world, workflow_id, &runs);
        messages::check(world, workflow_id, &runs);
        family::check(world, &runs);
    }
}

/// 33: checks that a refusal changes nothing, except that a run past its deadline closes, and that refused commands are kept.
pub(crate) fn check_refusal(rejection: &Rejection, changes: &Changes) {
    let writes = |change: &RunChange| !change.events.is_empty() || !change.tasks.is_empty();
    // A claim that has ended for its worker is released with the refusal.
    let released = matches!(
        rejection.reason(),
        Reason::LocalActivityRetryNotDue | Reason::LocalActivityDeadlineExpired
    );
    for change in changes.runs() {
        assert!(
            released || !writes(change) || change.core.closed.is_some(),
            "33: {rejection:?} changes nothing"
        );
    }
}

/// Checks that written and promised events fit into the history of an open run. A closed one also has the events of its close.
fn check_room(world: &World, run: &Run) {
    let limit = world.limits.events_per_run;
    let most = match run.core.closed {
        Some(_) => limit + world.limits.events_per_transaction,
        None => limit,
    };
    let written = world.histories[run.run_id()].len() as u64;
    assert!(written <= most, "{written} events are over {most}");
}

/// Commands are kept without their arguments, and of those without effect only the newest.
fn check_commands(world: &World, run: &Run) {
    let rows = world.commands.values();
    let rows = rows.filter(|(run_id, _)| run_id == run.run_id());
    let mut idle = Vec::new();
    for (_, row) in rows {
        assert!(row.arguments.is_none(), "{} keeps arguments", row.sequence);
        if row.is_without_effect() {
            idle.push(row.sequence);
        }
    }
    assert!(idle.len() <= IDLE_COMMANDS_MAX, "{} are kept", idle.len());
    assert_eq!(idle, Vec::from(run.core.idle_commands.clone()));
}

/// 44: checks that only ends of calls come between the history that a worker saw and its decision.
pub(crate) fn check_decision_is_next(world: &World) {
    let run = world.run();
    let task = run.core.workflow_task.as_ref();
    let Some((task, lease)) = task.and_then(|task| Some((task, task.lease.as_ref()?))) else {
        return;
    };
    // Events that the worker itself wrote before are allowed.
    let own = |event: &Event| event.workflow_task_id.as_ref() == Some(&task.id);
    for (event, body) in events(world, run)
        .filter(|(event, _)| event.sequence > lease.observed_sequence && !own(event))
    {
        let message = ["SignalReceived", "UpdateAccepted", "UpdateApplied"];
        let timeout = event.event_type == "TimerFired" && body.get("timer_kind").is_some();
        assert!(
            !message.contains(&event.event_type) && !timeout,
            "44: {} came in between",
            event.event_type
        );
    }
}

/// Returns the events of a run with their payloads.
fn events<'a>(world: &'a World, run: &Run) -> impl Iterator<Item = (&'a Event, &'a Value)> {
    world.histories[run.run_id()]
        .iter()
        .zip(&world.bodies[run.run_id()])
}

fn runs_of<'a>(world: &'a World, workflow_id: &WorkflowId) -> Vec<&'a Run> {
    let mut runs: Vec<&Run> = world
        .runs
        .values()
        .filter(|run| run.spec.workflow_id == *workflow_id)
        .collect();
    runs.sort_by_key(|run| run.spec.run_number);
    runs
}

/// Checks the rules that a check of the store has too, with its code: 1 to 12, and others that rows alone can show.
fn check_inspection(world: &World, run: &Run) {
    let mut history = History::new(run.spec.program);
    for event in &world.histories[run.run_id()] {
        history.add(recorded(event));
    }
    let mut problems = history.finish(run);
    problems.extend(inspection::check_run(run));
    let runs = runs_of(world, &run.spec.workflow_id);
    let place = usize::try_from(run.spec.run_number).unwrap();
    let before = place.checked_sub(2).map(|place| runs[place]);
    let before = before.map(|before| {
        let events = world.histories[before.run_id()].iter().map(recorded);
        let (spec, core) = ((*before.spec).clone(), before.core.clone());
        Before::new(spec, core, commands_of(world, before), events)
    });
    let before = before.as_ref();
    let commands = commands_of(world, run);
    let messages = history.messages();
    problems.extend(inspection::check_messages(run, messages, &commands, before));
    let has_next = runs.len() > place;
    problems.extend(inspection::check_chain(run, before, has_next));
    if let Some(parent) = &run.spec.parent {
        let scheduled = world.histories[&parent.run_id]
            .iter()
            .filter(|event| event.event_type == "ChildWorkflowScheduled");
        let calls: Vec<ChildCall> = scheduled
            .filter_map(|event| ChildCall::read(&event.payload))
            .collect();
        problems.extend(inspection::check_parent(run, &calls));
    }
    assert_eq!(problems, [], "a check of the store finds a problem");
    for open in inspection::open_tasks(run) {
        let row = &world.tasks[&open.id];
        assert_eq!(row.status, open.status, "the row of task {}", open.id);
        let owner = row.lease_owner.as_ref().map(ToString::to_string);
        assert_eq!(owner, open.owner, "the owner of task {}", open.id);
    }
}

fn recorded(event: &Event) -> RecordedEvent<'_> {
    RecordedEvent {
        sequence: event.sequence.get(),
        id: event.id.as_str(),
        event_type: event.event_type,
        recorded_at: event.recorded_at,
        workflow_task_id: event.workflow_task_id.as_ref().map(TaskId::as_str),
        payload: &event.payload,
    }
}

/// Returns the rows of the commands of a run, as a store has them.
fn commands_of(world: &World, run: &Run) -> Vec<CommandRow> {
    let first = (run.run_id().clone(), 0);
    let rows = world.command_rows.range(first..);
    rows.take_while(|((run_id, _), _)| run_id == run.run_id())
        .map(|(_, row)| row.clone())
        .collect()
}

fn check_run(world: &World, run: &Run) {
    let rows = world.tasks.values();
    let open: Vec<_> = rows
        .filter(|row| row.run_id == *run.run_id() && row.status.is_open())
        .collect();
    if run.core.closed.is_some() {
        assert!(open.is_empty(), "13: a closed run has no open task");
        let left = |key: &PartKey| matches!(key, PartKey::Outcome | PartKey::Outbox(_));
        assert!(
            run.parts.keys().all(left),
            "13: nothing is open in a closed run: {:?}",
            run.parts.keys()
        );
        return;
    }
    let of_kind = |kind| open.iter().filter(move |row| row.kind == kind);
    let task = run.core.workflow_task.as_ref();
    let is_retry = |row: &&&longhaul_engine::change::TaskRow| {
        !row.sequence.is_zero() && task.is_none_or(|task| task.id != row.task_id)
    };
    let workflow: Vec<_> = of_kind(TaskKind::Workflow)
        .filter(|row| !is_retry(row))
        .collect();
    assert!(workflow.len() <= 1, "22: one open workflow task");
    assert_eq!(
        workflow.len(),
        usize::from(task.is_some()),
        "the open workflow task has a row"
    );
    let leased = task.is_some_and(|task| task.lease.is_some());
    assert_eq!(
        leased,
        workflow.iter().any(|row| row.status == TaskStatus::Leased),
        "the row agrees on the lease"
    );
    for row in &workflow {
        let asked = run.core.cancellation.is_some();
        assert!(
            row.required_capability.is_some() || !asked,
            "only capable workers get the tasks of a run that was asked to end"
        );
    }
    let mut by_call: BTreeMap<u64, usize> = BTreeMap::new();
    for row in of_kind(TaskKind::Activity) {
        *by_call.entry(row.sequence.get()).or_default() += 1;
    }
    for (sequence, count) in &by_call {
        assert_eq!(*count, 1, "22: one open task for activity {sequence}");
    }
    let activity = |key: &&PartKey| matches!(key, PartKey::Activity(_));
    assert_eq!(
        by_call.len(),
        run.parts.keys().filter(activity).count(),
        "29: every open activity has a task"
    );
    for part in run.parts.values() {
        let Part::Buffered(message) = part else {
            continue;
        };
        // Messages of streams wait for the first decision of the workflow too.
        let of_stream = matches!(&**message, Message::Signal(signal) if signal.stream.is_some());
        let undecided = run.core.handled_sequence == 0;
        assert!(
            leased || (of_stream && undecided),
            "26: messages are buffered only behind a lease"
        );
    }
}

fn check_chain(world: &World, workflow_id: &WorkflowId, runs: &[&Run]) {
    let open = runs.iter().filter(|run| run.core.closed.is_none()).count();
    assert!(open <= 1, "46: a workflow id has at most one open run");
    let numbers: Vec<u64> = runs.iter().map(|run| run.spec.run_number).collect();
    let expected: Vec<u64> = (1..=runs.len() as u64).collect();
    assert_eq!(numbers, expected, "47: run numbers are 1..k");
    let newest = runs.last().expect("a workflow has a run");
    assert_eq!(
        world.instances[workflow_id],
        *newest.run_id(),
        "47: the newest run is the current one"
    );
    for pair in runs.windows(2) {
        let closed = pair[0]
            .core
            .closed
            .as_ref()
            .expect("46: the older run is closed");
        assert_eq!(
            closed.continued_to.as_ref(),
            Some(pair[1].run_id()),
            "48: the closed run names its successor"
        );
        assert_eq!(
            pair[0].spec.execution_deadline_at, pair[1].spec.execution_deadline_at,
            "48: the deadline of the whole chain stays"
        );
        if pair[1].spec.continued_from.is_none() {
            let (_, end) = events(world, pair[0])
                .find(|(event, _)| TERMINAL.contains(&event.event_type))
                .expect("11: the run is closed");
            assert_ne!(
                end["non_retryable"], true,
                "38: a non-retryable failure is not retried"
            );
        }
    }
}
