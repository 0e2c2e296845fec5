//! HTTP: parse, call the host, render. This crate contains no rules about workflows; a handler that needs one calls the host.
//!
//! The router below is the table of contents. `gate` contains the checks of every request and their order, `request` reads the parts
//! of a request and collects mistakes, `worker`, `control` and `conductor` are the three planes, each with its envelope, and `views`
//! contains what the first two show.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use http::Request;
use longhaul_host::Host;
use longhaul_protocol::describe::HISTORY_PAGE_SIZE_DEFAULT;
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;

pub mod auth;
mod conductor;
pub mod connections;
mod control;
mod error;
mod gate;
mod heavy;
pub mod hosts;
mod metrics;
mod request;
mod routes;
mod views;
mod worker;

use auth::Auth;
use control::system::health;
use heavy::Heavy;
use hosts::{Hosts, HostsLayer};
pub use routes::Route;
use routes::{Routes, get};

/// The application state that handlers share.
#[derive(Clone)]
pub struct App {
    inner: Arc<AppInner>,
}

struct AppInner {
    host: Host,
    auth: Auth,
    options: Options,
    heavy: Heavy,
    /// The end of every worker-plane response. It is always the same, so it is rendered once.
    worker_envelope: String,
}

/// How the server presents itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shown in discovery; the host name unless configured.
    pub server_id: String,
    /// The product's version.
    pub version: &'static str,
    /// Largest body of a request, on both planes.
    pub max_request_bytes: usize,
    /// Events on a page of history if the worker does not send a page size.
    pub history_page_size: u32,
    /// Signs exported histories.
    pub export_key: Option<SigningKey>,
    /// The host names that requests may be sent to.
    pub hosts: Hosts,
}

/// A secret that signs exports, and its id.
#[derive(Clone)]
pub struct SigningKey {
    secret: String,
    id: Option<String>,
}

impl SigningKey {
    /// Creates a key. Its id is shown, its secret never.
    pub fn new(secret: String, id: Option<String>) -> Self {
        Self { secret, id }
    }

    pub(crate) fn secret(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({:?})", self.id)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server_id: "longhaul".to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            max_request_bytes: 16 * 1024 * 1024,
            history_page_size: HISTORY_PAGE_SIZE_DEFAULT,
            export_key: None,
            hosts: Hosts::default(),
        }
    }
}

/// Smaller bodies are not compressed: it costs more than it saves.
const COMPRESS_FROM_BYTES: u16 = 1024;

/// Every response to a worker repeats the server's capabilities, about 7,000 bytes. Compressing them each time took a third of the
/// processor time of both sides. Histories are longer than this.
const COMPRESS_FOR_WORKERS_FROM_BYTES: u16 = 16 * 1024;

/// Compresses with gzip or deflate if the client accepts it. Fast rather than small, because responses are short and clients wait
/// for them.
fn compression(from_bytes: u16) -> CompressionLayer<SizeAbove> {
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(from_bytes))
}

impl App {
    /// Creates an application on a running host.
    pub fn new(host: Host, auth: Auth, options: Options) -> Self {
        let worker_envelope =
            worker::envelope::closing(&views::capabilities::server_capabilities(&options));
        Self {
            inner: Arc::new(AppInner {
                host,
                auth,
                options,
                heavy: Heavy::default(),
                worker_envelope,
            }),
        }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.inner.host
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.inner.auth
    }

    pub(crate) fn heavy(&self) -> &Heavy {
        &self.inner.heavy
    }

    pub(crate) fn worker_envelope(&self) -> &str {
        &self.inner.worker_envelope
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Returns the router with every route.
    pub fn router(&self) -> Router {
        let app = self.clone();
        let worker_panics = CatchPanicLayer::custom(move |panic: Box<dyn Any + Send>| {
            worker::panicked(&app, &*panic)
        });
        let workers = worker::routes()
            .into_router()
            .layer(worker_panics)
            .layer(compression(COMPRESS_FOR_WORKERS_FROM_BYTES));
        let app = self.clone();
        let conductor_panics = CatchPanicLayer::custom(move |panic: Box<dyn Any + Send>| {
            conductor::panicked(&app, &*panic)
        });
        let conductor = conductor::routes()
            .into_router()
            .layer(conductor_panics)
            .layer(compression(COMPRESS_FROM_BYTES));
        let others = outside_api()
            .into_router()
            .nest("/api", control::routes().into_router())
            .fallback(not_found)
            .layer(compression(COMPRESS_FROM_BYTES));
        Router::new()
            .nest("/api/worker", workers)
            .merge(conductor)
            .merge(others)
            .layer(from_fn_with_state(self.clone(), heavy::layer))
            .layer((
                CatchPanicLayer::custom(error::panicked),
                HostsLayer(self.clone()),
            ))
            .with_state(self.clone())
    }
}

/// Answers a request that no route matches, in the envelope of the plane that its path belongs to.
async fn not_found(State(app): State<App>, request: Request<Body>) -> Response {
    let path = request.uri().path();
    if conductor::owns(path) {
        conductor::not_found(&app, request.headers(), path)
    } else {
        control::not_found(&app, request.headers())
    }
}

/// Routes with the names that probes and scrapers expect.
fn outside_api() -> Routes {
    Routes::default()
        .route("/health", get(health::health))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::render))
}

/// Returns every route of the server, ordered by path.
pub fn routes() -> Vec<Route> {
    let mut routes = worker::routes().below("/api/worker");
    routes.extend(control::routes().below("/api"));
    routes.extend(conductor::routes().below(""));
    routes.extend(outside_api().below(""));
    routes.sort_by(|one, other| (&one.path, one.method).cmp(&(&other.path, other.method)));
    routes
}
