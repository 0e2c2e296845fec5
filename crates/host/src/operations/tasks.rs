//! What both bridge contracts share: finding a task by its id, and the status of a claim.

use longhaul_engine::change::{TaskKind, TaskRow, TaskStatus};
use longhaul_engine::{Command, Rejection};
use longhaul_protocol::id::{Namespace, TaskId};
use longhaul_protocol::{Reason, Timestamp};

use crate::Host;
use crate::commit::execute::{Locked, Prepare, Prepared};
use crate::error::{Error, Result};

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
    /// It may not.
    Refused(Reason),
}

impl Host {
    /// The row of a task in this namespace.
    pub(crate) async fn task_row(
        &self,
        namespace: &Namespace,
        task_id: &TaskId,
        kind: TaskKind,
    ) -> Result<TaskRow> {
        let row = match self.inner.hub.leased_row(task_id) {
            Some(row) => Some(row),
            None => self.inner.store.task(task_id).await?,
        };
        row.filter(|row| row.namespace == *namespace && row.kind == kind)
            .ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    /// Runs a command on the run that owns the task, with the task's row as it is under the run's lock.
    pub(crate) async fn report<C, F>(&self, row: TaskRow, build: F) -> Result<C::Reply>
    where
        C: Command + Send + Sync,
        F: Fn(Box<TaskRow>) -> C + Send + Sync,
    {
        let run_id = row.run_id.clone();
        let report = Report {
            host: self,
            row,
            build,
        };
        self.inner
            .executor
            .execute_prepared(&run_id, &report)
            .await?
            .ok_or(Error::Rejected(Rejection::TaskNotFound))
    }

    /// A task's row as it must be read under its run's lock. An open task is judged by the run itself; a finished one is known
    /// only by its row, which must then be the newest.
    pub(crate) async fn newest_row(
        &self,
        locked: &Locked<'_>,
        row: &TaskRow,
    ) -> Result<Box<TaskRow>> {
        if locked.run().has_open_task(&row.task_id, row.sequence) {
            return Ok(Box::new(row.clone()));
        }
        locked.settle().await?;
        let newest = self.inner.store.task(&row.task_id).await?;
        let newest = newest.ok_or(Error::Rejected(Rejection::TaskNotFound))?;
        Ok(Box::new(newest))
    }

    /// The claim status of a task (`claimStatus` of the bridge contracts).
    pub(crate) async fn claim_status(
        &self,
        namespace: &Namespace,
        task_id: &TaskId,
        kind: TaskKind,
    ) -> Result<ClaimStatus> {
        let row = match self.task_row(namespace, task_id, kind).await {
            Ok(row) => row,
            Err(Error::Rejected(Rejection::TaskNotFound)) => {
                return Ok(ClaimStatus::Refused(Reason::TaskNotFound));
            }
            Err(error) => return Err(error),
        };
        let run = self.inner.executor.read(&row.run_id).await?;
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

/// A report on a task: the row that was found by id may be older than the run under its lock.
struct Report<'a, F> {
    host: &'a Host,
    row: TaskRow,
    build: F,
}

impl<C, F> Prepare for Report<'_, F>
where
    C: Command + Send + Sync,
    F: Fn(Box<TaskRow>) -> C + Send + Sync,
{
    type Command = C;

    async fn prepare(&self, locked: &Locked<'_>) -> Result<Prepared<C>> {
        let row = self.host.newest_row(locked, &self.row).await?;
        Ok(Prepared::Decide((self.build)(row)))
    }
}
