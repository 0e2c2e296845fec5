//! The workflow task of a retry: it exists beside the ordinary one of the run and may be leased after the back-off. Once claimed,
//! it becomes the workflow task of the run; it also sees everything that a ready ordinary task would have shown.
//!
//! Invariant: it is on offer only while no workflow task of the run is leased.

use longhaul_protocol::id::TaskId;
use longhaul_protocol::{Reason, Timestamp};
use serde::{Deserialize, Serialize};

use super::LocalActivity;
use crate::Rejection;
use crate::change::{ClosedTask, StoredReply, TaskRow, TaskStatus};
use crate::run::draft::{Draft, LocalActivities};
use crate::run::state::{Resume, WorkflowTask};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryTask {
    pub id: TaskId,
    pub available_at: Timestamp,
    /// Whether it is ready for matching.
    pub offered: bool,
    /// How often it has been leased.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u64,
    /// The report that ended an earlier claim without an attempt, kept for a repeat of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "last_reply")]
    pub last_reply: Option<Box<StoredReply>>,
}

/// How long a call that its worker left without a report waits for the next task.
const UNREPORTED_CALL_DELAY_SECONDS: u64 = 1;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RetryTask {
    fn workflow_task(&self, local: &LocalActivity) -> WorkflowTask {
        WorkflowTask {
            id: self.id.clone(),
            available_at: self.available_at,
            attempt: self.attempt,
            lease: None,
            resume: local.resume(None),
            failures: 0,
            last_error: None,
            replay_blocked: false,
            offered: self.offered,
            held: None,
            expired: None,
            last_reply: self.last_reply.clone(),
            local_receipts: Vec::new(),
        }
    }
}

impl LocalActivities<'_, '_> {
    /// Makes a due retry the workflow task of the run, so that it can be leased.
    pub(crate) fn take_due_retry(&mut self, task_id: &TaskId) -> Result<(), Rejection> {
        let found = self.draft.locals().into_iter().find_map(|local| {
            let task = local
                .retry_task
                .clone()
                .filter(|task| task.id == *task_id)?;
            Some((local, task))
        });
        let Some((mut local, task)) = found else {
            return Ok(());
        };
        let not_claimable = |reason| Err(Rejection::NotClaimable { reason });
        if task.available_at > self.draft.now {
            return not_claimable(Reason::NotDue);
        }
        if self.draft.is_leased() {
            return not_claimable(Reason::LeasedByOther);
        }
        self.draft
            .workflow_task()
            .close(TaskStatus::Cancelled, None);
        self.draft.core.workflow_task = Some(Box::new(task.workflow_task(&local)));
        local.claimed_retry = local.retry_task.take().map(|task| task.id);
        self.put(local);
        Ok(())
    }

    /// Restores the order after every decision: a call that nothing would continue gets a task, and retries are on offer exactly
    /// while they may be leased.
    pub(crate) fn restore_tasks(&mut self) {
        if !self.draft.is_open() || self.draft.core.open.local_activities == 0 {
            return;
        }
        if !self.draft.is_leased() {
            self.end_leases();
        }
        // A decision that wrote nothing would be repeated at once, without end.
        let again_at = if self.draft.events.is_empty() {
            self.draft.now.plus_seconds(UNREPORTED_CALL_DELAY_SECONDS)
        } else {
            self.draft.now
        };
        self.give_back_retries(again_at);
        let is_left = |local: &LocalActivity| local.retry_task.is_none();
        if self.draft.core.workflow_task.is_none() && self.draft.locals().iter().any(is_left) {
            self.draft.workflow_task().create(Resume::default());
            self.draft.workflow_task().put_off(again_at);
        }
        self.offer_retries();
    }

    /// Makes claimed retries ready again that have no attempt although their claim has ended. Each keeps its task, because history
    /// names it.
    fn give_back_retries(&mut self, again_at: Timestamp) {
        let slot = self
            .draft
            .core
            .workflow_task
            .as_ref()
            .map(|task| task.id.clone());
        for mut local in self.draft.locals() {
            let Some(id) = local.claimed_retry.take_if(|id| slot.as_ref() != Some(id)) else {
                continue;
            };
            let row = self.draft.tasks.get(&id);
            let attempt = row.map_or(1, |row| row.attempt);
            let finished = row.and_then(|row| row.closed.as_ref());
            let reply = finished.and_then(|closed| closed.reply.clone());
            let task = RetryTask {
                id,
                available_at: again_at,
                offered: false,
                attempt,
                last_reply: reply.map(Box::new),
            };
            let row = self.draft.retry_row(&local, &task, TaskStatus::Scheduled);
            self.draft.tasks.insert(row.task_id.clone(), row);
            local.retry_task = Some(task);
            self.put(local);
        }
    }

    fn offer_retries(&mut self) {
        let is_free = !self.draft.is_leased();
        for mut local in self.draft.locals() {
            let Some(task) = &mut local.retry_task else {
                continue;
            };
            let on_offer = is_free && task.available_at <= self.draft.now;
            if task.offered == on_offer {
                continue;
            }
            task.offered = on_offer;
            let task = task.clone();
            let status = if on_offer {
                TaskStatus::Ready
            } else {
                TaskStatus::Scheduled
            };
            let row = self.draft.retry_row(&local, &task, status);
            self.draft.tasks.insert(row.task_id.clone(), row);
            self.put(local);
        }
    }

    /// Ends the leases, so that the next worker need not wait for them to run out.
    fn end_leases(&mut self) {
        let now = self.draft.now;
        for mut local in self.draft.locals() {
            if let Some(attempt) = local
                .attempt
                .as_mut()
                .filter(|attempt| attempt.lease_expires_at > now)
            {
                attempt.lease_expires_at = now;
                self.put(local);
            }
        }
    }
}

impl Draft<'_> {
    pub(crate) fn retry_row(
        &self,
        local: &LocalActivity,
        task: &RetryTask,
        status: TaskStatus,
    ) -> TaskRow {
        let reply = task.last_reply.as_deref().filter(|_| !status.is_open());
        let closed = reply.map(|reply| Box::new(ClosedTask::with_reply(reply.clone())));
        let mut row = self.workflow_task_row(&task.workflow_task(local), status, closed);
        row.sequence = local.sequence;
        row
    }
}
