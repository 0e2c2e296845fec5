//! Compares the clock of this server with that of a database that servers share, also if no readiness probe does. Only the log and
//! the metrics learn the result here.

use std::time::Duration;

use crate::Host;
use crate::error::Result;
use crate::sweeps::Sweep;

/// Between two comparisons. A clock that is no longer synchronised drifts slowly, and a comparison may cost a small write.
const INTERVAL: Duration = Duration::from_secs(30);

/// Compares clocks from time to time.
#[derive(Default)]
pub(crate) struct ClockSweep;

impl Sweep for ClockSweep {
    const NAME: &'static str = "clocks";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        if host.inner.store.shared().is_some() {
            // While the store fails there is nothing to compare. Requests and other sweeps report that.
            let _ = host.check_writes().await;
        }
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        if host.inner.store.shared().is_some() {
            tokio::time::sleep(INTERVAL).await;
        } else {
            std::future::pending().await
        }
    }
}
