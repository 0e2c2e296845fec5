//! Shared operations of workflow tasks and activity tasks: finding a task by its id, deciding a command of its worker, and the
//! status of a claim.

use longhaul_engine::change::{TaskKind, TaskRow, TaskStatus};
use longhaul_engine::run::activity::fence::{AttemptIdentity, Reporter};
use longhaul_engine::run::workflow_task::lease::{Holder, TaskHolder};
use longhaul_engine::{Command, Rejection};
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use longhaul_protocol::{Reason, Timestamp};

use crate::commit::execute::Locked;
use crate::error::{Error, Result};
use crate::views::Tasks;

/// Whether a task could be leased now, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// It is leased, until then.
    Claimed {
        lease_owner: String,
        lease_expires_at: Timestamp,
    },
    /// It may be claimed.
    Claimable,
    /// It may not be claimed.
    Refused(Reason),
}

impl Tasks<'_> {
    /// Returns the row of a task in this namespace.
    pub(crate) async fn row(
        self,
        namespace: &Namespace,
        task_id: &TaskId,
        kind: TaskKind,
    ) -> Result<TaskRow> {
        let row = match self.host.inner.wakes.leased_row(task_id) {
            Some(row) => Some(row),
            None => {
                let row = self.host.inner.store.task(task_id).await?;
                if let Some(row) = &row {
                    // Another server leased it, so a copy of the run is probably old, and a commit based on it would be refused.
                    self.host.inner.executor.mark_unsure(&row.run_id);
                }
                row
            }
        };
        row.filter(|row| row.namespace == *namespace && row.kind == kind)
            .ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    /// Decides a command of the worker that holds a workflow task.
    pub(crate) async fn on_workflow_task<C: Command>(
        self,
        holder: &TaskHolder,
        build: impl Fn(Holder) -> C,
    ) -> Result<C::Reply> {
        let (_, reply) = self.on_workflow_task_of_run(holder, build).await?;
        Ok(reply)
    }

    /// As [`Self::on_workflow_task`], and returns the run that the task belongs to.
    pub(crate) async fn on_workflow_task_of_run<C: Command>(
        self,
        holder: &TaskHolder,
        build: impl Fn(Holder) -> C,
    ) -> Result<(RunId, C::Reply)> {
        let row = self
            .row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        let of_holder = |row| {
            build(Holder {
                named: holder.clone(),
                row,
            })
        };
        let reply = self.on_task(&row, of_holder).await?;
        Ok((row.run_id, reply))
    }

    /// Decides a command of the worker that runs an attempt of an activity.
    pub(crate) async fn on_activity_task<C: Command>(
        self,
        identity: &AttemptIdentity,
        build: impl Fn(Reporter) -> C,
    ) -> Result<C::Reply> {
        let row = self
            .row(&identity.namespace, &identity.task_id, TaskKind::Activity)
            .await?;
        self.on_task(&row, |row| {
            build(Reporter {
                named: identity.clone(),
                row,
            })
        })
        .await
    }

    /// Decides a command on the run that owns the task. `build` gets the task's row as it is under the run's lock.
    pub(crate) async fn on_task<C: Command>(
        self,
        row: &TaskRow,
        build: impl Fn(Box<TaskRow>) -> C,
    ) -> Result<C::Reply> {
        let mut tries = self.host.inner.executor.tries(&row.run_id);
        while let Some(locked) = tries.next().await? {
            let command = build(self.newest_row(&locked, row).await?);
            if let Some(reply) = locked.decide(&command).await? {
                return Ok(reply);
            }
        }
        Err(Error::Rejected(Rejection::TaskNotFound))
    }

    /// Returns the row of a task for use under the lock of its run. An open task is judged by the run itself. A finished one has
    /// only its row, which must then be the newest.
    pub(crate) async fn newest_row(
        self,
        locked: &Locked<'_>,
        row: &TaskRow,
    ) -> Result<Box<TaskRow>> {
        if locked.run().has_open_task(&row.task_id, row.sequence) {
            return Ok(Box::new(row.clone()));
        }
        locked.wait_for_commits().await?;
        let newest = self.host.inner.store.task(&row.task_id).await?;
        let newest = newest.ok_or(Error::Rejected(Rejection::TaskNotFound))?;
        Ok(Box::new(newest))
    }

    /// Returns the claim status of a task.
    pub(crate) async fn claim_status(
        self,
        namespace: &Namespace,
        task_id: &TaskId,
        kind: TaskKind,
    ) -> Result<ClaimStatus> {
        let row = match self.row(namespace, task_id, kind).await {
            Ok(row) => row,
            Err(Error::Rejected(Rejection::TaskNotFound)) => {
                return Ok(ClaimStatus::Refused(Reason::TaskNotFound));
            }
            Err(error) => return Err(error),
        };
        let run = self.host.inner.executor.read(&row.run_id).await?;
        if run.is_none_or(|run| run.core.closed.is_some()) {
            return Ok(ClaimStatus::Refused(Reason::RunClosed));
        }
        Ok(match (row.status, row.lease_owner, row.lease_expires_at) {
            (TaskStatus::Leased, Some(owner), Some(lease_expires_at)) => ClaimStatus::Claimed {
                lease_owner: owner.to_string(),
                lease_expires_at,
            },
            (TaskStatus::Ready, ..) => ClaimStatus::Claimable,
            (TaskStatus::Scheduled, ..) => ClaimStatus::Refused(Reason::NotDue),
            (
                TaskStatus::Leased
                | TaskStatus::Completed
                | TaskStatus::Failed
                | TaskStatus::Cancelled,
                ..,
            ) => ClaimStatus::Refused(Reason::TaskNotReady),
        })
    }
}
