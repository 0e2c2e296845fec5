//! A transport that calls the router of the server directly. Every check of the server applies as it does to a request over HTTP.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use longhaul_transport::{Request, Response, Transport, TransportError};
use tokio::sync::RwLock;
use tower::ServiceExt as _;

use crate::traffic::Traffic;

/// The time that requests in flight have to complete when the server stops. Polls return at once; other requests wait for a
/// commit.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The transport to a server in this process. Cheap to clone.
#[derive(Clone)]
pub struct EmbeddedTransport {
    inner: Arc<Inner>,
}

struct Inner {
    /// The server. `None` after it was stopped. Every request holds a read lock; the stop takes the write lock.
    router: RwLock<Option<Router>>,
    traffic: Traffic,
}

impl EmbeddedTransport {
    pub(crate) fn new(router: Router) -> Self {
        let router = RwLock::new(Some(router));
        Self {
            inner: Arc::new(Inner {
                router,
                traffic: Traffic::default(),
            }),
        }
    }

    /// Returns the counter of the requests in flight.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.inner.traffic
    }

    /// Waits for the requests in flight and drops the server, even if clients remain. The file can then be opened again.
    pub(crate) async fn close(&self) {
        match tokio::time::timeout(STOP_TIMEOUT, self.inner.router.write()).await {
            Ok(mut router) => *router = None,
            Err(_) => tracing::warn!("stopped the embedded server while requests were in flight"),
        }
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let _in_flight = self.inner.traffic.begin(&request.path);
        let router = self.inner.router.read().await;
        let Some(router) = router.as_ref() else {
            let stopped = "the embedded server was stopped".to_owned();
            return Err(TransportError::Unreachable(stopped));
        };
        let timeout = request.timeout;
        let request = render(request)?;
        let answer = async {
            let response = match router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let status = response.status().as_u16();
            let body = response
                .into_body()
                .collect()
                .await
                .map_err(|error| TransportError::Interrupted(error.to_string()))?;
            Ok(Response {
                status,
                body: body.to_bytes(),
            })
        };
        tokio::time::timeout(timeout, answer)
            .await
            .unwrap_or(Err(TransportError::TimedOut(timeout)))
    }
}

fn render(request: Request) -> Result<http::Request<Body>, TransportError> {
    let mut builder = http::Request::builder()
        .method(request.method.as_str())
        .uri(request.path.as_str());
    for (name, value) in request.all_headers() {
        builder = builder.header(name, value);
    }
    let body = request.body.map_or_else(Body::empty, Body::from);
    builder
        .body(body)
        .map_err(|error| TransportError::Invalid(error.to_string()))
}

impl Transport for EmbeddedTransport {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(self.exchange(request))
    }
}

impl fmt::Debug for EmbeddedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmbeddedTransport")
    }
}
