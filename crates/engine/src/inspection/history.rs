//! Folds the events of a run. The modules beside it follow what the events are about.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_protocol::Timestamp;
use serde::de::IgnoredAny;

use super::calls::{CallKeys, Calls};
use super::family::Children;
use super::messages::Messages;
use super::selections::Selections;
use super::{Problem, ProblemKind, Problems};
use crate::run::state::{Core, Part, PartKey, Program, Run};

/// An event as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct RecordedEvent<'a> {
    pub sequence: u64,
    pub id: &'a str,
    pub event_type: &'a str,
    pub recorded_at: Timestamp,
    /// The workflow task whose completion wrote it.
    pub workflow_task_id: Option<&'a str>,
    pub payload: &'a str,
}

/// Events that close a run of code. It has one of them.
const TERMINAL: [&str; 6] = [
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowTimedOut",
    "WorkflowContinuedAsNew",
    "WorkflowCancelled",
    "WorkflowTerminated",
];

/// Events that may follow the terminal event of a run of code.
const TRAILING: [&str; 5] = [
    "UpdateCompleted",
    "ParentClosePolicyApplied",
    "ParentClosePolicyFailed",
    "ArchiveRequested",
    "WorkflowArchived",
];

/// What a history has shown so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    program: Program,
    last: u64,
    bytes: u64,
    last_at: Timestamp,
    ids: BTreeSet<String>,
    starts: u64,
    /// The first events, until the start.
    begins_right: bool,
    /// Terminal events.
    ends: u64,
    /// Whether the last event that opens or closes a definition run closed it.
    has_ended: bool,
    calls: Calls,
    selections: Selections,
    messages: Messages,
    children: Children,
    wakes: Wakes,
    problems: Problems,
}

/// The newest events that a workflow must look at.
#[derive(Clone, Debug, Default)]
struct Wakes {
    /// The newest end of a call, choice or start.
    call: u64,
    signal: u64,
    /// The newest event that is not about an update.
    other: u64,
}

impl History {
    /// Returns a history without events.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            ..Self::default()
        }
    }

    /// Adds the next event.
    pub fn add(&mut self, event: RecordedEvent<'_>) {
        let RecordedEvent {
            sequence,
            id,
            event_type,
            recorded_at,
            payload,
            ..
        } = event;
        if sequence != self.last + 1 {
            let detail = format!("event {sequence} follows event {}", self.last);
            self.problems.found(ProblemKind::HistoryGap, detail);
        }
        if !self.ids.insert(id.to_owned()) {
            let detail = format!("event {sequence} has the id {id} of another one");
            self.problems.found(ProblemKind::EventIdRepeated, detail);
        }
        if self.last > 0 && recorded_at < self.last_at {
            let detail = format!("event {sequence} was recorded before the one before it");
            self.problems.found(ProblemKind::EventTimeStepsBack, detail);
        }
        match self.program {
            Program::Code => self.add_of_code(&event),
            Program::Definition => self.add_of_definition(&event),
        }
        self.last = sequence;
        self.last_at = recorded_at;
        self.bytes += (event_type.len() + payload.len()) as u64;
    }

    /// Returns the signals and updates of the history.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Compares the history with the state of its run. Returns everything that was found.
    pub fn finish(&self, run: &Run) -> Vec<Problem> {
        let mut problems = self.problems.clone();
        self.compare(&run.core, &mut problems);
        if self.program == Program::Code {
            self.calls.finish(&mut problems);
            self.selections.finish(&mut problems);
            self.messages.finish(run, &mut problems);
            self.children.finish(run, &mut problems);
            if run.core.closed.is_none() {
                self.wakes.finish(run, &mut problems);
            }
        }
        problems.into_list()
    }

    fn compare(&self, core: &Core, problems: &mut Problems) {
        let end = core.last_history_sequence.get();
        if end != self.last {
            let detail = format!("the history ends at {}, and the state has {end}", self.last);
            problems.found(ProblemKind::HistoryDiffers, detail);
        }
        if core.history_size_bytes != self.bytes {
            let detail = format!(
                "the history has {} bytes, and the state has {}",
                self.bytes, core.history_size_bytes
            );
            problems.found(ProblemKind::HistoryDiffers, detail);
        }
        if !self.begins_right || self.starts != 1 {
            let detail = format!("the history has {} start events, or not first", self.starts);
            problems.found(ProblemKind::StartEventWrong, detail);
        }
        let is_closed = core.closed.is_some();
        let is_right = match self.program {
            Program::Code => self.ends == u64::from(is_closed),
            Program::Definition => self.has_ended == is_closed,
        };
        if !is_right {
            let word = if is_closed { "closed" } else { "open" };
            let detail = format!("the run is {word} and has {} terminal events", self.ends);
            problems.found(ProblemKind::TerminalEventWrong, detail);
        }
        let highest = core.last_command_sequence.get();
        if self.program == Program::Code && highest != self.calls.highest {
            let detail = format!(
                "the highest command sequence is {}, and the state has {highest}",
                self.calls.highest
            );
            problems.found(ProblemKind::HistoryDiffers, detail);
        }
    }

    fn add_of_definition(&mut self, event: &RecordedEvent<'_>) {
        // A payload may be large. It is not kept, only checked to be an object.
        self.problems.parse::<BTreeMap<String, IgnoredAny>>(event);
        match event.event_type {
            "ExecutionStarted" => {
                self.starts += 1;
                self.begins_right = event.sequence == 1;
                self.has_ended = false;
            }
            "ExecutionEnded" => {
                self.ends += 1;
                self.has_ended = true;
            }
            "ExecutionReopened" => {
                if !self.has_ended {
                    let detail = format!("event {} opens a run that has not ended", event.sequence);
                    self.problems.found(ProblemKind::TerminalEventWrong, detail);
                }
                self.has_ended = false;
            }
            "ExecutionPaused" | "ExecutionResumed" => self.has_ended = false,
            _ => {}
        }
    }

    fn add_of_code(&mut self, event: &RecordedEvent<'_>) {
        let (sequence, event_type) = (event.sequence, event.event_type);
        if event_type == "WorkflowStarted" {
            self.starts += 1;
            self.begins_right |= sequence == 1 || (sequence == 2 && self.begins_right);
        } else if sequence == 1 {
            // A start that was accepted comes before the start itself.
            self.begins_right = event_type == "StartAccepted";
        } else if sequence == 2 && self.starts == 0 {
            self.begins_right = false;
        }
        if TERMINAL.contains(&event_type) {
            self.ends += 1;
        } else if self.ends > 0 && !TRAILING.contains(&event_type) {
            let detail = format!("event {sequence}, {event_type}, follows the end of the run");
            self.problems.found(ProblemKind::EventAfterEnd, detail);
        }
        let Some(keys) = self.problems.parse::<CallKeys>(event) else {
            return;
        };
        self.calls.add(event, &keys, &mut self.problems);
        self.selections.add(event, &keys, &mut self.problems);
        self.messages.add(event, &mut self.problems);
        self.children.add(event, &mut self.problems);
        self.wakes.add(event, keys.parallel_group_path.is_some());
    }
}

impl Wakes {
    fn add(&mut self, event: &RecordedEvent<'_>, is_grouped: bool) {
        if !event.event_type.starts_with("Update") {
            self.other = event.sequence;
        }
        // The task that caused an event needs no other one for it.
        if event.workflow_task_id.is_some() {
            return;
        }
        match event.event_type {
            "ActivityCompleted" | "ActivityFailed" | "ActivityTimedOut" | "TimerFired"
            | "ChildRunCompleted" | "ChildRunFailed" | "ChildRunCancelled"
            | "ChildRunTerminated"
                if !is_grouped =>
            {
                self.call = event.sequence;
            }
            "SelectionResolved" | "WorkflowStarted" => self.call = event.sequence,
            "SignalReceived" => self.signal = event.sequence,
            _ => {}
        }
    }

    /// Checks that an open run waits for something, and that nothing it must look at was forgotten.
    fn finish(&self, run: &Run, problems: &mut Problems) {
        let core = &run.core;
        let handled = core.handled_sequence.get();
        // A worker that has seen everything and asks for nothing leaves the run to signals and operators.
        let asked_for_nothing = self.other <= handled;
        if !waits_for_something(run) && !asked_for_nothing {
            let detail = "the run is open, and nothing would ever happen";
            problems.found(ProblemKind::NothingOpen, detail.to_owned());
        }
        let task = core.workflow_task.as_ref();
        let lease = task.and_then(|task| task.lease.as_ref());
        let is_update = task.is_some_and(|task| task.is_update());
        // A task that waits for a worker sees everything. A request to end makes the worker return without a decision until its
        // work has stopped.
        if (task.is_some() && lease.is_none() && !is_update) || core.cancellation.is_some() {
            return;
        }
        // A plain lease covers everything it observed; the turn of an update covers nothing.
        let observed = match lease {
            Some(lease) if !is_update => lease.observed_sequence.get(),
            _ => handled,
        };
        // A failed group ignores signals until all members have ended.
        let is_mute = run
            .parts
            .values()
            .filter_map(Part::as_group)
            .any(|group| group.failed && group.unresolved > 0);
        let newest = self.call.max(if is_mute { 0 } else { self.signal });
        if newest > observed && core.next_wake.is_none() {
            let detail = format!("the workflow has not seen event {newest} and has no task for it");
            problems.found(ProblemKind::WakeLost, detail);
        }
    }
}

fn waits_for_something(run: &Run) -> bool {
    let is_open = |key: &PartKey| {
        matches!(
            key,
            PartKey::Activity(_)
                | PartKey::LocalActivity(_)
                | PartKey::Timer(_)
                | PartKey::Wait(_)
                | PartKey::Child(_)
                | PartKey::Update(_)
                | PartKey::Outbox(_)
        )
    };
    run.core.workflow_task.is_some()
        || run.core.cancellation.is_some()
        || run.parts.keys().any(is_open)
}
