//! The open workflow task of a run: when it is created, and its row for matching.
//!
//! Invariant: at most one workflow task is open. A wake that arrives while it is ready needs nothing, because the claim will
//! observe it; one that arrives while it is leased, or while an update has its turn, waits in `next_wake`.

use crate::change::{ClosedTask, StoredReply, TaskKind, TaskRow, TaskStatus};
use crate::run::cancellation::CAPABILITY;
use crate::run::draft::{Draft, WorkflowTasks};
use crate::run::local_activity;
use crate::run::state::{Resume, Status, Wake, WorkflowTask};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};

/// Whether the workflow needs another task although nothing woke it: it made progress and waits for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookAgain {
    Yes,
    No,
}

impl LookAgain {
    pub(crate) fn when(needed: bool) -> Self {
        if needed { Self::Yes } else { Self::No }
    }
}

impl WorkflowTasks<'_, '_> {
    /// Wakes the workflow because of the newest event.
    pub(crate) fn wake(&mut self, resume: Resume) {
        self.wake_at(self.draft.core.last_history_sequence, resume);
    }

    /// As [`Self::wake`], for an event that is not the newest.
    pub(crate) fn wake_at(&mut self, sequence: HistorySeq, resume: Resume) {
        match &self.draft.core.workflow_task {
            None => self.create(resume),
            Some(task) if task.lease.is_some() || task.is_update() => {
                self.draft
                    .core
                    .next_wake
                    .get_or_insert_with(|| Box::new(Wake { sequence, resume }));
            }
            Some(_) => {}
        }
    }

    pub(crate) fn create(&mut self, resume: Resume) {
        let task = WorkflowTask {
            id: self.draft.ids.mint(),
            available_at: self.draft.now,
            attempt: 0,
            lease: None,
            resume,
            held: self.draft.sticky_reservation(),
            failures: 0,
            last_error: None,
            replay_blocked: false,
            offered: true,
            expired: None,
            last_reply: None,
            local_receipts: Vec::new(),
        };
        self.draft.core.workflow_task = Some(Box::new(task));
        self.show();
    }

    /// Creates the next task after the leased one is finished, if anything needs it.
    pub(crate) fn choose_next(&mut self, again: LookAgain) {
        if !self.draft.is_open() || self.draft.core.workflow_task.is_some() {
            return;
        }
        self.draft.core.status = Status::Waiting;
        // Progress that the task saw is kept as a wake, so that it is not lost if an update has its turn first.
        if again == LookAgain::Yes && self.draft.deliverable_signal().is_none() {
            let sequence = self.draft.core.handled_sequence.next();
            self.draft.core.next_wake.get_or_insert_with(|| {
                Box::new(Wake {
                    sequence,
                    resume: Resume::default(),
                })
            });
        }
        // Oldest cause first: an update has its turn among the wakes.
        let wake_at = self.draft.core.next_wake.as_ref().map(|wake| wake.sequence);
        if let Some((accepted_at, resume)) = self.draft.oldest_update()
            && wake_at.is_none_or(|wake_at| accepted_at < wake_at)
        {
            self.create(resume);
        } else if let Some(wake) = self.draft.core.next_wake.take() {
            self.create(wake.resume);
        } else if let Some((signal, _)) = self.draft.deliverable_signal() {
            let resume = self
                .draft
                .signal(signal)
                .map(crate::run::message::signal::resume)
                .unwrap_or_default();
            self.create(resume);
        }
    }

    /// Makes the same task ready again after its lease ended without a decision, now or later. It will observe everything.
    pub(crate) fn put_back(&mut self, available_at: longhaul_protocol::Timestamp) {
        if let Some(task) = &mut self.draft.core.workflow_task {
            task.lease = None;
            task.held = None;
            task.local_receipts.clear();
            if !task.is_update() {
                self.draft.core.next_wake = None;
            }
        }
        self.draft.core.status = Status::Waiting;
        self.put_off(available_at);
    }

    /// Postpones the open task: it may be leased from then on.
    pub(crate) fn put_off(&mut self, available_at: longhaul_protocol::Timestamp) {
        let now = self.draft.now;
        if let Some(task) = &mut self.draft.core.workflow_task {
            task.available_at = available_at;
            task.offered = available_at <= now;
        }
        self.show();
    }

    /// Writes the row of the open workflow task as it is now.
    pub(crate) fn show(&mut self) {
        let Some(task) = self.draft.core.workflow_task.clone() else {
            return;
        };
        let status = match (&task.lease, task.offered) {
            (Some(_), _) => TaskStatus::Leased,
            (None, true) => TaskStatus::Ready,
            (None, false) => TaskStatus::Scheduled,
        };
        let row = self.draft.workflow_task_row(&task, status, None);
        self.draft.tasks.insert(row.task_id.clone(), row);
    }

    /// Ends the open workflow task. `reply` is for a repeat of the call that finished it; without one, the reply to an earlier attempt
    /// is kept.
    pub(crate) fn close(&mut self, status: TaskStatus, reply: Option<StoredReply>) {
        let Some(mut task) = self.draft.core.workflow_task.take() else {
            return;
        };
        let reply = reply.or_else(|| task.last_reply.take().map(|reply| *reply));
        let closed = reply.map(|reply| Box::new(ClosedTask::with_reply(reply)));
        let row = self.draft.workflow_task_row(&task, status, closed);
        self.draft.tasks.insert(row.task_id.clone(), row);
    }
}

impl Draft<'_> {
    /// Returns the capability that a worker needs to continue this run.
    fn required_capability(&self) -> Option<&'static str> {
        let is_cancelled = self.core.cancellation.is_some();
        match (is_cancelled, self.core.open.local_activities > 0) {
            (false, false) => None,
            (true, false) => Some(CAPABILITY),
            (false, true) => Some(local_activity::CAPABILITY),
            (true, true) => Some(local_activity::CAPABILITY_WITH_CANCELLATION),
        }
    }

    pub(crate) fn workflow_task_row(
        &self,
        task: &WorkflowTask,
        status: TaskStatus,
        closed: Option<Box<ClosedTask>>,
    ) -> TaskRow {
        let routing = &self.spec.routing;
        let lease = task.lease.as_ref();
        TaskRow {
            task_id: task.id.clone(),
            run_id: self.spec.run_id.clone(),
            namespace: self.spec.namespace.clone(),
            workflow_id: self.spec.workflow_id.clone(),
            kind: TaskKind::Workflow,
            queue: self.spec.task_queue.clone(),
            type_name: self.spec.workflow_type.clone(),
            status,
            available_at: task.available_at,
            priority: routing.priority,
            fairness_key: routing.fairness_key.clone(),
            fairness_weight: routing.fairness_weight,
            compatibility: routing.compatibility.clone(),
            required_capability: self.required_capability().map(str::to_owned),
            held_for: task
                .held
                .as_ref()
                .filter(|_| task.lease.is_none())
                .map(|held| held.worker_id.clone()),
            worker_session: None,
            sequence: CommandSeq::ZERO,
            attempt: task.attempt,
            lease_owner: lease.map(|lease| lease.owner.clone()),
            lease_expires_at: lease.map(|lease| lease.expires_at),
            poll_request_id: lease.and_then(|lease| lease.poll_request_id.clone()),
            closed,
            start_limits: None,
            started_at: None,
            found_by: None,
        }
    }
}
