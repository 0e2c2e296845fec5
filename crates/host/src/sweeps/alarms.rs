//! The one sweep: runs whose alarm is due are told that time has passed. Armed from rows, not by scanning: it sleeps until the
//! earliest alarm in the store or one that a commit announced, whichever comes first. Idle, it reads nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use longhaul_engine::run::advance_time::AdvanceTime;
use longhaul_protocol::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::commit::execute::Executor;
use crate::commit::wakes::Wakes;

/// Due runs fetched at a time.
const BATCH: usize = 512;

/// Runs told at the same time; their commits share syncs.
const CONCURRENT: usize = 64;

/// After a failure of the store, how long to leave it alone.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Another server may set an alarm and die before it rings: where there may be one, look now and then.
const SHARED_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// When to look next.
#[derive(Default)]
pub(crate) struct AlarmBell {
    next: Mutex<Option<Timestamp>>,
    earlier: Notify,
}

impl AlarmBell {
    /// A commit set an alarm: look no later than this.
    pub(crate) fn set_no_later_than(&self, at: Timestamp) {
        let mut next = self.next.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            drop(next);
            self.earlier.notify_one();
        }
    }

    /// Forgets the moment. Done before a look, so that one that is set during the look is not lost.
    pub(crate) fn silence(&self) {
        *self.next.lock() = None;
    }

    /// Whether the moment has come and nobody has looked yet.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.next.lock().is_some_and(|at| at <= now)
    }

    /// Waits for the moment.
    pub(crate) async fn rings(&self, clock: &dyn Clock) {
        loop {
            let next = *self.next.lock();
            let ring = async {
                match next {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ring => return,
                () = self.earlier.notified() => {}
            }
        }
    }
}

/// Runs until told to stop.
pub(crate) async fn run(executor: Arc<Executor>, wakes: Arc<Wakes>, stop: CancellationToken) {
    loop {
        // Forgetting the old moment before looking means that an alarm set during the look is not lost.
        wakes.bell.silence();
        match ring(&executor).await {
            Ok(Some(at)) => wakes.bell.set_no_later_than(at),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "due runs could not be swept; trying again shortly");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => continue,
                    () = stop.cancelled() => return,
                }
            }
        }
        let next = wait(&executor, &wakes, &stop);
        if wakes.rest.during(next).await.is_none() {
            return;
        }
    }
}

/// Waits for the next alarm; None when it is time to stop.
async fn wait(executor: &Executor, wakes: &Wakes, stop: &CancellationToken) -> Option<()> {
    let look = async {
        if executor.store.is_shared() {
            tokio::time::sleep(SHARED_LOOK_INTERVAL).await;
        } else {
            std::future::pending().await
        }
    };
    tokio::select! {
        () = wakes.bell.rings(&*executor.clock) => Some(()),
        () = look => Some(()),
        () = stop.cancelled() => None,
    }
}

/// Tells every due run, and returns the next alarm.
async fn ring(executor: &Executor) -> crate::error::Result<Option<Timestamp>> {
    loop {
        let due = executor.store.due_runs(executor.clock.now(), BATCH).await?;
        if due.is_empty() {
            return Ok(executor.store.next_alarm().await?);
        }
        let mut failed = None;
        let tell = |run_id| async move { executor.execute(&run_id, &AdvanceTime).await };
        let mut told = futures::stream::iter(due)
            .map(tell)
            .buffer_unordered(CONCURRENT);
        while let Some(outcome) = told.next().await {
            if let Err(error) = outcome {
                failed = Some(error);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
}
