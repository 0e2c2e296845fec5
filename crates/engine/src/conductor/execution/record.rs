//! Writes the tasks of a definition run: each change is an event, the record and the row for matching together, so that the three
//! cannot differ.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::history::{
    EventPayload, ExecutionTaskEnded, ExecutionTaskReopened, ExecutionTaskScheduled,
    ExecutionTaskStarted, ExecutionTaskUpdated,
};
use longhaul_protocol::id::{TaskId, TaskQueue, WorkerId};
use longhaul_protocol::sequence::CommandSeq;

use crate::change::{TaskFacts, TaskKind, TaskRow, TaskStatus as RowStatus};
use crate::conductor::execution::index::TaskIndex;
use crate::conductor::execution::operator::event::announce::Transition;
use crate::conductor::execution::state::{Execution, ExecutionTask, Waiting};
use crate::conductor::execution::value::measured;
use crate::conductor::expression::EventMember;
use crate::run::draft::Draft;
use crate::run::state::{Part, PartKey};

/// A task's own output, or no change to it.
pub(crate) type NewOutput = Option<Object>;

impl Draft<'_> {
    pub(crate) fn execution(&self) -> &Execution {
        let execution = self.core.execution.as_deref();
        execution.expect("a definition run has its execution")
    }

    pub(crate) fn execution_mut(&mut self) -> &mut Execution {
        let now = self.now;
        let execution = self.core.execution.as_deref_mut();
        let execution = execution.expect("a definition run has its execution");
        execution.updated_at = now;
        execution
    }

    /// Returns a task, open or ended.
    pub(crate) fn task(&self, seq: u64) -> Option<&Arc<ExecutionTask>> {
        self.part(PartKey::Task(seq))
            .or_else(|| self.part(PartKey::Past(seq)))
            .and_then(Part::as_task)
    }

    /// Returns a task that the pass has not filed: it is open, or what follows from its end is not decided yet.
    pub(crate) fn unfiled_task(&self, seq: u64) -> Option<&Arc<ExecutionTask>> {
        self.part(PartKey::Task(seq)).and_then(Part::as_task)
    }

    /// Returns the newest attempt of the task with this reference, iteration included.
    pub(crate) fn task_by_reference(&self, reference: &str) -> Option<&Arc<ExecutionTask>> {
        self.task(self.find(|index| index.exact(reference))?)
    }

    /// Returns the newest task of a node.
    pub(crate) fn newest_task(&self, reference: &str) -> Option<&Arc<ExecutionTask>> {
        self.task(self.find(|index| index.newest(reference))?)
    }

    /// Returns the number of a task that an index has.
    fn find(&self, look: impl Fn(&TaskIndex) -> Option<u64>) -> Option<u64> {
        match &self.index {
            Some(index) => look(index),
            None => look(&self.added).or_else(|| look(self.base_index()?)),
        }
    }

    /// Returns every task, oldest first.
    pub(crate) fn all_tasks(&self) -> Vec<Arc<ExecutionTask>> {
        let open = self.parts_between(PartKey::Task(0), PartKey::Task(u64::MAX));
        let past = self.parts_between(PartKey::Past(0), PartKey::Past(u64::MAX));
        let tasks = open.chain(past).filter_map(|(_, part)| part.as_task());
        let mut tasks: Vec<_> = tasks.map(Arc::clone).collect();
        tasks.sort_by_key(|task| task.seq);
        tasks
    }

    /// Returns the numbers of the tasks that have not ended, oldest first.
    pub(crate) fn open_task_numbers(&self) -> Vec<u64> {
        self.open_tasks().map(|task| task.seq).collect()
    }

    /// Returns the tasks that have not ended, oldest first.
    pub(crate) fn open_tasks(&self) -> impl Iterator<Item = &Arc<ExecutionTask>> {
        self.parts_between(PartKey::Task(0), PartKey::Task(u64::MAX))
            .filter_map(|(_, part)| part.as_task())
            .filter(|task| task.is_open())
    }

    /// Returns the open tasks with a number above this one, oldest first.
    pub(crate) fn tasks_after(&self, seq: u64) -> impl Iterator<Item = &Arc<ExecutionTask>> {
        self.parts_between(PartKey::Task(seq + 1), PartKey::Task(u64::MAX))
            .filter_map(|(_, part)| part.as_task())
            .filter(|task| task.is_open())
    }

    /// Adds a task. Its number, input and record times are set here.
    pub(crate) fn add_task(&mut self, mut task: ExecutionTask, input: Object) -> u64 {
        let execution = self.execution_mut();
        execution.last_seq += 1;
        let seq = execution.last_seq;
        if task.is_open() {
            execution.open_tasks += 1;
        }
        task.seq = seq;
        let (input, bytes) = measured(input);
        let sequence = self.append(EventPayload::ExecutionTaskScheduled(Box::new(
            ExecutionTaskScheduled {
                seq,
                task_id: task.id.clone(),
                reference: task.reference.clone(),
                task_type: task.task_type.clone(),
                task_def_name: task.def_name.clone(),
                status: task.status,
                iteration: task.iteration,
                retried_task_id: task.retried_task_id.clone(),
                retry_count: task.retry_count,
                visible_at: task.waiting.time(),
                domain: task.domain.clone(),
                node: task.forked.as_ref().map(|node| Arc::clone(&node.0)),
                sub_workflow_id: task.sub_workflow_id.clone(),
                input: Arc::clone(&input),
                again: self.again.as_ref() == Some(&task.id),
            },
        )));
        task.input = self.keep(&input, bytes, sequence, EventMember::Input);
        self.count_in_loop(&task, 1);
        match &mut self.index {
            Some(index) => index.add(&task),
            None => self.added.add(&task),
        }
        if task.announces {
            self.announce(seq, Transition::Scheduled);
            if task.status == TaskStatus::InProgress {
                self.announce(seq, Transition::Started);
            }
        }
        self.write_task(task);
        seq
    }

    /// Changes an open task without an event: what changed is not part of the record.
    pub(crate) fn change_task(&mut self, seq: u64, change: impl FnOnce(&mut ExecutionTask)) {
        let Some(task) = self.task(seq) else { return };
        let mut task = ExecutionTask::clone(task);
        change(&mut task);
        self.write_task(task);
    }

    /// Marks a task as handed to a worker, or begun by the server.
    pub(crate) fn start_task(&mut self, seq: u64, change: impl FnOnce(&mut ExecutionTask)) {
        let Some(task) = self.task(seq) else { return };
        let mut task = ExecutionTask::clone(task);
        let now = self.now;
        task.status = TaskStatus::InProgress;
        task.started_at = task.started_at.or(Some(now));
        task.updated_at = now;
        task.callback_after_seconds = 0;
        change(&mut task);
        self.append(EventPayload::ExecutionTaskStarted(ExecutionTaskStarted {
            seq,
            worker_id: task.worker_id.clone(),
            poll_count: task.poll_count,
            sub_workflow_id: task.sub_workflow_id.clone(),
        }));
        if task.announces {
            self.announce(seq, Transition::Started);
        }
        self.write_task(task);
    }

    /// Records a report on a task that stays open.
    pub(crate) fn update_task(
        &mut self,
        seq: u64,
        output: NewOutput,
        change: impl FnOnce(&mut ExecutionTask),
    ) {
        let Some(task) = self.task(seq) else { return };
        let mut task = ExecutionTask::clone(task);
        task.updated_at = self.now;
        change(&mut task);
        let output = output.map(measured);
        let sequence = self.append(EventPayload::ExecutionTaskUpdated(Box::new(
            ExecutionTaskUpdated {
                seq,
                status: task.status,
                callback_after_seconds: task.callback_after_seconds,
                reason: task.reason.clone(),
                worker_id: task.worker_id.clone(),
                iteration: task.iteration,
                output: output.as_ref().map(|(value, _)| Arc::clone(value)),
            },
        )));
        if let Some((value, bytes)) = output {
            task.output = self.keep(&value, bytes, sequence, EventMember::Output);
        }
        self.write_task(task);
    }

    /// Ends a task. Its successors are scheduled by the pass, which then calls [`Self::file_task`].
    pub(crate) fn end_task(
        &mut self,
        seq: u64,
        status: TaskStatus,
        reason: Option<String>,
        output: NewOutput,
    ) {
        let Some(task) = self.task(seq) else { return };
        let mut task = ExecutionTask::clone(task);
        let was_open = task.is_open();
        task.status = status;
        if reason.is_some() {
            task.reason = reason;
        }
        task.updated_at = self.now;
        task.ended_at = Some(self.now);
        task.waiting = Waiting::Nothing;
        let output = output.map(measured);
        let sequence = self.append(EventPayload::ExecutionTaskEnded(Box::new(
            ExecutionTaskEnded {
                seq,
                status,
                reason: task.reason.clone(),
                worker_id: task.worker_id.clone(),
                output: output.as_ref().map(|(value, _)| Arc::clone(value)),
                retry: None,
            },
        )));
        if let Some((value, bytes)) = output {
            self.keep_for_reuse(&task, &value, bytes);
            task.output = self.keep(&value, bytes, sequence, EventMember::Output);
        }
        if was_open {
            self.execution_mut().open_tasks -= 1;
            if task.announces {
                self.announce(seq, Transition::of_end(status));
            }
        }
        self.write_task(task);
    }

    /// Puts an ended task among the past ones: everything that follows from its end is decided.
    pub(crate) fn file_task(&mut self, seq: u64) {
        if let Some(Part::Task(task)) = self.part(PartKey::Task(seq)).cloned() {
            self.remove(PartKey::Task(seq));
            self.put(PartKey::Past(seq), Part::Past(task));
        }
    }

    /// Puts a task among those whose end is still to be processed.
    pub(crate) fn unfile_task(&mut self, seq: u64) {
        if let Some(Part::Past(task)) = self.part(PartKey::Past(seq)).cloned() {
            self.remove(PartKey::Past(seq));
            self.put(PartKey::Task(seq), Part::Task(task));
        }
    }

    /// Puts a task that has ended in progress again, with this output.
    pub(crate) fn reopen_task(
        &mut self,
        seq: u64,
        output: Object,
        change: impl FnOnce(&mut ExecutionTask),
    ) {
        let Some(task) = self.task(seq) else { return };
        let mut task = ExecutionTask::clone(task);
        if !task.is_open() {
            self.execution_mut().open_tasks += 1;
        }
        self.unfile_task(seq);
        task.status = TaskStatus::InProgress;
        task.ended_at = None;
        task.reason = None;
        task.updated_at = self.now;
        change(&mut task);
        let (output, bytes) = measured(output);
        let sequence = self.append(EventPayload::ExecutionTaskReopened(ExecutionTaskReopened {
            seq,
            iteration: task.iteration,
            output: Arc::clone(&output),
        }));
        task.output = self.keep(&output, bytes, sequence, EventMember::Output);
        self.write_task(task);
    }

    /// Adds to the number of tasks that are not processed in the present iteration of the loop of a task. Returns how many there
    /// are; `None` if no loop counts the task.
    pub(crate) fn count_in_loop(&mut self, task: &ExecutionTask, change: i64) -> Option<u64> {
        let looping = self.task(task.looped_by?)?;
        let Waiting::Iteration(count) = looping.waiting else {
            return None;
        };
        if looping.iteration != task.iteration {
            return None;
        }
        let count = count.saturating_add_signed(change);
        self.change_task(looping.seq, |task| {
            task.waiting = Waiting::Iteration(count);
        });
        Some(count)
    }

    /// Writes the record of a task, and its row if matching or lookups see a difference.
    fn write_task(&mut self, task: ExecutionTask) {
        let now = self.now;
        self.execution_mut().updated_at = now;
        let row = task_row(self, &task);
        let before = self.task(task.seq).map(|before| task_row(self, before));
        if before.as_ref() != Some(&row) {
            self.tasks.insert(task.id.clone(), row);
        }
        let (key, part) = match self.part(PartKey::Past(task.seq)) {
            Some(_) => (PartKey::Past(task.seq), Part::Past(Arc::new(task))),
            None => (PartKey::Task(task.seq), Part::Task(Arc::new(task))),
        };
        self.put(key, part);
    }
}

/// Returns the name of the queue of a task.
pub fn queue_name(task_type: &str, domain: Option<&str>) -> TaskQueue {
    match domain {
        Some(domain) => TaskQueue::from(format!("{domain}:{task_type}")),
        None => TaskQueue::from(task_type),
    }
}

/// Returns the row of a task, for matching and for lookups by id.
fn task_row(draft: &Draft<'_>, task: &ExecutionTask) -> TaskRow {
    let execution = draft.execution();
    let status = match (&task.waiting, task.status) {
        (Waiting::Queued { offered: true, .. }, _) => RowStatus::Ready,
        (Waiting::Leased | Waiting::Serving { .. }, _) => RowStatus::Leased,
        (_, TaskStatus::Scheduled | TaskStatus::InProgress) => RowStatus::Scheduled,
        (_, TaskStatus::Completed | TaskStatus::CompletedWithErrors | TaskStatus::Skipped) => {
            RowStatus::Completed
        }
        (_, TaskStatus::Canceled) => RowStatus::Cancelled,
        (_, TaskStatus::Failed | TaskStatus::TimedOut | TaskStatus::FailedWithTerminalError) => {
            RowStatus::Failed
        }
    };
    let leased = status == RowStatus::Leased;
    let response = task
        .deadlines()
        .into_iter()
        .flatten()
        .map(|(_, at)| at)
        .chain(task.waiting.served_until())
        .min();
    TaskRow {
        task_id: task.id.clone(),
        run_id: draft.spec.run_id.clone(),
        namespace: draft.spec.namespace.clone(),
        workflow_id: draft.spec.workflow_id.clone(),
        kind: TaskKind::Execution,
        queue: queue_name(&task.task_type, task.domain.as_deref()),
        type_name: task.def_name.clone(),
        status,
        available_at: task.waiting.time().unwrap_or(task.scheduled_at),
        // Matching takes the lowest number first.
        priority: 99 - execution.priority.min(99),
        fairness_key: None,
        fairness_weight: 1,
        compatibility: None,
        required_capability: None,
        held_for: None,
        worker_session: None,
        sequence: CommandSeq::new(task.seq),
        attempt: u64::from(task.poll_count),
        lease_owner: task
            .worker_id
            .as_deref()
            .filter(|_| leased)
            .map(WorkerId::from),
        lease_expires_at: response.filter(|_| leased),
        poll_request_id: None,
        closed: None,
        start_limits: task.start_limits,
        started_at: task.delivered_at.filter(|_| leased),
        found_by: Some(Box::new(TaskFacts {
            task_type: task.task_type.clone(),
            def_name: task.def_name.clone(),
            reference: task.reference.clone(),
            status: task.status,
            workflow_type: draft.spec.workflow_type.clone(),
            correlation_id: execution.correlation_id.clone(),
            domain: task.domain.clone(),
            scheduled_at: task.scheduled_at,
            started_at: task.started_at,
            ended_at: task.ended_at,
            updated_at: task.updated_at,
        })),
    }
}

/// Returns a fresh id of a task.
pub(crate) fn mint_task_id(draft: &mut Draft<'_>) -> TaskId {
    draft.ids.mint_uuid()
}
