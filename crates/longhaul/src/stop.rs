//! The signals that stop the process: Ctrl-C from a person, SIGTERM from a supervisor.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns a future that resolves when a stop signal arrives. It listens from the call on, not from the first poll, because a
/// program may stop the server as soon as it has read the listening address.
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> + Send + 'static {
    let terminate = watch(SignalKind::terminate());
    let interrupt = watch(SignalKind::interrupt());
    async move {
        tokio::select! {
            () = received(terminate) => {}
            () = received(interrupt) => {}
        }
    }
}

fn watch(kind: SignalKind) -> Option<Signal> {
    signal(kind)
        .map_err(|error| tracing::warn!(%error, ?kind, "cannot listen for a signal"))
        .ok()
}

/// Waits for the signal. Never resolves if the process cannot listen for it.
async fn received(signal: Option<Signal>) {
    match signal {
        Some(mut signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
