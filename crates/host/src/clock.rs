//! The only `now` on the server. Everything that depends on time reads this clock, so a test can move the clock instead of waiting.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use longhaul_protocol::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) mod skew;

/// The source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Timestamp;
    /// Resolves at `at`, or at once if that has passed.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait = Duration::from_micros(self.now().micros_until(at));
        Box::pin(tokio::time::sleep(wait))
    }
}

/// A clock that does not move until a test moves it.
#[derive(Clone, Debug)]
pub struct ManualClock {
    state: Arc<ManualState>,
}

#[derive(Debug)]
struct ManualState {
    now: Mutex<Timestamp>,
    moved: Notify,
}

impl ManualClock {
    /// Returns a clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: Arc::new(ManualState {
                now: Mutex::new(now),
                moved: Notify::new(),
            }),
        }
    }

    /// Moves the clock forward and wakes everything that waits for that time.
    pub fn advance_seconds(&self, seconds: u64) {
        {
            let mut now = self.state.now.lock();
            *now = now.plus_seconds(seconds);
        }
        self.state.moved.notify_waiters();
    }

    /// Moves the clock forward to `at`, never back.
    pub fn advance_to(&self, at: Timestamp) {
        {
            let mut now = self.state.now.lock();
            *now = at.max(*now);
        }
        self.state.moved.notify_waiters();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.state.now.lock()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            loop {
                // Registered before the check, so that a move in between is not missed.
                let moved = state.moved.notified();
                if *state.now.lock() >= at {
                    return;
                }
                moved.await;
            }
        })
    }
}
