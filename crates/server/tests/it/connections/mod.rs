//! Connections as clients see them: HTTP/2 in clear, TLS, and the bounds on both. The time-outs of these servers are short, and tests wait
//! for what a time-out causes, never for the time itself.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

mod http2;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longhaul_server::connections::{self, Limits, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// The longest wait for something that should happen soon.
const DEADLINE: Duration = Duration::from_secs(60);

/// The short time-out of these servers.
const SHORT: Duration = Duration::from_millis(300);

/// A body that is larger than every buffer and window on the way.
const LARGE: usize = 8 << 20;

fn short() -> Limits {
    Limits {
        header_timeout: SHORT,
        body_timeout: SHORT,
        idle_timeout: SHORT,
        write_timeout: SHORT,
        ..Limits::default()
    }
}

/// A server on a port of its own.
struct Serving {
    address: SocketAddr,
    /// A request to `/wait` is answered for each permit.
    permits: Arc<Semaphore>,
    /// Has a permit for each request that arrived at `/wait`.
    arrivals: Arc<Semaphore>,
    /// The largest number of requests at `/wait` at once.
    waiting_most: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Serving {
    async fn start(limits: Limits, tls: Option<Tls>) -> Self {
        Self::with_router(Router::new(), limits, tls).await
    }

    async fn with_router(router: Router, limits: Limits, tls: Option<Tls>) -> Self {
        let permits = Arc::new(Semaphore::new(0));
        let arrivals = Arc::new(Semaphore::new(0));
        let waiting_most = Arc::new(AtomicUsize::new(0));
        let wait = {
            let waiting = Arc::new(AtomicUsize::new(0));
            let most = Arc::clone(&waiting_most);
            let (allowed, arrived) = (Arc::clone(&permits), Arc::clone(&arrivals));
            move || {
                most.fetch_max(waiting.fetch_add(1, Relaxed) + 1, Relaxed);
                arrived.add_permits(1);
                let (allowed, waiting) = (Arc::clone(&allowed), Arc::clone(&waiting));
                async move {
                    allowed.acquire_owned().await.unwrap().forget();
                    waiting.fetch_sub(1, Relaxed);
                    "done"
                }
            }
        };
        let router = router
            .route(
                "/version",
                get(|version: Version| async move { format!("{version:?}") }),
            )
            .route("/wait", get(wait))
            .route("/large", get(|| async { vec![b'x'; LARGE] }))
            .route(
                "/length",
                post(|body: Bytes| async move { body.len().to_string() }),
            );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let serving = tokio::spawn(async move {
            match tls {
                Some(tls) => connections::serve_tls(listener, tls, router, limits, stopped).await,
                None => connections::serve(listener, router, limits, stopped).await,
            }
        });
        Self {
            address,
            permits,
            arrivals,
            waiting_most,
            stop,
            serving,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Waits until this many requests more have arrived at `/wait`.
    async fn arrived(&self, count: u32) {
        let arrived = soon(self.arrivals.acquire_many(count)).await;
        arrived.unwrap().forget();
    }
}

/// Waits for something that should happen soon.
async fn soon<F: Future>(future: F) -> F::Output {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.expect("it did not happen in time")
}

/// An HTTP/2 connection. The task ends when the connection is closed.
struct Http2 {
    requests: SendRequest<Full<Bytes>>,
    closed: JoinHandle<hyper::Result<()>>,
}

impl Http2 {
    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        Self::built(&builder, stream).await
    }

    async fn built(
        builder: &hyper::client::conn::http2::Builder<TokioExecutor>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        let (requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        let closed = tokio::spawn(connection);
        Self { requests, closed }
    }

    async fn get(&self, path: &str) -> Response<Incoming> {
        let request = Request::get(format!("http://localhost{path}"));
        let request = request.body(Full::default()).unwrap();
        soon(self.requests.clone().send_request(request))
            .await
            .unwrap()
    }

    /// Waits until the server closed the connection. The client keeps its end open.
    async fn closed(self) {
        let _requests = self.requests;
        let _cause = soon(self.closed).await.unwrap();
    }
}

async fn text(response: Response<Incoming>) -> String {
    assert_eq!(response.status(), StatusCode::OK);
    let body = soon(response.into_body().collect()).await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// Sends a request of HTTP/1.1 and returns the response.
async fn http1_get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
) -> Response<Incoming> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut requests, connection) = soon(handshake).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "localhost");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    soon(requests.send_request(request)).await.unwrap()
}
