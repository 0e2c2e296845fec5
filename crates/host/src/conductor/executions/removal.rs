//! Removal of definition runs: from the store, and from everything that this server keeps in memory.

use longhaul_engine::command::TerminateExecution;
use longhaul_engine::conductor::execution::end::AfterTermination;
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_store::Hints;
use tokio::time::Instant;

use super::PASSES_WAIT;
use crate::commit::execute::Removal;
use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::sweeps::outbox::deliver_now;
use crate::views::Executions;

/// How often a removal looks again at a run that was opened, or wrote another message, in the meantime.
const TRIES: usize = 20;

impl Executions<'_> {
    /// Removes a run with everything that is stored of it. An open one is terminated first, with its sub-workflows. Its messages to
    /// other runs are delivered before it goes.
    pub async fn remove(self, namespace: &Namespace, id: &str, reason: Option<&str>) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        for _ in 0..TRIES {
            let executor = &self.host.inner.executor;
            let is_open = executor.read_part(&run_id, |run| run.core.closed.is_none());
            match is_open.await? {
                None => return self.removed(&run_id).await,
                Some(true) => {
                    let command = TerminateExecution {
                        reason: Some(reason.unwrap_or("The workflow was removed").to_owned()),
                        then: AfterTermination::Nothing,
                    };
                    self.decide(&run_id, &command).await?;
                }
                Some(false) => {}
            }
            deliver_now(self.host, &run_id, Instant::now() + PASSES_WAIT).await?;
            match executor.remove(&run_id).await? {
                Removal::Done | Removal::NotThere => return self.removed(&run_id).await,
                Removal::StillNeeded => {}
            }
        }
        Err(Error::Contended)
    }

    /// Terminates a run, which must not have ended in another way than that, and removes it.
    pub async fn terminate_and_remove(
        self,
        namespace: &Namespace,
        id: &str,
        reason: Option<&str>,
    ) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let command = TerminateExecution {
            reason: reason.map(str::to_owned),
            then: AfterTermination::Nothing,
        };
        match self.decide(&run_id, &command).await {
            // Nothing is left to terminate.
            Ok(()) | Err(Error::Rejected(_)) => {}
            Err(Error::Conductor(ConductorRefusal::NoSuchExecution(_))) => {}
            Err(error) => return Err(error),
        }
        self.remove(namespace, id, reason).await
    }

    /// Informs the other servers and the callers that wait for the run, and deletes its rows.
    async fn removed(self, run_id: &RunId) -> Result<()> {
        let inner = &self.host.inner;
        inner.wakes.wake_watchers(run_id, u64::MAX);
        if let Some(shared) = inner.store.shared() {
            let mut hints = Hints::default();
            hints.runs.insert(run_id.clone(), u64::MAX);
            shared.announce(hints);
        }
        let until = Instant::now() + PASSES_WAIT;
        while Instant::now() < until {
            match inner.store.purge_removed().await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // The run is removed; its rows are deleted later.
                Err(error) => {
                    tracing::warn!(%run_id, %error, "rows of a removed run are deleted later");
                    break;
                }
            }
        }
        inner.wakes.removed.notify();
        Ok(())
    }
}
