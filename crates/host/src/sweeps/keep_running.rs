//! Background loops that must not disappear. A loop that panics is logged and restarted; it reads its work from the store, so it
//! continues where it was.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;

use crate::Host;

/// Between a panic and the next start: a loop that panics at once must not fill the log or a processor.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

impl Host {
    /// Runs a loop in the background until it returns, which it does when the host stops.
    pub(crate) fn keep_running<F>(
        &self,
        name: &'static str,
        start: impl Fn(Self) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let host = self.clone();
        self.inner.tasks.spawn(async move {
            loop {
                // Unwind safety: loops keep their state in locks that a panic does not poison, and in the store.
                let ended = AssertUnwindSafe(async { start(host.clone()).await })
                    .catch_unwind()
                    .await;
                if ended.is_ok() {
                    return;
                }
                tracing::error!(name, "background loop panicked; restarting it");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_PANIC) => {}
                    () = host.inner.stopping.cancelled() => return,
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use longhaul_store::memory::Memory;
    use tokio::sync::Notify;

    use super::*;
    use crate::Config;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_restarted() {
        let store = Arc::new(Memory::new());
        let host = Host::start(store, Config::default()).await.unwrap();
        let starts = Arc::new(AtomicUsize::new(0));
        let runs = Arc::new(Notify::new());
        let (counted, started) = (Arc::clone(&starts), Arc::clone(&runs));
        host.keep_running("test", move |host| {
            let (counted, started) = (Arc::clone(&counted), Arc::clone(&started));
            async move {
                assert!(
                    counted.fetch_add(1, Ordering::SeqCst) == 2,
                    "the test makes it panic"
                );
                started.notify_one();
                host.inner.stopping.cancelled().await;
            }
        });
        runs.notified().await;
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        host.stop().await;
    }
}
