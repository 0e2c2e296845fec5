//! The workflow task of a retry: it stands beside the run's ordinary one, with the back-off as the moment from which it may be
//! leased (local-activities.md §8). Claimed, it becomes the run's workflow task; a ready one that stood there has nothing to tell
//! that this one does not see too.
//!
//! Invariant: it is on offer only while no workflow task of the run is leased.

use longhaul_protocol::id::TaskId;
use longhaul_protocol::{Reason, Timestamp};
use serde::{Deserialize, Serialize};

use super::LocalActivity;
use crate::Rejection;
use crate::change::{TaskRow, TaskStatus};
use crate::run::draft::Draft;
use crate::run::state::WorkflowTask;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryTask {
    pub id: TaskId,
    pub available_at: Timestamp,
    /// Whether the matching side has been told that it is ready.
    pub offered: bool,
}

/// How long a call that its worker left without a word waits for the next look at it.
const SECOND_LOOK_SECONDS: u64 = 1;

impl RetryTask {
    fn workflow_task(&self, local: &LocalActivity) -> WorkflowTask {
        WorkflowTask {
            id: self.id.clone(),
            available_at: self.available_at,
            attempt: 0,
            lease: None,
            resume: local.resume(None),
            failures: 0,
            last_error: None,
            replay_blocked: false,
            offered: self.offered,
            held: None,
            expired: None,
            last_report: None,
            local_receipts: Vec::new(),
        }
    }
}

impl Draft<'_> {
    pub(super) fn retry_row(
        &self,
        local: &LocalActivity,
        task: &RetryTask,
        status: TaskStatus,
    ) -> TaskRow {
        let mut row = self.workflow_task_row(&task.workflow_task(local), status, None);
        row.sequence = local.sequence;
        row
    }

    /// Puts a retry that is due in the place of the workflow task, so that it can be leased.
    pub(in crate::run) fn take_due_retry(&mut self, task_id: &TaskId) -> Result<(), Rejection> {
        let found = self.locals().into_iter().find_map(|local| {
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
        if task.available_at > self.now {
            return not_claimable(Reason::NotDue);
        }
        if self.is_leased() {
            return not_claimable(Reason::LeasedByOther);
        }
        self.close_workflow_task(TaskStatus::Cancelled, None);
        self.core.workflow_task = Some(task.workflow_task(&local));
        local.retry_task = None;
        self.put_local(local);
        Ok(())
    }

    /// Offers retries that are due, and takes them off the offer while a workflow task is leased.
    pub(in crate::run) fn offer_retries(&mut self) {
        let free = self.is_open() && !self.is_leased();
        for mut local in self.locals() {
            let Some(task) = &mut local.retry_task else {
                continue;
            };
            let on_offer = free && task.available_at <= self.now;
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
            let row = self.retry_row(&local, &task, status);
            self.tasks.insert(row.task_id.clone(), row);
            self.put_local(local);
        }
    }

    /// The lease is over: whoever comes next need not wait for it to run out.
    pub(in crate::run) fn end_local_leases(&mut self) {
        for mut local in self.locals() {
            let now = self.now;
            if let Some(attempt) = local
                .attempt
                .as_mut()
                .filter(|attempt| attempt.lease_expires_at > now)
            {
                attempt.lease_expires_at = now;
                self.put_local(local);
            }
        }
    }

    /// A finished task left a call behind that nothing will ever bring up again: the workflow looks once more.
    pub(in crate::run) fn look_after_locals(&mut self, made_progress: bool) {
        let is_left = |local: &LocalActivity| local.retry_task.is_none();
        if !self.is_open() || !self.locals().iter().any(is_left) {
            return;
        }
        self.end_local_leases();
        if self.core.workflow_task.is_none() {
            self.create_workflow_task(crate::run::state::Resume::default());
            if !made_progress {
                let later = self.now.plus_seconds(SECOND_LOOK_SECONDS);
                self.put_off_workflow_task(later);
            }
        }
    }
}
