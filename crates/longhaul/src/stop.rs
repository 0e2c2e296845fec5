//! When to stop: Ctrl-C from a person, SIGTERM from a supervisor.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves when somebody asks the process to end. Listens from the call on, not from the first poll: who is told that the
/// server listens may stop it at once.
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
        .map_err(|error| tracing::warn!(%error, ?kind, "a signal cannot be watched"))
        .ok()
}

/// Never, of a signal that cannot be watched.
async fn received(signal: Option<Signal>) {
    match signal {
        Some(mut signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
