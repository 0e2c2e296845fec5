//! Serves metrics over HTTP. A connection has one request and a few seconds, and there are few connections, so that a slow or hostile
//! reader costs little.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::reporting::{Source, stopped};
use super::text;

/// How many connections are open at once. There are one or two readers.
pub(super) const CONNECTIONS_MAX: usize = 32;

/// How long a connection may take from its beginning to its end.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The bytes of the line and the headers of a request.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

/// The pause after a connection could not be accepted, usually because descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const PATHS: &str = "GET /metrics for the metrics, GET /health for the state of the workers\n";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves until `stop` is true. Then the port and all connections are closed.
pub(super) async fn serve(
    listener: TcpListener,
    source: Arc<Source>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let has_room = connections.len() < CONNECTIONS_MAX;
        tokio::select! {
            () = stopped(&mut stop) => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&source)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a reader of the metrics cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, source: Arc<Source>) {
    let service = service_fn(move |request| {
        let source = Arc::clone(&source);
        async move { Ok::<_, Infallible>(respond(&request, source).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .max_buf_size(BUFFER_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a reader of the metrics disconnected"),
        Err(_) => tracing::debug!("a reader of the metrics was too slow"),
    }
}

async fn respond<B>(request: &Request<B>, source: Arc<Source>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, PLAIN, PATHS);
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    match request.uri().path() {
        "/metrics" => match tokio::task::spawn_blocking(move || source.text()).await {
            Ok(text) => answer(StatusCode::OK, text::CONTENT_TYPE, text),
            Err(error) => {
                tracing::error!(%error, "the metrics cannot be rendered");
                answer(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "see the log\n")
            }
        },
        "/health" => {
            let dead = source.dead_workers();
            let is_up = dead.as_ref().is_some_and(Vec::is_empty);
            let (code, status) = if is_up {
                (StatusCode::OK, "UP")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "DOWN")
            };
            let dead = dead.unwrap_or_default();
            let body = serde_json::json!({"status": status, "deadWorkers": dead});
            answer(code, JSON, body.to_string())
        }
        "/" => answer(StatusCode::OK, PLAIN, PATHS),
        _ => answer(StatusCode::NOT_FOUND, PLAIN, PATHS),
    }
}

fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
