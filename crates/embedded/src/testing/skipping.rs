//! When time may jump, and how far.
//!
//! Time jumps only when nothing can happen without it: every poll of the worker waits in line, no other request is in flight,
//! nobody holds or still handles a task (but fakes that hang on purpose), and the server's own loops rest. Whatever ends such a state begins or
//! ends a request, so a jump between two requests that are the same before and after the look is safe.

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

/// What an environment and its handles share.
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) transport: EmbeddedTransport,
    pub(super) clock: ManualClock,
    pub(super) fakes: Arc<Fakes>,
    pub(super) worker: WorkerHandle,
    /// The polls that the worker keeps open when it has nothing else to do.
    pub(super) polls: usize,
    pub(super) skips: bool,
    pub(super) longest_wait: Duration,
    pub(super) most_jumps: u32,
}

/// A moment at which nothing can happen without time passing.
pub(super) struct Still {
    counts: Counts,
    pub(super) due_at: Option<Timestamp>,
}

impl Shared {
    /// Waits until nothing can happen without time passing.
    pub(super) async fn still(&self) -> Result<Still, RunError> {
        loop {
            // Whoever changes something after this is heard.
            let rested = self.host.rested();
            let ended = self.transport.traffic().ended();
            let worked = self.worker.task_ended();
            let faked = self.fakes.changed.notified();
            tokio::pin!(rested, ended, worked, faked);
            rested.as_mut().enable();
            ended.as_mut().enable();
            worked.as_mut().enable();
            faked.as_mut().enable();
            if self.fakes.has_ended() {
                return Err(RunError::Stopped);
            }
            if let Some(still) = self.look().await? {
                return Ok(still);
            }
            tokio::select! {
                () = rested => {}
                () = ended => {}
                () = worked => {}
                () = faked => {}
            }
        }
    }

    async fn look(&self) -> Result<Option<Still>, RunError> {
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

    /// Moves the clock, unless something has happened since the look.
    pub(super) fn jump(&self, still: &Still, to: Timestamp) -> bool {
        let traffic = self.transport.traffic();
        traffic.if_still(still.counts, || self.clock.advance_to(to))
    }

    /// Moves the clock from one due moment to the next until it shows `target`, and waits for what that brings about.
    pub(super) async fn pass(&self, target: Timestamp) -> Result<(), RunError> {
        loop {
            let still = self.still().await?;
            if self.host.now() >= target {
                return Ok(());
            }
            self.jump(&still, still.due_at.map_or(target, |at| at.min(target)));
        }
    }

    /// Lets time pass until a workflow is closed.
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
                Stuck::describe(&self.host, &self.fakes, namespace, workflow_id, why).await?;
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
            .describe_workflow(namespace, workflow_id, None)
            .await;
        match found {
            Ok(found) => Ok(found.run.core.closed.is_some()),
            // The handle says so in its own words.
            Err(longhaul_host::Error::InstanceNotFound(_)) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the code of an open run fails. A server tries that again for ever, since code can be deployed; a test need not.
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
