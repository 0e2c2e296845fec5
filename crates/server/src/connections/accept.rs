//! Accepts connections and closes those above the limit. `answer` serves the others.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use longhaul_host::Quiet;
use longhaul_protocol::Reason;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::MissedTickBehavior;

use super::Limits;
use super::answer::answer;
use super::tls::Tls;
use super::watch::Watch;

/// Time between two sweeps of the connections. Timeouts are seconds, so this is precise enough.
const SWEEP_INTERVAL: Duration = Duration::from_millis(200);

/// Pause after a connection could not be accepted, usually because descriptors ran out. Long enough for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How many connections may be above the limit while they are closed: each still has a descriptor.
const CLOSING_MAX: usize = 32;

/// Pause before the next accept while evicted connections close, and how often it is repeated.
const CLOSING_WAIT: Duration = Duration::from_millis(1);
const CLOSING_WAITS_MAX: usize = 200;

/// The response to a connection above the limit.
fn too_many_connections() -> String {
    let body = json!({
        "message": "The server has its maximum number of connections.",
        "reason": Reason::ServerBusy.as_str(),
        "retry_after_seconds": 1,
    })
    .to_string();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 1\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Serves until `stop` is ready, then lets requests in flight end. It never fails: a connection that cannot be accepted is logged,
/// and the next one is tried.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let door = Door {
        listener,
        tls: None,
        router,
        limits,
    };
    door.serve(stop).await;
}

/// Serves as [`serve`] does, with TLS. A client has the same time for the handshake as for the headers of a request.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Tls,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    let door = Door {
        listener,
        tls: Some(tls),
        router,
        limits,
    };
    door.serve(stop).await;
}

/// Where connections come in, and what they get.
struct Door {
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    limits: Limits,
}

impl Door {
    async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let watch = Watch::new(&self.limits);
        self.accept_until(&watch, stop).await;
        let limits = self.limits;
        drop(self.listener);
        watch.begin_stop();
        let sweeping = async {
            let mut sweeps = sweeps();
            loop {
                sweeps.tick().await;
                watch.sweep();
            }
        };
        tokio::select! {
            () = watch.is_empty() => {}
            () = sweeping => {}
            () = tokio::time::sleep(limits.stop_timeout) => {
                tracing::warn!(connections = watch.len(), "some requests did not end in time; their connections were closed");
                watch.close_all();
            }
        }
    }

    async fn accept_until(&self, watch: &Arc<Watch>, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut sweeps = sweeps();
        let mut resume_at: Option<tokio::time::Instant> = None;
        let trouble = Quiet::new();
        loop {
            // Evicted connections release their places when their tasks run. A connection accepted before that would be refused.
            for _ in 0..CLOSING_WAITS_MAX {
                if watch.len() < self.limits.connections_max + CLOSING_MAX {
                    break;
                }
                tokio::time::sleep(CLOSING_WAIT).await;
            }
            let is_paused = resume_at.is_some();
            let pause = async {
                match resume_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stop => return,
                () = pause => resume_at = None,
                accepted = self.listener.accept(), if !is_paused => match accepted {
                    Ok((stream, peer)) => self.take(stream, peer, watch, &trouble),
                    Err(error) if concerns_one_connection(&error) => {}
                    Err(error) => {
                        if let Some(unlogged) = trouble.occurred() {
                            tracing::error!(%error, unlogged, connections = watch.len(), "connections cannot be accepted; is `ulimit -n` too low?");
                        }
                        watch.make_room();
                        resume_at = Some(tokio::time::Instant::now() + ACCEPT_PAUSE);
                    }
                },
                _ = sweeps.tick() => watch.sweep(),
            }
        }
    }

    /// Serves a connection, or closes it if there are too many.
    fn take(&self, stream: TcpStream, peer: SocketAddr, watch: &Arc<Watch>, trouble: &Quiet) {
        let open = watch.len();
        let most = self.limits.connections_max;
        if open >= most && (open >= most + CLOSING_MAX || !watch.make_room()) {
            if let Some(unlogged) = trouble.occurred() {
                tracing::warn!(
                    connections = open,
                    unlogged,
                    "a connection was refused: the limit is reached and no connection is idle"
                );
            }
            // A client that waits for a handshake could not read the refusal.
            if self.tls.is_none() {
                refuse(stream);
            }
            return;
        }
        // Responses are small and clients wait for them, so they must not wait for a full packet.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no-delay could not be set on a connection");
        }
        let tls = self.tls.as_ref().map(Tls::current);
        tokio::spawn(answer(
            stream,
            peer,
            self.router.clone(),
            tls,
            watch.admit(),
        ));
    }
}

fn sweeps() -> tokio::time::Interval {
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sweeps
}

/// Returns whether the client disconnected before its connection was accepted.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Sends the refusal if that is possible without waiting.
fn refuse(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _unread = stream.write(too_many_connections().as_bytes());
    }
}
