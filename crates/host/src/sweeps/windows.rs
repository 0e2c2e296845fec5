//! Hands out tasks whose starts are limited when the window of their task definition has room again. It reads nothing.

use crate::Host;
use crate::error::Result;
use crate::sweeps::Sweep;

/// Serves waiting polls when windows have room.
#[derive(Default)]
pub(crate) struct Windows;

impl Sweep for Windows {
    const NAME: &'static str = "windows";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let dispatch = &host.inner.wakes.dispatch;
        let check = &dispatch.window_check;
        check.clear();
        if let Some(at) = dispatch.serve_windows() {
            check.set_no_later_than(at);
        }
        host.inner.wakes.idle.notify();
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        let check = &host.inner.wakes.dispatch.window_check;
        check.wait(&*host.inner.clock).await;
    }
}
