//! Activity tasks: poll, claim, claim status, complete, fail, status, heartbeat.

use longhaul_engine::Rejection;
use longhaul_engine::change::{TaskKind, TaskReply};
use longhaul_engine::command::{
    ClaimActivityTask, CompleteActivity, FailActivity, HeartbeatActivity,
};
use longhaul_engine::queue::PollFilter;
use longhaul_engine::run::activity::claim::ActivityClaim;
use longhaul_engine::run::activity::fence::{AttemptIdentity, Reporter};
use longhaul_engine::run::activity::heartbeat::{HeartbeatReply, HeartbeatRequest, StoredSession};
use longhaul_engine::run::activity::report::Failure;
use longhaul_protocol::Payload;
use longhaul_protocol::id::{Namespace, SessionId, TaskId};
use serde_json::Value;

use crate::Host;
use crate::error::{Error, Result};
use crate::matching::poll::{Claim, Poll, Polled};
use crate::matching::poll_dedup::{ClaimTarget, session_of};
use crate::operations::tasks::ClaimStatus;
use crate::registry::workers::RegisteredWorker;
use crate::views::ActivityTasks;

#[derive(Clone)]
struct ActivityPolls;

impl ActivityPolls {
    fn command(granted: &ClaimTarget, poll: &Poll) -> ClaimActivityTask {
        ClaimActivityTask {
            task_id: granted.task_id.clone(),
            sequence: granted.sequence,
            worker_id: poll.worker_id.clone(),
            poll_request_id: poll.poll_request_id.clone(),
            admission: None,
        }
    }
}

impl Claim for ActivityPolls {
    type Reply = ActivityClaim;

    fn kind(&self) -> TaskKind {
        TaskKind::Activity
    }

    fn poll_filter(&self, worker: &RegisteredWorker) -> PollFilter {
        worker.poll_filter(&worker.activity_types)
    }

    async fn claim(
        &self,
        host: &Host,
        granted: &ClaimTarget,
        _worker: &RegisteredWorker,
        poll: &Poll,
    ) -> Result<Option<ActivityClaim>> {
        let command = Self::command(granted, poll);
        match &granted.session_id {
            None => host.inner.executor.execute(&granted.run_id, &command).await,
            Some(session_id) => {
                host.activity_tasks()
                    .claim_in_session(granted, session_id, &poll.namespace, command)
                    .await
            }
        }
    }
}

impl ActivityTasks<'_> {
    /// Waits for an activity task and leases it.
    pub async fn poll(self, poll: &Poll) -> Result<Polled<ActivityClaim>> {
        self.host.matching().poll(poll, &ActivityPolls).await
    }

    /// Leases one task by its id, without waiting.
    pub async fn claim(self, poll: &Poll, task_id: &TaskId) -> Result<ActivityClaim> {
        let worker = self.host.workers().polling(poll).await?;
        let row = self
            .host
            .tasks()
            .row(&poll.namespace, task_id, TaskKind::Activity)
            .await?;
        worker.check_build(&row)?;
        self.host.matching().refuse_draining(&worker)?;
        let granted = ClaimTarget {
            task_id: task_id.clone(),
            run_id: row.run_id.clone(),
            sequence: row.sequence,
            session_id: session_of(&row),
        };
        if let Some(session_id) = &granted.session_id {
            let command = ActivityPolls::command(&granted, poll);
            return self
                .claim_in_session(&granted, session_id, &poll.namespace, command)
                .await?
                .ok_or(Error::Rejected(Rejection::TaskNotFound));
        }
        self.host
            .tasks()
            .on_task(&row, |_| ActivityPolls::command(&granted, poll))
            .await
    }

    async fn claim_in_session(
        self,
        granted: &ClaimTarget,
        session_id: &SessionId,
        namespace: &Namespace,
        mut command: ClaimActivityTask,
    ) -> Result<Option<ActivityClaim>> {
        let _locks = self
            .host
            .inner
            .sessions
            .lock_both(namespace, &command.worker_id, session_id)
            .await;
        // The facts that admit the task are read under the lock of the run. The commit is refused if any of them changed meanwhile.
        let mut tries = self.host.inner.executor.tries(&granted.run_id);
        let mut claimed = None;
        while let Some(locked) = tries.next().await? {
            let admission = self
                .host
                .sessions()
                .admission(namespace, session_id, &command.worker_id)
                .await?;
            command.admission = Some(Box::new(admission));
            claimed = locked.decide(&command).await?;
            if claimed.is_some() {
                break;
            }
        }
        if let Some(claim) = &claimed
            && let (Some(session), Some(outcome)) = (&claim.session, claim.acquired)
        {
            self.host.sessions().note_acquisition(session, outcome);
        }
        Ok(claimed)
    }

    /// Returns whether a task is claimed, can be claimed, or cannot, with the reason.
    pub async fn claim_status(
        self,
        namespace: &Namespace,
        task_id: &TaskId,
    ) -> Result<ClaimStatus> {
        self.host
            .tasks()
            .claim_status(namespace, task_id, TaskKind::Activity)
            .await
    }

    /// Completes the activity.
    pub async fn complete(self, identity: &AttemptIdentity, result: Payload) -> Result<TaskReply> {
        self.host
            .tasks()
            .on_activity_task(identity, |reporter| CompleteActivity {
                reporter,
                result: result.clone(),
            })
            .await
    }

    /// Fails the attempt.
    pub async fn fail(self, identity: &AttemptIdentity, failure: Failure) -> Result<TaskReply> {
        self.host
            .tasks()
            .on_activity_task(identity, |reporter| FailActivity {
                reporter,
                failure: failure.clone(),
            })
            .await
    }

    /// Renews the lease; the reply contains whether the worker should continue.
    pub async fn heartbeat(
        self,
        identity: &AttemptIdentity,
        progress: Option<Value>,
    ) -> Result<HeartbeatReply> {
        self.record_heartbeat(identity, &HeartbeatRequest::Renew { progress })
            .await
    }

    /// Returns the same reply as a heartbeat, without renewing anything.
    pub async fn status(self, identity: &AttemptIdentity) -> Result<HeartbeatReply> {
        self.record_heartbeat(identity, &HeartbeatRequest::Status)
            .await
    }

    async fn record_heartbeat(
        self,
        identity: &AttemptIdentity,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatReply> {
        let row = self
            .host
            .tasks()
            .row(&identity.namespace, &identity.task_id, TaskKind::Activity)
            .await?;
        let Some(session_id) = session_of(&row) else {
            let build = |row| HeartbeatActivity {
                reporter: Reporter {
                    named: identity.clone(),
                    row,
                },
                request: request.clone(),
                session: None,
            };
            return self.host.tasks().on_task(&row, build).await;
        };
        let _lock = self
            .host
            .inner
            .sessions
            .lock_session(&identity.namespace, &session_id)
            .await;
        let mut tries = self.host.inner.executor.tries(&row.run_id);
        while let Some(locked) = tries.next().await? {
            let row = self.host.tasks().newest_row(&locked, &row).await?;
            let (session, owner) = self
                .host
                .sessions()
                .stored(&identity.namespace, &session_id)
                .await?;
            let command = HeartbeatActivity {
                reporter: Reporter {
                    named: identity.clone(),
                    row,
                },
                request: request.clone(),
                session: Some(Box::new(StoredSession { session, owner })),
            };
            if let Some(reply) = locked.decide(&command).await? {
                return Ok(reply);
            }
        }
        Err(Error::Rejected(Rejection::TaskNotFound))
    }
}
