//! Deletes workers that have been silent for long. A process that crashed does not deregister, and its registration would stay. A
//! worker that returns after that is refused as not registered, as if it had left.

use futures::StreamExt;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkerId};

use crate::Host;
use crate::error::{Error, Result};
use crate::sweeps::Sweep;
use crate::views::Workers;

/// The silence after which a stale worker is deleted, unless configured. Far longer than a restart or a lost network usually lasts,
/// because no published worker registers twice.
pub(crate) const FORGET_SECONDS_DEFAULT: u64 = 3600;

/// Checks are at least this far apart. A minute more does not matter.
const LOOK_SECONDS_MIN: u64 = 60;

/// Workers deleted at the same time; their writes share syncs.
const CONCURRENT: usize = 64;

/// Deletes workers that have been stale for long.
#[derive(Default)]
pub(crate) struct WorkerSweep;

impl Sweep for WorkerSweep {
    const NAME: &'static str = "workers";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        host.workers().remove_silent().await?;
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        let clock = &host.inner.clock;
        clock.sleep_until(host.workers().next_look()).await;
    }
}

impl Workers<'_> {
    /// Deletes every worker that was silent for too long. Returns how many.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn remove_silent(self) -> Result<u64> {
        let now = self.host.now();
        let silent: Vec<(Namespace, WorkerId)> = {
            let known = self.host.inner.workers.known.read();
            let silent = known.values().filter(|worker| {
                self.removed_from(worker) <= now
                    && !self.host.inner.wakes.dispatch.is_waited_at(&worker.row)
            });
            silent
                .map(|worker| (worker.row.namespace.clone(), worker.row.worker_id.clone()))
                .collect()
        };
        let remove = |(namespace, worker_id): (Namespace, WorkerId)| async move {
            match self.deregister(&namespace, &worker_id).await {
                Ok(_) => {
                    tracing::info!(%namespace, %worker_id, "deleted a worker that was silent for long");
                    Ok(1)
                }
                Err(Error::WorkerNotRegistered(_)) => Ok(0),
                Err(error) => Err(error),
            }
        };
        let mut forgotten = 0;
        let mut outcomes = futures::stream::iter(silent)
            .map(remove)
            .buffer_unordered(CONCURRENT);
        while let Some(outcome) = outcomes.next().await {
            forgotten += outcome?;
        }
        Ok(forgotten)
    }

    /// Returns when the next worker may have to be deleted: not before the one with the longest silence, and not too soon.
    fn next_look(self) -> Timestamp {
        let now = self.host.now();
        let config = &self.host.inner.config;
        let of_new = now.plus_seconds(
            config
                .worker_stale_seconds
                .saturating_add(config.worker_forget_seconds),
        );
        let known = self.host.inner.workers.known.read();
        let first = known.values().map(|worker| self.removed_from(worker));
        let next = first.min().unwrap_or(of_new);
        next.max(now.plus_seconds(LOOK_SECONDS_MIN))
    }
}
