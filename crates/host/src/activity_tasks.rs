//! The activity-task bridge contract: poll, claim, claim status, complete, fail, status, heartbeat.

use longhaul_engine::change::TaskKind;
use longhaul_engine::run::activity_claim::{ActivityClaim, ClaimActivityTask};
use longhaul_engine::run::activity_heartbeat::{Beat, HeartbeatActivity, Pulse};
use longhaul_engine::run::activity_report::{
    Answer, CompleteActivity, FailActivity, Failure, Reporter,
};
use longhaul_protocol::Payload;
use longhaul_protocol::id::{ActivityAttemptId, Namespace, TaskId, WorkerId};
use serde_json::Value;

use crate::Host;
use crate::dispatch::Appetite;
use crate::error::Result;
use crate::polling::{Claim, Poll, Polled};
use crate::polls::Granted;
use crate::tasks::ClaimStatus;
use crate::workers::Known;

/// Who reports on which attempt.
#[derive(Clone, Debug)]
pub struct ActivityReport {
    pub namespace: Namespace,
    pub task_id: TaskId,
    pub attempt_id: ActivityAttemptId,
    pub owner: WorkerId,
    /// Who speaks, from authentication, as JSON text.
    pub principal: Option<String>,
}

#[derive(Clone)]
struct ActivityTasks;

impl ActivityTasks {
    fn command(granted: &Granted, poll: &Poll) -> ClaimActivityTask {
        ClaimActivityTask {
            task_id: granted.task_id.clone(),
            sequence: granted.sequence,
            worker_id: poll.worker_id.clone(),
            poll_request_id: poll.poll_request_id.clone(),
        }
    }
}

impl Claim for ActivityTasks {
    type Reply = ActivityClaim;

    fn kind(&self) -> TaskKind {
        TaskKind::Activity
    }

    fn appetite(&self, worker: &Known) -> Appetite {
        worker.appetite(&worker.activity_types)
    }

    async fn claim(
        &self,
        host: &Host,
        granted: &Granted,
        _worker: &Known,
        poll: &Poll,
    ) -> Result<Option<ActivityClaim>> {
        let command = Self::command(granted, poll);
        host.inner.executor.execute(&granted.run_id, &command).await
    }
}

impl Host {
    /// Waits for an activity task and leases it.
    pub async fn poll_activity_task(&self, poll: &Poll) -> Result<Polled<ActivityClaim>> {
        self.poll(poll, &ActivityTasks).await
    }

    /// Leases one task by its id, without waiting.
    pub async fn claim_activity_task(
        &self,
        poll: &Poll,
        task_id: &TaskId,
    ) -> Result<ActivityClaim> {
        let worker = self.polling_worker(poll).await?;
        let row = self
            .task_row(&poll.namespace, task_id, TaskKind::Activity)
            .await?;
        worker.check_build(&row)?;
        self.refuse_draining(&worker)?;
        let granted = Granted {
            task_id: task_id.clone(),
            run_id: row.run_id.clone(),
            sequence: row.sequence,
        };
        self.report(row, |_| ActivityTasks::command(&granted, poll))
            .await
    }

    /// Whether a task is claimed, can be, or cannot.
    pub async fn activity_claim_status(
        &self,
        namespace: &Namespace,
        task_id: &TaskId,
    ) -> Result<ClaimStatus> {
        self.claim_status(namespace, task_id, TaskKind::Activity)
            .await
    }

    /// The activity succeeded.
    pub async fn complete_activity_task(
        &self,
        report: &ActivityReport,
        result: Payload,
    ) -> Result<Answer> {
        let row = self
            .task_row(&report.namespace, &report.task_id, TaskKind::Activity)
            .await?;
        self.report(row, |row| CompleteActivity {
            reporter: report.with(row),
            result: result.clone(),
        })
        .await
    }

    /// The attempt failed.
    pub async fn fail_activity_task(
        &self,
        report: &ActivityReport,
        failure: Failure,
    ) -> Result<Answer> {
        let row = self
            .task_row(&report.namespace, &report.task_id, TaskKind::Activity)
            .await?;
        self.report(row, |row| FailActivity {
            reporter: report.with(row),
            failure: failure.clone(),
        })
        .await
    }

    /// The worker is alive; the answer says whether it should go on.
    pub async fn heartbeat_activity_task(
        &self,
        report: &ActivityReport,
        progress: Option<Value>,
    ) -> Result<Pulse> {
        self.beat(report, &Beat::Renew { progress }).await
    }

    /// Whether the worker should go on, without renewing anything.
    pub async fn activity_task_status(&self, report: &ActivityReport) -> Result<Pulse> {
        self.beat(report, &Beat::Look).await
    }

    async fn beat(&self, report: &ActivityReport, beat: &Beat) -> Result<Pulse> {
        let row = self
            .task_row(&report.namespace, &report.task_id, TaskKind::Activity)
            .await?;
        self.report(row, |row| HeartbeatActivity {
            reporter: report.with(row),
            beat: beat.clone(),
        })
        .await
    }
}

impl ActivityReport {
    pub(crate) fn with(&self, row: Box<longhaul_engine::change::TaskRow>) -> Reporter {
        Reporter {
            row,
            attempt_id: self.attempt_id.clone(),
            owner: self.owner.clone(),
            principal: self.principal.clone(),
        }
    }
}
