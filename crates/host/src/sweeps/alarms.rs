//! Applies everything that is due in runs. There is no scan: the sweep sleeps until the earliest alarm in the store, or an earlier
//! one that a commit announced. While idle it reads nothing.

use std::time::Duration;

use futures::StreamExt;
use longhaul_engine::command::AdvanceTime;
use longhaul_protocol::Timestamp;
use longhaul_store::{Due, DueLimits};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Host;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::sweeps::Sweep;

/// Due runs fetched at a time.
const BATCH: usize = 512;

/// Runs advanced at the same time; their commits share syncs.
const CONCURRENT: usize = 64;

/// Another server may set an alarm and stop before it fires. If there may be one, check this often.
pub(crate) const SHARED_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// How long due work is left to the server that took it. A server that stops meanwhile delays it by this.
const TAKEN_SECONDS: u64 = 10;

/// A run that too many callers change is tried again after this.
const CONTENDED_SECONDS: u64 = 1;

/// When to check next.
#[derive(Default)]
pub(crate) struct NextCheck {
    next: Mutex<Option<Timestamp>>,
    earlier: Notify,
}

impl NextCheck {
    /// Sets the next check to no later than this: a commit set an alarm.
    pub(crate) fn set_no_later_than(&self, at: Timestamp) {
        let mut next = self.next.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            drop(next);
            self.earlier.notify_one();
        }
    }

    /// Clears the time. Called before a check, so that one that is set during the check is not lost.
    pub(crate) fn clear(&self) {
        *self.next.lock() = None;
    }

    /// Returns whether the time has come and no pass has begun since.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.next.lock().is_some_and(|at| at <= now)
    }

    /// Waits for the time.
    pub(crate) async fn wait(&self, clock: &dyn Clock) {
        loop {
            let next = *self.next.lock();
            let due = async {
                match next {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                () = self.earlier.notified() => {}
            }
        }
    }
}

/// Applies everything that is due in runs.
#[derive(Default)]
pub(crate) struct Alarms;

impl Sweep for Alarms {
    const NAME: &'static str = "alarms";
    const KEEPS_HOST_BUSY: bool = true;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let check = &host.inner.wakes.run_check;
        // Clearing the old time before the check means that an alarm that is set during the check is not lost.
        check.clear();
        if let Some(at) = advance_due_runs(host).await? {
            check.set_no_later_than(at);
        }
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        let executor = &host.inner.executor;
        let look = async {
            if executor.store.shared().is_some() {
                tokio::time::sleep(SHARED_LOOK_INTERVAL).await;
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = host.inner.wakes.run_check.wait(&*executor.clock) => {}
            () = look => {}
        }
    }
}

/// Advances every due run, and returns the next alarm.
async fn advance_due_runs(host: &Host) -> Result<Option<Timestamp>> {
    let executor = &host.inner.executor;
    loop {
        let Due {
            runs: due, next, ..
        } = host.due(DueLimits::runs(BATCH)).await?;
        if due.is_empty() {
            return Ok(next);
        }
        let (mut failed, mut is_contended) = (None, false);
        let advance = |run_id| async move { executor.execute(&run_id, &AdvanceTime).await };
        let mut advanced = futures::stream::iter(due)
            .map(advance)
            .buffer_unordered(CONCURRENT);
        while let Some(outcome) = advanced.next().await {
            match outcome {
                Ok(_) => {}
                // Others change it now. It stays due, and must not stop the rest.
                Err(Error::Contended) => is_contended = true,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if is_contended {
            let again = executor.clock.now().plus_seconds(CONTENDED_SECONDS);
            return Ok(Some(next.map_or(again, |next| next.min(again))));
        }
    }
}

impl Host {
    /// Returns what is due now. If other servers use the store too, only what none of them took, and it is taken by this one.
    pub(crate) async fn due(&self, limits: DueLimits) -> Result<Due> {
        let now = self.now();
        let due = match self.inner.store.shared() {
            Some(shared) => shared.take_due(now, limits, now.plus_seconds(TAKEN_SECONDS)),
            None => self.inner.store.due(now, limits),
        };
        Ok(due.await?)
    }
}
