//! The signals of the process. Ctrl-C from a person and SIGTERM from a supervisor stop it. SIGHUP makes a server with TLS read its
//! certificate again.

use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::interval;

use crate::config::Certificate;

/// Returns a future that resolves when a stop signal arrives. It listens from the call on, not from the first poll, because a
/// program may stop the server as soon as it has read the listening address.
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> + Send + 'static {
    let mut terminate = watch(SignalKind::terminate());
    let mut interrupt = watch(SignalKind::interrupt());
    async move {
        tokio::select! {
            () = received(terminate.as_mut()) => {}
            () = received(interrupt.as_mut()) => {}
        }
    }
}

/// How often the end of a certificate is compared with the clock.
const LOOK_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Returns a future that reads the certificate again whenever SIGHUP arrives, and warns if it expires soon. It never resolves. It listens from the call on, because
/// without a listener the signal ends the process.
pub(crate) fn read_again_on_hangup(
    certificate: Certificate,
) -> impl Future<Output = ()> + Send + 'static {
    let mut hangup = watch(SignalKind::hangup());
    async move {
        let mut looks = interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = received(hangup.as_mut()) => read_again(certificate.clone()).await,
            }
            if let Some(warning) = certificate.warning(SystemTime::now()) {
                tracing::warn!("{warning}");
            }
        }
    }
}

async fn read_again(certificate: Certificate) {
    // The files may be on a slow disk.
    match tokio::task::spawn_blocking(move || certificate.read_again()).await {
        Ok(Ok(())) => tracing::info!("the certificate was read again; new connections use it"),
        Ok(Err(error)) => {
            let error = format!("{error:#}");
            tracing::error!(
                error,
                "the certificate was not replaced; the old one stays in use"
            );
        }
        Err(error) => tracing::error!(%error, "the certificate was not read again"),
    }
}

fn watch(kind: SignalKind) -> Option<Signal> {
    signal(kind)
        .map_err(|error| tracing::warn!(%error, ?kind, "cannot listen for a signal"))
        .ok()
}

/// Waits for the signal. Never resolves if the process cannot listen for it.
async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
