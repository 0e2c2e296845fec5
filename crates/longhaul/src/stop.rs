//! When to stop: Ctrl-C from a person, SIGTERM from a supervisor.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves when somebody asks the process to end.
pub(crate) async fn asked_to_stop() {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be watched; stop with Ctrl-C");
            let _ = tokio::signal::ctrl_c().await;
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
