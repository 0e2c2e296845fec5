//! Forgets workers that were silent for long: a process that crashed never says goodbye, and its registration would stay for ever.
//! A worker that comes back after that is told that it is not registered, as if it had left.

use std::time::Duration;

use futures::StreamExt;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkerId};

use crate::Host;
use crate::error::{Error, Result};

/// Silent for this long after it counts as stale, unless configured, a worker is forgotten. Far longer than a restart or a lost
/// network usually lasts, because no published worker registers twice.
pub(crate) const FORGET_SECONDS_DEFAULT: u64 = 3600;

/// Looks are at least this far apart: nobody minds a minute more.
const LOOK_SECONDS_MIN: u64 = 60;

/// Workers forgotten at the same time; their writes share syncs.
const CONCURRENT: usize = 64;

/// After a failure of the store, how long to leave it alone.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Runs until told to stop.
pub(crate) async fn run(host: Host) {
    let inner = &host.inner;
    loop {
        let pause = match host.forget_silent_workers().await {
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "silent workers could not be forgotten; trying again shortly");
                Some(PAUSE_AFTER_FAILURE)
            }
        };
        let next = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => inner.clock.sleep_until(host.next_worker_look()).await,
            }
        };
        tokio::select! {
            () = next => {}
            () = inner.stopping.cancelled() => return,
        }
    }
}

impl Host {
    /// Forgets every worker that was silent for too long; how many.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn forget_silent_workers(&self) -> Result<u64> {
        let now = self.now();
        let silent: Vec<(Namespace, WorkerId)> = {
            let known = self.inner.workers.known.read();
            let silent = known.values().filter(|worker| {
                self.forgotten_from(worker) <= now
                    && !self.inner.wakes.dispatch.is_waited_at(&worker.row)
            });
            silent
                .map(|worker| (worker.row.namespace.clone(), worker.row.worker_id.clone()))
                .collect()
        };
        let forget = |(namespace, worker_id): (Namespace, WorkerId)| async move {
            match self.deregister_worker(&namespace, &worker_id).await {
                Ok(_) => {
                    tracing::info!(%namespace, %worker_id, "a worker was silent for long and is forgotten");
                    Ok(1)
                }
                Err(Error::WorkerNotRegistered(_)) => Ok(0),
                Err(error) => Err(error),
            }
        };
        let mut forgotten = 0;
        let mut outcomes = futures::stream::iter(silent)
            .map(forget)
            .buffer_unordered(CONCURRENT);
        while let Some(outcome) = outcomes.next().await {
            forgotten += outcome?;
        }
        Ok(forgotten)
    }

    /// When a worker may have to be forgotten next: not before the one that was silent longest, and not too soon.
    fn next_worker_look(&self) -> Timestamp {
        let now = self.now();
        let config = &self.inner.config;
        let of_new = now.plus_seconds(
            config
                .worker_stale_seconds
                .saturating_add(config.worker_forget_seconds),
        );
        let known = self.inner.workers.known.read();
        let first = known.values().map(|worker| self.forgotten_from(worker));
        let next = first.min().unwrap_or(of_new);
        next.max(now.plus_seconds(LOOK_SECONDS_MIN))
    }
}
