//! Opening a definition run again. The run goes on in place: its history continues with an event that names what is removed and
//! what changes, and nothing that was recorded is rewritten.
//!
//! A reopening has four steps. The run is opened and records are removed ([`Pass::open_again`]). Containers that had ended are in
//! progress again in place, and other tasks are scheduled again ([`Pass::schedule_again`]). Tasks whose end was never followed up go
//! back to the pass ([`Pass::resume_flow`]). Then every open join and loop counts again what it waits for ([`Pass::recount`]).

pub(crate) mod rerun;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::history::{EventPayload, ExecutionReopened};
use longhaul_protocol::id::TaskId;
use serde_json::{Value, json};

use crate::change::LogKey;
use crate::conductor::definition::{Operator, Snapshot};
use crate::conductor::execution::command::start::{classifier, deadline};
use crate::conductor::execution::index::TaskIndex;
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::record::mint_task_id;
use crate::conductor::execution::state::{ExecutionTask, Waiting};
use crate::conductor::execution::value::{measured, object};
use crate::conductor::expression::EventMember;
use crate::conductor::limits::{LISTED_NAMES_MAX, LOG_LINES_MAX};
use crate::run::draft::Draft;
use crate::run::family::outbox::OutboxBody;
use crate::run::state::{Part, PartKey, Status};

/// A task that is scheduled although its reference has one, or had one a moment ago.
pub(crate) struct Again {
    reference: String,
    id: TaskId,
    pub(crate) retry_count: u32,
    pub(crate) retried_task_id: Option<TaskId>,
    /// The input that the caller gave.
    given: Option<Object>,
    /// The input of the attempt before. Members that the node resolves replace it.
    before: Object,
    /// When the wait of a WAIT began.
    pub(crate) waits_since: Option<Timestamp>,
}

impl Again {
    /// Returns the input of the task, from the one that its node resolves to.
    pub(crate) fn input(&self, resolved: Object) -> Object {
        match &self.given {
            Some(given) => given.clone(),
            None => {
                let mut input = self.before.clone();
                input.extend(resolved);
                input
            }
        }
    }
}

/// How a task is scheduled again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// As another attempt, beside the record of the one before.
    New,
    /// With the id of the record that was removed.
    Same,
}

/// What opens a run, and what changes with it.
#[derive(Default)]
pub(crate) struct Opening {
    pub(crate) cause: &'static str,
    pub(crate) removed: BTreeSet<u64>,
    pub(crate) input: Option<Object>,
    pub(crate) correlation_id: Option<String>,
    /// The definition, if it changes.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// All tasks are removed, and the run begins as it did at first.
    pub(crate) is_whole: bool,
}

/// Attempts whose successors were removed, by id.
pub(crate) type Earlier = BTreeMap<TaskId, u64>;

impl Pass<'_, '_> {
    /// Returns what is known about the task that is scheduled again at a place.
    pub(crate) fn again_at(&self, place: &Place) -> Option<&Again> {
        let again = self.again.as_ref()?;
        (again.reference == place.reference()).then_some(again)
    }

    /// Returns the id for a new task of this place.
    pub(crate) fn id_of_task(&mut self, place: &Place) -> TaskId {
        match self.again_at(place) {
            Some(again) => again.id.clone(),
            None => mint_task_id(&mut self.draft),
        }
    }

    /// Returns how many seconds a new task of this place waits before it begins. One that is scheduled again does not wait.
    pub(crate) fn start_delay(&self, place: &Place) -> u64 {
        match self.again_at(place) {
            Some(_) => 0,
            None => u64::try_from(place.node().task().start_delay).unwrap_or(0),
        }
    }

    /// Opens the run, and the parent with it. Returns the attempts that are the newest again.
    pub(crate) fn open_again(&mut self, opening: Opening) -> Earlier {
        let Opening {
            cause,
            removed,
            input,
            correlation_id,
            snapshot,
            is_whole,
        } = opening;
        if let Some(snapshot) = &snapshot {
            self.snapshot = Arc::clone(snapshot);
        }
        let now = self.draft.now;
        let deadline = deadline(&self.snapshot, now);
        let definition = self.snapshot.definition();
        let variables = is_whole.then(|| measured(definition.variables.clone()));
        let (version, kind) = (definition.version, classifier(definition));
        let input = input.map(measured);
        let life = self.draft.execution().life + 1;
        let sequence = self.draft.append(EventPayload::ExecutionReopened(Box::new(
            ExecutionReopened {
                cause,
                life,
                removed: ranges(&removed),
                version: snapshot.as_ref().map(|_| version),
                snapshot: snapshot.as_ref().map(|snapshot| snapshot.hash().into()),
                correlation_id: correlation_id.clone(),
                input: input.as_ref().map(|(value, _)| Arc::clone(value)),
                variables: variables.as_ref().map(|(value, _)| Arc::clone(value)),
            },
        )));
        for (value, key, member) in [
            (input, PartKey::Input, EventMember::Input),
            (variables, PartKey::Variables, EventMember::Variables),
        ] {
            if let Some((value, bytes)) = value {
                let stored = self.draft.keep(&value, bytes, sequence, member);
                self.draft.put(key, Part::Value(stored));
            }
        }
        self.draft.remove(PartKey::Output);
        self.draft.core.closed = None;
        self.draft.core.status = Status::Running;
        let execution = self.draft.execution_mut();
        execution.life = life;
        execution.reason = None;
        execution.paused = false;
        execution.backlog.clear();
        execution.failed_references.clear();
        execution.failed_names.clear();
        execution.deadline_at = deadline;
        if let Some(snapshot) = &snapshot {
            execution.version = version;
            execution.snapshot = snapshot.hash().into();
            execution.classifier = kind;
        }
        if let Some(correlation_id) = correlation_id {
            execution.correlation_id = Some(correlation_id);
        }
        if is_whole {
            execution.is_new = true;
            execution.has_dynamic_fork = false;
            execution.last_retried_at = None;
            execution.first_seq = execution.last_seq;
        } else {
            execution.last_retried_at = Some(now);
        }
        let earlier = self.draft.remove_tasks(&removed);
        // A run of code that called this one has its result, or gets the first one that arrives.
        let parent = self.draft.spec.parent.as_deref();
        if parent.is_some_and(|parent| !parent.other_family) {
            let body = OutboxBody::ExecutionReopened { life };
            self.draft.outbox().enqueue(body);
        }
        earlier
    }

    /// Returns the newest task of each reference that failed or was cancelled, oldest first, as if the removed ones were gone. In a
    /// loop only the tasks of its present iteration count.
    pub(crate) fn failed_tasks(&self, removed: &BTreeSet<u64>) -> Vec<Arc<ExecutionTask>> {
        let all = self.draft.all_tasks();
        let mut newest: BTreeMap<&str, &Arc<ExecutionTask>> = BTreeMap::new();
        for task in all.iter().filter(|task| !removed.contains(&task.seq)) {
            newest.insert(&task.reference, task);
        }
        let is_failed = |task: &&Arc<ExecutionTask>| {
            let looping = task.looped_by.map(|seq| self.draft.task(seq));
            !task.is_open()
                && !task.status.is_successful()
                && looping.is_none_or(|looping| {
                    looping.is_some_and(|looping| looping.iteration == task.iteration)
                })
        };
        let mut failed: Vec<_> = newest.into_values().filter(is_failed).cloned().collect();
        failed.sort_by_key(|task| task.seq);
        failed
    }

    /// Returns whether a task goes on in place: a join, or a loop that has begun.
    pub(crate) fn is_container(&self, task: &ExecutionTask) -> bool {
        self.place_of(task).is_some_and(|place| {
            let operator = place.operator();
            matches!(
                operator,
                Operator::Join { .. } | Operator::ExclusiveJoin { .. }
            ) || (matches!(operator, Operator::DoWhile(_)) && task.iteration > 0)
        })
    }

    /// Puts a join or a loop in progress again, a loop at this iteration.
    pub(crate) fn reopen_container(&mut self, task: &ExecutionTask, iteration: u32) -> Try<()> {
        let Some(place) = self.place_of(task) else {
            return Ok(());
        };
        let operator = place.operator();
        let waiting = if matches!(operator, Operator::ExclusiveJoin { .. }) {
            Some(Waiting::Nothing)
        } else {
            let is_join = !matches!(operator, Operator::DoWhile(_));
            is_join.then_some(Waiting::Tasks(0))
        };
        if let Some(waiting) = waiting {
            self.draft.reopen_task(task.seq, Object::new(), |task| {
                task.waiting = waiting;
            });
            return Ok(());
        }
        let mut output = object(json!({"iteration": iteration}));
        let index = iteration.saturating_sub(1);
        if let Ok(Some(Some(item))) = self.item_of(&place, index as usize)? {
            output.insert("loopIndex".to_owned(), json!(index));
            output.insert("loopItem".to_owned(), item);
        }
        self.draft.reopen_task(task.seq, output, |task| {
            task.iteration = iteration;
            task.waiting = Waiting::Iteration(0);
        });
        Ok(())
    }

    /// Opens a run that ended, with another attempt of each of these tasks; joins and loops go on in place. `also` is what else goes
    /// on.
    pub(crate) fn reopen_failed(
        &mut self,
        cause: &'static str,
        failed: &[Arc<ExecutionTask>],
        also: impl FnOnce(&mut Self),
    ) -> Try<()> {
        let opening = Opening {
            cause,
            ..Opening::default()
        };
        let earlier = self.open_again(opening);
        self.note_failures(failed);
        let (containers, others): (Vec<_>, Vec<_>) =
            failed.iter().partition(|task| self.is_container(task));
        for task in containers {
            self.reopen_container(task, task.iteration)?;
        }
        also(self);
        for task in others {
            self.schedule_again(task, Attempt::New, None, &earlier)?;
        }
        self.resume_flow()?;
        self.recount()
    }

    /// The record of the run names tasks that failed and were tried again; the run no longer fails because of them.
    fn note_failures(&mut self, failed: &[Arc<ExecutionTask>]) {
        let execution = self.draft.execution_mut();
        for task in failed {
            execution.permitted_failures.retain(|seq| *seq != task.seq);
            let is_named = matches!(
                task.status,
                TaskStatus::Failed | TaskStatus::FailedWithTerminalError
            );
            let has_room = execution.failed.len() < LISTED_NAMES_MAX;
            if is_named && has_room && !execution.failed.contains(&task.seq) {
                execution.failed.push(task.seq);
            }
        }
    }

    /// Schedules a task again at its place, in the way of its operator.
    pub(crate) fn schedule_again(
        &mut self,
        old: &Arc<ExecutionTask>,
        attempt: Attempt,
        given: Option<Object>,
        earlier: &Earlier,
    ) -> Try<()> {
        if !self.draft.is_open() {
            return Ok(());
        }
        let Some(mut place) = self.place_of(old) else {
            let reason = format!("The definition has no task {}", old.reference);
            return self.fail_without_task(reason);
        };
        place.named = None;
        let keeps_input = attempt == Attempt::New || old.forked.is_some();
        let before = if keeps_input {
            self.input_before(old, &place)?
        } else {
            Object::new()
        };
        let is_cancelled_wait = old.status == TaskStatus::Canceled
            && attempt == Attempt::New
            && matches!(place.operator(), Operator::Wait);
        let (id, retry_count, retried_task_id, replaced) = match attempt {
            Attempt::New => {
                let id = mint_task_id(&mut self.draft);
                let replaced = Some(old.seq);
                (id, old.retry_count + 1, Some(old.id.clone()), replaced)
            }
            Attempt::Same => {
                let replaced = old.retried_task_id.as_ref();
                let replaced = replaced.and_then(|id| earlier.get(id).copied());
                let known = old.retried_task_id.clone().filter(|_| replaced.is_some());
                (old.id.clone(), old.retry_count, known, replaced)
            }
        };
        if let Some(replaced) = replaced {
            self.draft.change_task(replaced, |task| task.retried = true);
        }
        self.draft.again = Some(id.clone());
        self.again = Some(Again {
            reference: old.reference.clone(),
            id,
            retry_count,
            retried_task_id,
            given,
            before,
            waits_since: is_cancelled_wait.then_some(old.first_scheduled_at),
        });
        let scheduled = self.schedule(&place);
        self.again = None;
        self.draft.again = None;
        scheduled?;
        self.keep_join(old);
        Ok(())
    }

    /// The join of a dynamic fork waits for the new task as it did for the old one.
    pub(crate) fn keep_join(&mut self, old: &ExecutionTask) {
        // A join that was removed has a new one, which knows its tasks.
        let join = old
            .joined_by
            .filter(|join| self.draft.task(*join).is_some());
        if let Some(join) = join
            && let Some(new) = self.draft.task_by_reference(&old.reference)
        {
            let new = new.seq;
            self.draft
                .change_task(new, |task| task.joined_by = Some(join));
        }
    }

    /// Returns the input of an attempt, as its node gave it.
    fn input_before(&self, old: &ExecutionTask, place: &Place) -> Try<Object> {
        let mut input = self.load_object(&old.input)?;
        let operator = place.operator();
        if let Operator::SubWorkflow(_) = operator {
            let child = input.get("workflowInput").and_then(Value::as_object);
            return Ok(child.cloned().unwrap_or_default());
        }
        if matches!(operator, Operator::Switch(_) | Operator::Decision { .. }) {
            input.remove("case");
            input.remove("hasChildren");
        }
        Ok(input)
    }

    /// Goes on after tasks that ended and whose successors do not exist: the run ended in the same moment, or they were removed.
    pub(crate) fn resume_flow(&mut self) -> Try<()> {
        let past = self
            .draft
            .parts_between(PartKey::Past(0), PartKey::Past(u64::MAX));
        let past = past.filter_map(|(_, part)| part.as_task());
        let ended = past.filter(|task| task.status.is_successful() && !task.retried);
        let ended: Vec<Arc<ExecutionTask>> = ended.map(Arc::clone).collect();
        for task in ended {
            let looping = task.looped_by.map(|seq| self.draft.task(seq));
            let is_counted = looping.is_none_or(|looping| {
                looping
                    .is_some_and(|looping| looping.is_open() && looping.iteration == task.iteration)
            });
            let Some(place) = self.place_of(&task).filter(|_| is_counted) else {
                continue;
            };
            let operator = place.operator();
            // A TERMINATE ended an earlier life.
            let is_done = matches!(operator, Operator::Terminate | Operator::ForkJoinDynamic(_));
            if is_done {
                continue;
            } else if let Operator::ForkJoin { .. } = operator {
                self.restore_branches(&place)?;
            } else if let Some(next) = self.next_after(&task, &place)?
                && !self.is_reached(&next)
            {
                self.draft.unfile_task(task.seq);
                self.todo.push_back(task.seq);
            }
            if !self.draft.is_open() {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether a node has a task that the flow has come to.
    fn is_reached(&self, place: &Place) -> bool {
        let task = self.draft.task_by_reference(&place.reference());
        task.is_some_and(|task| !task.is_skipped() || self.draft.unfiled_task(task.seq).is_none())
    }

    /// Schedules the first task of each branch of a FORK, and its JOIN, where they are missing.
    fn restore_branches(&mut self, place: &Place) -> Try<()> {
        let Operator::ForkJoin { branches } = place.operator() else {
            return Ok(());
        };
        let tree = place.tree();
        let firsts = branches.iter().filter_map(|list| tree.list(*list).first());
        let join = tree.join_of(place.node);
        let nodes: Vec<_> = firsts.copied().chain(join).collect();
        for node in nodes {
            let next = place.at(node);
            if self.draft.is_open() && !self.is_reached(&next) {
                self.schedule(&next)?;
            }
        }
        Ok(())
    }

    /// Counts what every open join and loop waits for, and goes on with those that wait for nothing.
    pub(crate) fn recount(&mut self) -> Try<()> {
        if !self.draft.is_open() {
            return Ok(());
        }
        let mut in_loops: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        let unfiled = self
            .draft
            .parts_between(PartKey::Task(0), PartKey::Task(u64::MAX));
        for task in unfiled.filter_map(|(_, part)| part.as_task()) {
            if let Some(looping) = task.looped_by {
                *in_loops.entry((looping, task.iteration)).or_default() += 1;
            }
        }
        let open: Vec<Arc<ExecutionTask>> = self.draft.open_tasks().map(Arc::clone).collect();
        let mut ready = Vec::new();
        for task in open {
            let (before, waiting) = match task.waiting {
                Waiting::Tasks(before) => (before, Waiting::Tasks(self.joined_count(&task)?)),
                Waiting::Iteration(before) => {
                    let count = in_loops.get(&(task.seq, task.iteration)).copied();
                    (before, Waiting::Iteration(count.unwrap_or(0)))
                }
                Waiting::Nothing
                | Waiting::Queued { .. }
                | Waiting::Leased
                | Waiting::Serving { .. }
                | Waiting::Time(_)
                | Waiting::Child(_) => continue,
            };
            let (Waiting::Tasks(count) | Waiting::Iteration(count)) = waiting else {
                continue;
            };
            if count != before {
                self.draft
                    .change_task(task.seq, |task| task.waiting = waiting);
            }
            if count == 0 {
                ready.push(task);
            }
        }
        for task in ready {
            if matches!(task.waiting, Waiting::Tasks(_)) {
                self.join(task.seq)?;
            } else {
                self.end_iteration(task.seq)?;
            }
        }
        let exclusive = self.draft.open_tasks();
        let exclusive = exclusive.filter(|task| task.task_type == "EXCLUSIVE_JOIN");
        let exclusive: Vec<u64> = exclusive.map(|task| task.seq).collect();
        if self.draft.execution().exclusive_joins != exclusive {
            self.draft.execution_mut().exclusive_joins = exclusive;
        }
        self.look_for_exclusive_joins()
    }

    fn joined_count(&self, join: &ExecutionTask) -> Try<u64> {
        let input = self.load(&join.input)?;
        let names = input["joinOn"].as_array().map_or(&[][..], Vec::as_slice);
        let names = names.iter().filter_map(Value::as_str);
        let references: BTreeSet<String> = names.map(|bare| join.reference_beside(bare)).collect();
        let waiting = references
            .iter()
            .filter(|reference| !self.is_final(reference));
        Ok(waiting.count() as u64)
    }
}

impl Draft<'_> {
    /// Removes the records, rows and logs of tasks. Returns the attempts before them, which are the newest again.
    fn remove_tasks(&mut self, removed: &BTreeSet<u64>) -> Earlier {
        let mut earlier = Earlier::new();
        if removed.is_empty() {
            return earlier;
        }
        let mut replaced = BTreeSet::new();
        for seq in removed {
            let Some(task) = self.task(*seq).map(Arc::clone) else {
                continue;
            };
            replaced.extend(task.retried_task_id.clone());
            let first = task.log_lines.saturating_sub(LOG_LINES_MAX) + 1;
            for line in first..=task.log_lines {
                self.logs.push((LogKey { task: *seq, line }, None));
            }
            self.remove(PartKey::Task(*seq));
            self.remove(PartKey::Past(*seq));
            self.deleted_tasks.insert(task.id.clone());
        }
        let mut index = TaskIndex::default();
        for task in self.all_tasks() {
            index.add(&task);
            if task.retried && replaced.contains(&task.id) {
                earlier.insert(task.id.clone(), task.seq);
            }
        }
        self.index = Some(index);
        for seq in earlier.values() {
            self.change_task(*seq, |task| task.retried = false);
        }
        let execution = self.execution_mut();
        execution.failed.retain(|seq| !removed.contains(seq));
        execution
            .permitted_failures
            .retain(|seq| !removed.contains(seq));
        earlier
    }
}

/// Returns the first and the last number of each run of numbers.
fn ranges(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            Some(_) | None => ranges.push((*number, *number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_one_range() {
        let ranges = |numbers: &[u64]| ranges(&numbers.iter().copied().collect());
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[4]), [(4, 4)]);
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
    }
}
