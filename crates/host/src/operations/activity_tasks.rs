//! The activity-task bridge contract: poll, claim, claim status, complete, fail, status, heartbeat.

use longhaul_engine::Rejection;
use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::run::activity::claim::{ActivityClaim, ClaimActivityTask};
use longhaul_engine::run::activity::heartbeat::{Beat, HeartbeatActivity, Pulse, Stored};
use longhaul_engine::run::activity::report::{
    Answer, CompleteActivity, FailActivity, Failure, Reporter,
};
use longhaul_protocol::Payload;
use longhaul_protocol::id::{ActivityAttemptId, Namespace, SessionId, TaskId, WorkerId};
use serde_json::Value;

use crate::Host;
use crate::commit::execute::{Locked, Prepare, Prepared};
use crate::error::{Error, Result};
use crate::matching::dispatch::Appetite;
use crate::matching::poll::{Claim, Poll, Polled};
use crate::matching::poll_dedup::{Granted, session_of};
use crate::operations::tasks::ClaimStatus;
use crate::registry::workers::Known;

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
            admission: None,
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
        match &granted.session_id {
            None => host.inner.executor.execute(&granted.run_id, &command).await,
            Some(session_id) => {
                host.claim_in_session(granted, session_id, &poll.namespace, command)
                    .await
            }
        }
    }
}

/// A claim of a task that must run in a session: what admits it is read under the run's lock, and its commit is refused when any
/// of that changed meanwhile.
struct InSession<'a> {
    host: &'a Host,
    namespace: &'a Namespace,
    session_id: &'a SessionId,
    command: ClaimActivityTask,
}

impl Prepare for InSession<'_> {
    type Command = ClaimActivityTask;

    async fn prepare(&self, _locked: &Locked<'_>) -> Result<Prepared<ClaimActivityTask>> {
        let admission = self
            .host
            .session_admission(self.namespace, self.session_id, &self.command.worker_id)
            .await?;
        Ok(Prepared::Decide(ClaimActivityTask {
            admission: Some(Box::new(admission)),
            ..self.command.clone()
        }))
    }
}

/// A heartbeat of an activity that runs in a session.
struct BeatInSession<'a> {
    host: &'a Host,
    row: &'a TaskRow,
    session_id: &'a SessionId,
    report: &'a ActivityReport,
    beat: &'a Beat,
}

impl Prepare for BeatInSession<'_> {
    type Command = HeartbeatActivity;

    async fn prepare(&self, locked: &Locked<'_>) -> Result<Prepared<HeartbeatActivity>> {
        let row = self.host.newest_row(locked, self.row).await?;
        let (session, owner) = self
            .host
            .stored_session(&self.report.namespace, self.session_id)
            .await?;
        Ok(Prepared::Decide(HeartbeatActivity {
            reporter: self.report.with(row),
            beat: self.beat.clone(),
            session: Some(Box::new(Stored { session, owner })),
        }))
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
            session_id: session_of(&row),
        };
        if let Some(session_id) = &granted.session_id {
            let command = ActivityTasks::command(&granted, poll);
            return self
                .claim_in_session(&granted, session_id, &poll.namespace, command)
                .await?
                .ok_or(Error::Rejected(Rejection::TaskNotFound));
        }
        self.report(row, |_| ActivityTasks::command(&granted, poll))
            .await
    }

    async fn claim_in_session(
        &self,
        granted: &Granted,
        session_id: &SessionId,
        namespace: &Namespace,
        command: ClaimActivityTask,
    ) -> Result<Option<ActivityClaim>> {
        let _locks = self
            .inner
            .sessions
            .lock_both(namespace, &command.worker_id, session_id)
            .await;
        let claim = InSession {
            host: self,
            namespace,
            session_id,
            command,
        };
        let claimed = self
            .inner
            .executor
            .execute_prepared(&granted.run_id, &claim)
            .await?;
        if let Some(claim) = &claimed
            && let (Some(session), Some(outcome)) = (&claim.session, claim.acquired)
        {
            self.note_acquisition(session, outcome);
        }
        Ok(claimed)
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
        if let Some(session_id) = session_of(&row) {
            let _lock = self
                .inner
                .sessions
                .lock_session(&report.namespace, &session_id)
                .await;
            let beating = BeatInSession {
                host: self,
                row: &row,
                session_id: &session_id,
                report,
                beat,
            };
            return self
                .inner
                .executor
                .execute_prepared(&row.run_id, &beating)
                .await?
                .ok_or(Error::Rejected(Rejection::TaskNotFound));
        }
        self.report(row, |row| HeartbeatActivity {
            reporter: report.with(row),
            beat: beat.clone(),
            session: None,
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
