//! Accepts connections, serves them, and closes them.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use longhaul_host::Quiet;
use longhaul_protocol::Reason;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::MissedTickBehavior;
use tower::Service as _;

use super::Limits;
use super::body::{Answered, Received};
use super::stream::Counted;
use super::watch::{Order, Place, Watch, Watched};

/// Time between two sweeps of the connections. Timeouts are seconds, so this is precise enough.
const SWEEP_INTERVAL: Duration = Duration::from_millis(200);

/// Pause after a connection could not be accepted, usually because descriptors ran out. Long enough for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How many connections may be above the limit while they are closed: each still has a descriptor.
const CLOSING_MAX: usize = 32;

/// Pause before the next accept while evicted connections close, and how often it is repeated.
const CLOSING_WAIT: Duration = Duration::from_millis(1);
const CLOSING_WAITS_MAX: usize = 200;

/// Bytes of a request's line and headers, and of one read. A long query is a few kilobytes.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

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
    let watch = Watch::new(&limits);
    accept_until(&listener, &router, &limits, &watch, stop).await;
    drop(listener);
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

fn sweeps() -> tokio::time::Interval {
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sweeps
}

async fn accept_until(
    listener: &TcpListener,
    router: &Router,
    limits: &Limits,
    watch: &Arc<Watch>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let mut sweeps = sweeps();
    let mut resume_at: Option<tokio::time::Instant> = None;
    let trouble = Quiet::new();
    loop {
        // Evicted connections release their places when their tasks run. A connection accepted before that would be refused.
        for _ in 0..CLOSING_WAITS_MAX {
            if watch.len() < limits.connections_max + CLOSING_MAX {
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
            accepted = listener.accept(), if !is_paused => match accepted {
                Ok((stream, peer)) => take(stream, peer, router, limits, watch, &trouble),
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

/// Serves a connection, or closes it if there are too many.
fn take(
    stream: TcpStream,
    peer: SocketAddr,
    router: &Router,
    limits: &Limits,
    watch: &Arc<Watch>,
    trouble: &Quiet,
) {
    let open = watch.len();
    if open >= limits.connections_max
        && (open >= limits.connections_max + CLOSING_MAX || !watch.make_room())
    {
        if let Some(unlogged) = trouble.occurred() {
            tracing::warn!(
                connections = open,
                unlogged,
                "a connection was refused: the limit is reached and no connection is idle"
            );
        }
        refuse(stream);
        return;
    }
    // Responses are small and clients wait for them, so they must not wait for a full packet.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no-delay could not be set on a connection");
    }
    tokio::spawn(answer(stream, peer, router.clone(), watch.admit()));
}

/// Sends the refusal if that is possible without waiting.
fn refuse(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _unread = stream.write(too_many_connections().as_bytes());
    }
}

/// Serves one connection. The place is an argument, so it is dropped after the socket is closed: a free place has a free descriptor.
async fn answer(stream: TcpStream, peer: SocketAddr, router: Router, place: Place) {
    let connection = Arc::clone(place.connection());
    let stream = TokioIo::new(Counted::new(stream, Arc::clone(&connection)));
    let answering = Arc::clone(&connection);
    let service = service_fn(move |request: Request<Incoming>| {
        respond(request, peer, router.clone(), Arc::clone(&answering))
    });
    let serving = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(stream, service);
    let mut serving = pin!(serving);
    let mut is_finishing = false;
    let ended = std::future::poll_fn(|context: &mut Context<'_>| {
        loop {
            if let Poll::Ready(ended) = serving.as_mut().poll(context) {
                return Poll::Ready(ended.err());
            }
            match connection.order(context.waker()) {
                Order::GoOn => return Poll::Pending,
                Order::Close => return Poll::Ready(None),
                Order::Finish if is_finishing => return Poll::Pending,
                Order::Finish => {
                    is_finishing = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    });
    if let Some(error) = ended.await {
        tracing::debug!(%error, %peer, "a connection ended with an error");
    }
}

async fn respond(
    request: Request<Incoming>,
    peer: SocketAddr,
    mut router: Router,
    connection: Arc<Watched>,
) -> Result<Response<Answered>, Infallible> {
    if !connection.request_began(!request.body().is_end_stream()) {
        // The connection is being closed, so no new request is started on it.
        return std::future::pending().await;
    }
    let mut request = request.map(|body| Body::new(Received::new(body, Arc::clone(&connection))));
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = router.call(request).await?;
    Ok(response.map(|body| Answered::new(body, connection)))
}
