//! The working copy of a run while a command is decided: the run as it was, overlaid with its changes so far. Only changes are
//! copied, so a decision on a run with a thousand open activities costs as much as on one with two.
//!
//! [`Draft::finish`] turns the overlay into rows and sets the alarm of the run.

mod views;

pub(crate) use views::{
    Activities, Cancelling, Children, Groups, LocalActivities, Outbox, Signals, StreamCursors,
    Timers, Updates, Waits, WorkflowTasks,
};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_protocol::history::{Event, EventPayload};
use longhaul_protocol::id::{CommandId, RunId, TaskId};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq, RequestSeq};
use longhaul_protocol::{Ids, Timestamp};
use serde_json::Value;

use crate::change::{
    Changes, CommandRow, InstanceChange, KeyClaim, LogKey, LogLine, ReusableOutput, RunChange,
    TaskRow, TaskStatus,
};
use crate::conductor::execution::index::TaskIndex;
use crate::conductor::execution::operator::event::announce::StateChange;
use crate::conductor::expression::ValueRef;
use crate::limits::Limits;
use crate::rejection::RunClosed;
use crate::run::family::child::Child;
use crate::run::state::{
    Activity, Core, Message, OpenGroup, Part, PartKey, Program, Run, Signal, Spec, Timer, Update,
    Wait,
};
use crate::{Decision, Moment};

/// Messages that the workflow has not seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unseen {
    pub(crate) messages: u64,
    /// Bytes of the arguments of the signals among them.
    pub(crate) signal_bytes: u64,
}

pub(crate) struct Draft<'a> {
    base: Option<&'a Run>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) core: Core,
    changed: BTreeMap<PartKey, Option<Part>>,
    /// Tasks of a definition run that this draft added.
    pub(crate) added: TaskIndex,
    /// All tasks of a definition run, once this draft removed some.
    pub(crate) index: Option<TaskIndex>,
    /// A task that is scheduled because a caller asked for it.
    pub(crate) again: Option<TaskId>,
    /// Large values of a definition run that events of this draft contain.
    pub(crate) new_values: BTreeMap<ValueRef, Arc<Value>>,
    pub(crate) events: Vec<Event>,
    pub(crate) tasks: BTreeMap<TaskId, TaskRow>,
    pub(crate) deleted_tasks: BTreeSet<TaskId>,
    pub(crate) commands: Vec<CommandRow>,
    pub(crate) deleted_commands: Vec<RequestSeq>,
    pub(crate) logs: Vec<(LogKey, Option<LogLine>)>,
    pub(crate) instance: Option<InstanceChange>,
    pub(crate) key_claim: Option<KeyClaim>,
    pub(crate) created: Vec<RunChange>,
    /// Outputs of tasks of a definition run that later tasks may take.
    pub(crate) outputs: Vec<ReusableOutput>,
    /// Changes of tasks of a definition run that the definition publishes as events, until the pass has published them.
    pub(crate) state_changes: Vec<StateChange>,
    pub(crate) ids: Ids,
    pub(crate) now: Timestamp,
    pub(crate) limits: &'a Limits,
    /// The cause of the events being written.
    pub(crate) cause: Cause,
}

/// The command, task or caller that writes events now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause {
    pub(crate) task_id: Option<TaskId>,
    pub(crate) command_id: Option<CommandId>,
    pub(crate) principal: Option<String>,
}

impl<'a> Draft<'a> {
    pub(crate) fn of(run: &'a Run, moment: Moment<'a>) -> Self {
        Self::with(
            Some(run),
            Arc::clone(&run.spec),
            run.core.clone(),
            Ids::new(moment.now, moment.entropy),
            moment.now,
            moment.limits,
        )
    }

    /// Returns the draft of a run that does not exist yet.
    pub(crate) fn new_run(
        spec: Arc<Spec>,
        core: Core,
        ids: Ids,
        now: Timestamp,
        limits: &'a Limits,
    ) -> Self {
        Self::with(None, spec, core, ids, now, limits)
    }

    fn with(
        base: Option<&'a Run>,
        spec: Arc<Spec>,
        core: Core,
        ids: Ids,
        now: Timestamp,
        limits: &'a Limits,
    ) -> Self {
        Self {
            base,
            spec,
            core,
            changed: BTreeMap::new(),
            added: TaskIndex::default(),
            index: None,
            again: None,
            new_values: BTreeMap::new(),
            events: Vec::new(),
            tasks: BTreeMap::new(),
            deleted_tasks: BTreeSet::new(),
            commands: Vec::new(),
            deleted_commands: Vec::new(),
            logs: Vec::new(),
            instance: None,
            key_claim: None,
            created: Vec::new(),
            outputs: Vec::new(),
            state_changes: Vec::new(),
            ids,
            now,
            limits,
            cause: Cause::default(),
        }
    }

    pub(crate) fn run_id(&self) -> &RunId {
        &self.spec.run_id
    }

    pub(crate) fn is_open(&self) -> bool {
        self.core.closed.is_none()
    }

    /// Appends one event and returns its sequence.
    pub(crate) fn append(&mut self, payload: EventPayload) -> HistorySeq {
        let text = serde_json::to_string(&payload)
            .expect("event payloads are plain data with string keys");
        let sequence = self.core.last_history_sequence.next();
        // Invariant: recording times never step back within a run, even when the clock does.
        let recorded_at = self.now.max(self.core.last_event_at);
        let event_type = payload.event_type();
        self.core.last_history_sequence = sequence;
        self.core.last_event_at = recorded_at;
        self.core.history_size_bytes += (event_type.len() + text.len()) as u64;
        let id = self.ids.mint();
        self.events.push(Event {
            id,
            sequence,
            event_type,
            payload: text,
            recorded_at,
            workflow_task_id: self.cause.task_id.clone(),
            workflow_command_id: self.cause.command_id.clone(),
            principal: self.cause.principal.clone(),
        });
        sequence
    }

    pub(crate) fn part(&self, key: PartKey) -> Option<&Part> {
        match self.changed.get(&key) {
            Some(changed) => changed.as_ref(),
            None => self.base.and_then(|run| run.parts.get(&key)),
        }
    }

    pub(crate) fn put(&mut self, key: PartKey, part: Part) {
        self.changed.insert(key, Some(part));
    }

    pub(crate) fn remove(&mut self, key: PartKey) {
        if self.base.is_some_and(|run| run.parts.contains_key(&key)) {
            self.changed.insert(key, None);
        } else {
            self.changed.remove(&key);
        }
    }

    /// Returns every part as it is now, ascending by key.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&PartKey, &Part)> {
        let base = self
            .base
            .into_iter()
            .flat_map(|run| run.parts.iter())
            .filter(|(key, _)| !self.changed.contains_key(key));
        let changed = self
            .changed
            .iter()
            .filter_map(|(key, part)| part.as_ref().map(|part| (key, part)));
        Merge {
            left: base.peekable(),
            right: changed.peekable(),
        }
    }

    /// Returns the parts from one key to another, as they are now, ascending.
    pub(crate) fn parts_between(
        &self,
        first: PartKey,
        last: PartKey,
    ) -> impl Iterator<Item = (&PartKey, &Part)> {
        let base = self
            .base
            .into_iter()
            .flat_map(move |run| run.parts.range(first..=last))
            .filter(|(key, _)| !self.changed.contains_key(key));
        let changed = self
            .changed
            .range(first..=last)
            .filter_map(|(key, part)| part.as_ref().map(|part| (key, part)));
        Merge {
            left: base.peekable(),
            right: changed.peekable(),
        }
    }

    /// Returns the index of the tasks that were there before this draft.
    pub(crate) fn base_index(&self) -> Option<&TaskIndex> {
        self.base.map(|run| &run.index)
    }

    /// Returns the run as it would be after this draft.
    pub(crate) fn preview(&self) -> Run {
        let parts = self.parts().map(|(key, part)| (*key, part.clone()));
        Run::new(
            0,
            Arc::clone(&self.spec),
            self.core.clone(),
            parts.collect(),
        )
    }

    /// Returns an upper bound of the number of parts as they are now.
    pub(crate) fn part_count_max(&self) -> usize {
        self.base.map_or(0, |run| run.parts.len()) + self.changed.len()
    }

    pub(crate) fn activity(&self, sequence: CommandSeq) -> Option<&Activity> {
        self.part(PartKey::Activity(sequence))
            .and_then(Part::as_activity)
    }

    pub(crate) fn timer(&self, sequence: CommandSeq) -> Option<&Timer> {
        self.part(PartKey::Timer(sequence)).and_then(Part::as_timer)
    }

    pub(crate) fn wait(&self, sequence: CommandSeq) -> Option<&Wait> {
        self.part(PartKey::Wait(sequence)).and_then(Part::as_wait)
    }

    pub(crate) fn signal(&self, command_sequence: RequestSeq) -> Option<&Signal> {
        self.part(PartKey::Signal(command_sequence))
            .and_then(Part::as_signal)
    }

    pub(crate) fn open_group(&self, base: CommandSeq) -> Option<&OpenGroup> {
        self.part(PartKey::Group(base)).and_then(Part::as_group)
    }

    pub(crate) fn open_activities(&self) -> impl Iterator<Item = &Activity> {
        self.parts().filter_map(|(_, part)| part.as_activity())
    }

    pub(crate) fn open_timers(&self) -> impl Iterator<Item = &Timer> {
        self.parts().filter_map(|(_, part)| part.as_timer())
    }

    pub(crate) fn open_waits(&self) -> impl Iterator<Item = &Wait> {
        self.parts().filter_map(|(_, part)| part.as_wait())
    }

    pub(crate) fn open_signals(&self) -> impl Iterator<Item = &Signal> {
        self.parts().filter_map(|(_, part)| part.as_signal())
    }

    pub(crate) fn open_updates(&self) -> impl Iterator<Item = &Update> {
        self.parts().filter_map(|(_, part)| part.as_update())
    }

    /// Returns the open children of this run and of the runs before it.
    pub(crate) fn open_children(&self) -> Vec<Child> {
        self.parts()
            .filter_map(|(_, part)| part.as_child())
            .cloned()
            .collect()
    }

    /// Returns whether a worker holds the workflow task.
    pub(crate) fn is_leased(&self) -> bool {
        self.core
            .workflow_task
            .as_ref()
            .is_some_and(|task| task.lease.is_some())
    }

    /// Returns the messages that wait behind the lease, in command order.
    pub(crate) fn buffered(&self) -> Vec<Message> {
        self.parts()
            .filter_map(|(_, part)| part.as_buffered())
            .cloned()
            .collect()
    }

    /// Counts the messages that arrived behind the leased task and were not shown to it.
    pub(crate) fn unseen(&self) -> Unseen {
        let mut unseen = Unseen::default();
        for message in self.parts().filter_map(|(_, part)| part.as_buffered()) {
            unseen.messages += 1;
            if let Message::Signal(signal) = message {
                unseen.signal_bytes += signal.arguments.blob().len() as u64;
            }
        }
        unseen
    }

    /// Returns when the run next needs attention without a call.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        if !self.is_open() {
            let messages = self
                .parts_between(PartKey::Outbox(0), PartKey::Outbox(u64::MAX))
                .filter_map(|(_, part)| part.as_outbox_message());
            return messages.map(|message| message.retry_at).min();
        }
        match self.spec.program {
            Program::Code => self.next_due_of_code(),
            Program::Definition => self.next_due_of_definition(),
        }
    }

    /// A definition run waits for its deadline, its open tasks and its outbox. A run with work left is due at once.
    fn next_due_of_definition(&self) -> Option<Timestamp> {
        let messages = self.parts_between(PartKey::Outbox(0), PartKey::Outbox(u64::MAX));
        let tasks = self.parts_between(PartKey::Task(0), PartKey::Task(u64::MAX));
        let parts = messages.chain(tasks).map(|(_, part)| part);
        self.next_due_of(parts)
    }

    /// Returns when a definition run is next due by itself or by one of these parts.
    fn next_due_of<'p>(&self, parts: impl Iterator<Item = &'p Part>) -> Option<Timestamp> {
        let execution = self.execution();
        let has_work = !execution.paused && (execution.is_new || !execution.backlog.is_empty());
        let due = earliest(execution.deadline_at, has_work.then_some(self.now));
        parts.fold(due, |due, part| {
            let message = part.as_outbox_message().map(|message| message.retry_at);
            let task = part.as_task().and_then(|task| task.next_due());
            earliest(due, earliest(message, task))
        })
    }

    fn next_due_of_code(&self) -> Option<Timestamp> {
        let mut due = earliest(self.spec.run_deadline_at, self.spec.execution_deadline_at);
        due = earliest(
            due,
            self.core
                .cancellation
                .as_ref()
                .map(|cancellation| cancellation.cleanup_deadline_at),
        );
        let leased = match &self.core.workflow_task {
            Some(task) => {
                match &task.lease {
                    Some(lease) => due = earliest(due, Some(lease.expires_at)),
                    None if !task.offered => due = earliest(due, Some(task.available_at)),
                    None => due = earliest(due, task.held.as_ref().map(|held| held.until)),
                }
                task.lease.is_some()
            }
            None => false,
        };
        for (_, part) in self.parts() {
            due = earliest(
                due,
                match part {
                    Part::Activity(activity) => activity.next_due(),
                    Part::LocalActivity(local) => local.next_due(leased),
                    Part::Timer(timer) => timer.next_due(leased),
                    Part::Outbox(message) => Some(message.retry_at),
                    Part::Arguments(_)
                    | Part::Wait(_)
                    | Part::Signal(_)
                    | Part::Update(_)
                    | Part::Buffered(_)
                    | Part::Child(_)
                    | Part::Adopted(_)
                    | Part::Group(_)
                    | Part::Member(_)
                    | Part::Outcome(_)
                    | Part::Task(_)
                    | Part::Past(_)
                    | Part::Value(_)
                    | Part::Inbox(_) => None,
                },
            );
        }
        due
    }

    /// Sets the alarm. The stored alarm may be early, never late: it is moved to a later time only when it fires, which saves an
    /// index write on almost every transition.
    fn set_alarm(&mut self) {
        let is_early = self.core.alarm.is_none_or(|alarm| alarm > self.now);
        let due = match self.spec.program {
            // The stored alarm is early enough for everything that did not change, so a run with thousands of open tasks need not
            // visit them all.
            Program::Definition if self.is_open() && is_early => {
                self.next_due_of(self.changed.values().flatten())
            }
            Program::Definition | Program::Code => self.next_due(),
        };
        self.core.alarm = match (due, self.core.alarm) {
            (due, _) if !self.is_open() => due,
            (due, Some(alarm)) if alarm <= self.now => due,
            (Some(due), Some(alarm)) => Some(due.min(alarm)),
            (None, Some(alarm)) => Some(alarm),
            (due, None) => due,
        };
    }

    /// Returns the rows of this draft.
    pub(crate) fn into_change(mut self) -> (Box<RunChange>, Vec<RunChange>) {
        self.local_activities().restore_tasks();
        self.set_alarm();
        let sets_search_attributes = match self.base {
            Some(run) => !Arc::ptr_eq(&run.core.search_attributes, &self.core.search_attributes),
            None => !self.core.search_attributes.is_empty(),
        };
        let change = RunChange {
            spec: self.spec,
            base_version: self.base.map(|run| run.version),
            core: self.core,
            parts: self.changed.into_iter().collect(),
            events: self.events,
            deleted_tasks: (self.deleted_tasks.into_iter())
                .filter(|id| !self.tasks.contains_key(id))
                .collect(),
            tasks: self.tasks.into_values().collect(),
            commands: self
                .commands
                .into_iter()
                .map(CommandRow::without_arguments)
                .collect(),
            deleted_commands: self.deleted_commands,
            instance: self.instance,
            key_claim: self.key_claim,
            sets_search_attributes,
            logs: self.logs,
            outputs: self.outputs,
        };
        (Box::new(change), self.created)
    }

    /// Returns everything that this draft changed.
    pub(crate) fn into_changes(self) -> Changes {
        let (run, created) = self.into_change();
        Changes {
            run: Some(run),
            created,
            ..Changes::default()
        }
    }

    /// Returns the decision: everything that this draft changed, with the reply to the caller.
    pub(crate) fn finish<R>(self, reply: Result<R, crate::Rejection>) -> Decision<R> {
        Decision {
            changes: self.into_changes(),
            reply,
        }
    }

    /// Returns the refusal of a worker's call because this draft closed the run.
    pub(crate) fn just_closed(&self) -> RunClosed {
        RunClosed {
            status: self.core.status,
            closed: self.core.closed.clone().expect("the run was just closed"),
            task_status: TaskStatus::Cancelled,
            lease_owner: None,
            lease_expires_at: None,
        }
    }
}

pub(crate) fn earliest(left: Option<Timestamp>, right: Option<Timestamp>) -> Option<Timestamp> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (some, None) | (None, some) => some,
    }
}

/// Merges two ascending sequences of parts that have no key in common.
struct Merge<L: Iterator, R: Iterator> {
    left: std::iter::Peekable<L>,
    right: std::iter::Peekable<R>,
}

impl<'a, L, R> Iterator for Merge<L, R>
where
    L: Iterator<Item = (&'a PartKey, &'a Part)>,
    R: Iterator<Item = (&'a PartKey, &'a Part)>,
{
    type Item = (&'a PartKey, &'a Part);

    fn next(&mut self) -> Option<Self::Item> {
        match (self.left.peek(), self.right.peek()) {
            (Some((left, _)), Some((right, _))) if left < right => self.left.next(),
            (_, Some(_)) => self.right.next(),
            (_, None) => self.left.next(),
        }
    }
}
