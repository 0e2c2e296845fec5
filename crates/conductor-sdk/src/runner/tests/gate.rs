//! Workers whose tasks last until the test lets them end, and a clock that the test moves.
//!
//! The clock of tokio does not jump while a thread works, so a test of a sync runner moves it by hand. The same steps serve the async
//! runner.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::runner::TaskRunner;
use crate::worker::{AnyWorker, Outcome, RunnerKind, async_function, function};

/// How far the clock moves at once. All waits that are tested with it are multiples of it.
const STEP: Duration = Duration::from_millis(100);

/// Holds tasks back.
pub(super) struct Gate {
    permits: Arc<Semaphore>,
    entered: watch::Sender<usize>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(0)),
            entered: watch::Sender::new(0),
        }
    }

    /// Returns a worker of either kind whose tasks return their input when they are let through.
    pub(super) fn worker(&self, kind: RunnerKind) -> AnyWorker {
        let (permits, entered) = (Arc::clone(&self.permits), self.entered.clone());
        match kind {
            RunnerKind::Sync => function("t", move |input: Value| {
                entered.send_modify(|count| *count += 1);
                let runtime = tokio::runtime::Handle::current();
                runtime.block_on(permits.acquire())?.forget();
                Outcome::output(&input)
            }),
            RunnerKind::Async => async_function("t", move |input: Value| {
                let permits = Arc::clone(&permits);
                entered.send_modify(|count| *count += 1);
                async move {
                    permits.acquire().await?.forget();
                    Outcome::output(&input)
                }
            }),
        }
    }

    /// Waits until so many tasks have come.
    pub(super) async fn entered(&self, count: usize) {
        let mut entered = self.entered.subscribe();
        let reached = entered.wait_for(|entered| *entered >= count).await;
        reached.unwrap();
    }

    /// Returns how many tasks have come.
    pub(super) fn count(&self) -> usize {
        *self.entered.borrow()
    }

    /// Lets tasks through.
    pub(super) fn open(&self, count: usize) {
        self.permits.add_permits(count);
    }
}

impl Drop for Gate {
    /// A test that fails would wait for its threads.
    fn drop(&mut self) {
        self.permits.close();
    }
}

/// Does one iteration. The clock moves as far as the iteration waits.
pub(super) async fn iterate(runner: &mut TaskRunner) {
    let clock = async {
        loop {
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = runner.run_once() => {}
        () = clock => {}
    }
}

/// Moves the clock, and lets everything run that is due on the way.
pub(super) async fn pass(time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        tokio::time::advance(STEP).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until a condition holds. The clock does not move.
pub(super) async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
