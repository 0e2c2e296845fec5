//! Deletes the rows of removed runs, in bounded steps. Nothing finds a removed run any more, so only the room is at stake. A removal
//! that a crash interrupted is finished when the next server starts.

use std::time::Duration;

use tokio::sync::Notify;

use crate::Host;
use crate::error::Result;
use crate::sweeps::Sweep;

/// How often a server looks for removals that another one left.
const LOOK_INTERVAL: Duration = Duration::from_secs(600);

/// Wakes the sweep.
#[derive(Default)]
pub(crate) struct Removed(Notify);

impl Removed {
    /// Notes that a run was removed whose rows are not all deleted.
    pub(crate) fn notify(&self) {
        self.0.notify_one();
    }
}

/// Deletes what removed runs left.
#[derive(Default)]
pub(crate) struct RemovalSweep;

impl Sweep for RemovalSweep {
    const NAME: &'static str = "removals";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let inner = &host.inner;
        while !inner.stopping.is_cancelled() && inner.store.purge_removed().await? {}
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        tokio::select! {
            () = host.inner.wakes.removed.0.notified() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}
