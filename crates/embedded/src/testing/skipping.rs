//! When the clock may jump, and how far.
//!
//! The clock jumps only when no work is left to do at the current time: every poll of the worker waits on the server, no other
//! request is in flight, no task is leased or being processed (except by fakes that hang), and the background loops of the server
//! are idle. Every change of that state begins or ends a request. So a jump is safe if the request counts are the same before and
//! after the check.

use std::sync::Arc;
use std::time::Duration;

use longhaul_host::Host;
use longhaul_host::clock::ManualClock;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkflowId};
use longhaul_sdk::WorkerHandle;

use super::RunError;
use super::fakes::Fakes;
use super::stuck::{Stuck, Why};
use crate::EmbeddedTransport;
use crate::traffic::Counts;

/// The shared state of an environment and its handles.
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) transport: EmbeddedTransport,
    pub(super) clock: ManualClock,
    pub(super) fakes: Arc<Fakes>,
    pub(super) worker: WorkerHandle,
    /// The polls that an idle worker keeps open.
    pub(super) polls: usize,
    pub(super) skips: bool,
    pub(super) longest_wait: Duration,
    pub(super) most_jumps: u32,
}

/// A point at which no work is left to do at the current time.
pub(super) struct Still {
    counts: Counts,
    pub(super) due_at: Option<Timestamp>,
}

impl Shared {
    /// Waits until no work is left to do at the current time.
    pub(super) async fn still(&self) -> Result<Still, RunError> {
        loop {
            // Registered before the check, so that no change after it is missed.
            let became_idle = self.host.became_idle();
            let ended = self.transport.traffic().ended();
            let worked = self.worker.task_ended();
            let faked = self.fakes.changed.notified();
            tokio::pin!(became_idle, ended, worked, faked);
            became_idle.as_mut().enable();
            ended.as_mut().enable();
            worked.as_mut().enable();
            faked.as_mut().enable();
            if self.fakes.has_ended() {
                return Err(RunError::Stopped);
            }
            if let Some(still) = self.check_still().await? {
                return Ok(still);
            }
            tokio::select! {
                () = became_idle => {}
                () = ended => {}
                () = worked => {}
                () = faked => {}
            }
        }
    }

    /// Returns the state if no work is left to do at the current time.
    async fn check_still(&self) -> Result<Option<Still>, RunError> {
        let traffic = self.transport.traffic();
        let counts = traffic.counts();
        let works = self.worker.running_tasks() > self.fakes.hanging();
        if works || counts.others > 0 || counts.polls < self.polls {
            return Ok(None);
        }
        let Some(idle) = self.host.idle().await? else {
            return Ok(None);
        };
        let is_still = idle.polls_waiting == counts.polls
            && idle
                .leased
                .iter()
                .all(|task_id| self.fakes.hangs(task_id.as_str()))
            && traffic.counts() == counts;
        Ok(is_still.then_some(Still {
            counts,
            due_at: idle.due_at,
        }))
    }

    /// Moves the clock, unless a request began or ended since the check. Returns whether it moved.
    pub(super) fn jump(&self, still: &Still, to: Timestamp) -> bool {
        let traffic = self.transport.traffic();
        traffic.if_still(still.counts, || self.clock.advance_to(to))
    }

    /// Moves the clock from one due time to the next until it reaches `target`, and waits for the work that becomes due.
    pub(super) async fn pass(&self, target: Timestamp) -> Result<(), RunError> {
        loop {
            let still = self.still().await?;
            if self.host.now() >= target {
                return Ok(());
            }
            self.jump(&still, still.due_at.map_or(target, |at| at.min(target)));
        }
    }

    /// Lets time pass until a workflow is closed. Fails if it does not end.
    pub(super) async fn pass_until_closed(
        &self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
    ) -> Result<(), RunError> {
        let limit = u64::try_from(self.longest_wait.as_micros()).unwrap_or(u64::MAX);
        let begin = self.host.now();
        let mut jumps = 0;
        loop {
            let still = self.still().await?;
            if self.is_closed(namespace, workflow_id).await? {
                return Ok(());
            }
            let why = match still.due_at {
                _ if self.has_broken_runs(namespace).await? => Why::TaskFailed,
                None => Why::NothingDue,
                Some(at) if begin.micros_until(at) > limit => Why::TooLong(self.longest_wait),
                Some(_) if jumps == self.most_jumps => Why::TooManyJumps(jumps),
                Some(at) => {
                    jumps += u32::from(self.jump(&still, at));
                    continue;
                }
            };
            let stuck =
                Stuck::describe(&self.host, Some(&self.fakes), namespace, workflow_id, why).await?;
            return Err(RunError::Stuck(Box::new(stuck)));
        }
    }

    async fn is_closed(
        &self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
    ) -> Result<bool, RunError> {
        let found = self
            .host
            .workflows()
            .describe(namespace, workflow_id, None)
            .await;
        match found {
            Ok(found) => Ok(found.run.core.closed.is_some()),
            // The request of the handle will fail with its own error.
            Err(longhaul_host::Error::InstanceNotFound(_)) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the code of an open run fails. A server retries that without end, because new code may be deployed. A test
    /// fails.
    async fn has_broken_runs(&self, namespace: &Namespace) -> Result<bool, RunError> {
        if self.worker.metrics().workflow_tasks_failed == 0 {
            return Ok(false);
        }
        let views = super::stuck::open_runs(&self.host, namespace).await?;
        Ok(views.iter().any(|view| {
            let task = view.description.run.core.workflow_task.as_ref();
            task.is_some_and(|task| task.failures > 0 || task.replay_blocked)
        }))
    }
}
