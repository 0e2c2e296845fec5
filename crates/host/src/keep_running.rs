//! Background loops that must not vanish. One that panics is logged and started again; what it works on is read from the store,
//! so it goes on where it was.

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
                tracing::error!(name, "a background loop panicked; it is started again");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_PANIC) => {}
                    () = host.inner.stopping.cancelled() => return,
                }
            }
        });
    }
}
