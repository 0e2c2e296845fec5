//! The asynchronous runtime, and the signal that must not end the process.

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// SIGXFSZ, the same number on every platform the server is built for. The system sends it when a file would grow beyond the
/// limit of the process (`ulimit -f`); its default action ends the process.
const FILE_SIZE_LIMIT_REACHED: i32 = 25;

/// Starts the runtime.
pub(crate) fn start() -> Result<Runtime> {
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    let inside = runtime.enter();
    // Listening for the signal once replaces its default action. The write then fails as on a full disk, and the store
    // handles that.
    if let Err(error) = signal(SignalKind::from_raw(FILE_SIZE_LIMIT_REACHED)) {
        tracing::warn!(%error, "a limit on file sizes would end the server");
    }
    drop(inside);
    Ok(runtime)
}
