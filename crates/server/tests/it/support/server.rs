//! One server per test, and calls on it. A call is built from what differs from an ordinary one: token, version, namespace, body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use longhaul_host::clock::ManualClock;
use longhaul_host::{Config, Host};
use longhaul_protocol::Timestamp;
use longhaul_server::auth::Auth;
use longhaul_server::{App, Options};
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::assert::merge;

/// When every test begins: 2026-01-01T00:00:00Z.
pub(crate) const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// Longest wait for the host's background work after the clock was moved. It takes milliseconds; the rest is for a busy machine.
const IDLE_DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) host: Host,
    pub(crate) clock: ManualClock,
}

impl Server {
    /// Without credentials.
    pub(crate) async fn open() -> Self {
        Self::with(Auth::open(), Options::default()).await
    }

    /// With one token per role: `w`, `o`, `a`.
    pub(crate) async fn guarded() -> Self {
        let token = |name: &str| Some(name.to_owned());
        Self::with(
            Auth::with_tokens(None, token("w"), token("o"), token("a")),
            Options::default(),
        )
        .await
    }

    pub(crate) async fn with(auth: Auth, options: Options) -> Self {
        Self::on(Arc::new(Memory::new()), Config::default(), auth, options).await
    }

    /// Without credentials, with a configuration that `change` made.
    pub(crate) async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let store = Arc::new(Memory::new());
        Self::on(store, config, Auth::open(), Options::default()).await
    }

    /// Without credentials, on a store that may fail or that another server used before.
    pub(crate) async fn on_store(store: Arc<dyn Store>) -> Self {
        Self::on(store, Config::default(), Auth::open(), Options::default()).await
    }

    /// Without credentials, with these workers of the queue `default`: an id, and what differs from an ordinary registration.
    pub(crate) async fn staffed<const N: usize>(workers: [(&str, Value); N]) -> Self {
        let server = Self::open().await;
        for (worker_id, fields) in workers {
            server.register(worker_id, fields).await;
        }
        server
    }

    pub(crate) async fn on(
        store: Arc<dyn Store>,
        config: Config,
        auth: Auth,
        options: Options,
    ) -> Self {
        let clock = ManualClock::new(BEGIN);
        let host = Host::start_with_clock(store, config, Arc::new(clock.clone())).await;
        let host = host.expect("a host on an empty store");
        let router = App::new(host.clone(), auth, options).router();
        Self {
            router,
            host,
            clock,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Call<'_> {
        self.call(Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Call<'_> {
        self.call(Method::POST, path).json(body)
    }

    /// A call on the control plane; `path` begins after `/api`.
    pub(crate) fn call(&self, method: Method, path: &str) -> Call<'_> {
        let version = Some(("x-durable-workflow-control-plane-version", "2"));
        Call {
            version,
            ..self.request(method, &format!("/api{path}"))
        }
    }

    /// A call of a probe or a scraper: any path, and no header.
    pub(crate) fn probe(&self, path: &str) -> Call<'_> {
        self.request(Method::GET, path)
    }

    fn request(&self, method: Method, path: &str) -> Call<'_> {
        Call {
            server: self,
            builder: Request::builder().method(method).uri(path),
            version: None,
            body: Body::empty(),
            is_worker: false,
        }
    }

    /// Moves the clock, and waits until everything that fell due has happened.
    pub(crate) async fn advance(&self, seconds: u64) {
        self.clock.advance_seconds(seconds);
        self.idle().await;
    }

    /// Waits until the host does nothing more unless the clock moves or a request comes in. It must be idle twice in a row: `join!`
    /// polls its branches in turn, so a request that the test holds open has had its turn by then.
    pub(crate) async fn idle(&self) {
        let deadline = Instant::now() + IDLE_DEADLINE;
        let mut looks = 0;
        while looks < 2 {
            tokio::task::yield_now().await;
            looks = match self.host.idle().await {
                Ok(None) => 0,
                // A store that fails keeps the host busy; the test decides when it works again.
                Ok(Some(_)) | Err(_) => looks + 1,
            };
            assert!(Instant::now() < deadline, "the host is still busy");
        }
    }

    /// Waits until this many polls wait for a task.
    pub(crate) async fn polls_waiting(&self, count: usize) {
        let deadline = Instant::now() + IDLE_DEADLINE;
        loop {
            let idle = self.host.idle().await.expect("a store that works");
            if idle.is_some_and(|idle| idle.polls_waiting >= count) {
                return;
            }
            assert!(Instant::now() < deadline, "fewer than {count} polls wait");
            tokio::task::yield_now().await;
        }
    }

    /// A call on the worker plane; `path` begins after `/api/worker`.
    pub(crate) fn worker_post(&self, path: &str, body: &Value) -> Call<'_> {
        self.worker_call(Method::POST, path).json(body)
    }

    pub(crate) fn worker_call(&self, method: Method, path: &str) -> Call<'_> {
        let mut call = self.call(method, &format!("/worker{path}"));
        call.version = Some(("x-durable-workflow-protocol-version", "1.20"));
        call.is_worker = true;
        call
    }

    /// Starts a workflow of type `greet` and returns its run id.
    pub(crate) async fn start(&self, workflow_id: &str) -> String {
        self.start_with(json!({"workflow_id": workflow_id, "workflow_type": "greet"}))
            .await
    }

    pub(crate) async fn start_with(&self, body: Value) -> String {
        let answer = self.post("/workflows", &body).send().await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.text("run_id")
    }

    /// Registers a worker for every task of the queue `default`.
    pub(crate) async fn register(&self, worker_id: &str, fields: Value) {
        let mut body = json!({
            "worker_id": worker_id,
            "task_queue": "default",
            "runtime": "python",
            "supported_workflow_types": ["greet"],
            "supported_activity_types": ["say"],
        });
        merge(&mut body, fields);
        let answer = self.worker_post("/register", &body).send().await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    }

    /// The whole history of a run.
    pub(crate) async fn history(&self, workflow_id: &str, run_id: &str) -> Vec<Value> {
        let path = format!("/workflows/{workflow_id}/runs/{run_id}/history?page_size=1000");
        let page = self.get(&path).accepted(200).await;
        page["events"].as_array().expect("events").clone()
    }
}

/// One request.
pub(crate) struct Call<'a> {
    server: &'a Server,
    builder: http::request::Builder,
    version: Option<(&'static str, &'static str)>,
    body: Body,
    is_worker: bool,
}

impl Call<'_> {
    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = Body::from(body.to_string());
        self.header("content-type", "application/json")
    }

    /// Sends these bytes, without a media type.
    pub(crate) fn raw(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, value);
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sends the call as if from this address.
    pub(crate) fn peer(mut self, address: &str) -> Self {
        let address: SocketAddr = address.parse().expect("an address");
        self.builder = self.builder.extension(ConnectInfo(address));
        self
    }

    pub(crate) fn namespace(self, namespace: &str) -> Self {
        self.header("x-namespace", namespace)
    }

    pub(crate) fn version(mut self, version: Option<&'static str>) -> Self {
        self.version = version.map(|version| ("x-durable-workflow-control-plane-version", version));
        self
    }

    /// Sets the version of the worker protocol.
    pub(crate) fn protocol(mut self, version: Option<&'static str>) -> Self {
        self.version = version.map(|version| ("x-durable-workflow-protocol-version", version));
        self
    }

    pub(crate) async fn send(self) -> Answer {
        let is_worker = self.is_worker;
        let answer = self.exchange().await;
        if is_worker {
            answer.expect_worker_envelope();
        }
        answer
    }

    async fn exchange(self) -> Answer {
        let (parts, bytes) = self.bytes().await;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&bytes)));
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Sends the call and returns the answer as it is, whatever its body.
    pub(crate) async fn bytes(self) -> (http::response::Parts, Bytes) {
        let mut builder = self.builder;
        if let Some((name, version)) = self.version {
            builder = builder.header(name, version);
        }
        let request = builder.body(self.body).expect("a request");
        let response = self
            .server
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("the router always answers");
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body in memory");
        (parts, bytes)
    }

    /// Sends the call, expects a refusal and returns its body.
    pub(crate) async fn refused(self, status: u16, reason: &str) -> Value {
        let answer = self.send().await;
        assert_eq!(
            (answer.status.as_u16(), answer.body["reason"].as_str()),
            (status, Some(reason)),
            "{}",
            answer.body
        );
        assert!(
            answer.body["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{}",
            answer.body
        );
        answer.body
    }

    /// Sends the call, expects a 422 and returns the names of the wrong fields.
    pub(crate) async fn invalid(self) -> Vec<String> {
        let body = self.refused(422, "validation_failed").await;
        assert_eq!(body["errors"], body["validation_errors"]);
        body["errors"]
            .as_object()
            .expect("errors by field")
            .keys()
            .cloned()
            .collect()
    }

    /// Sends the call, expects a success and returns its body.
    pub(crate) async fn accepted(self, status: u16) -> Value {
        let answer = self.send().await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.body);
        answer.body
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// Checks what every answer of the worker plane contains, successes and refusals alike.
    fn expect_worker_envelope(&self) {
        let body = &self.body;
        assert_eq!(
            self.headers["x-durable-workflow-protocol-version"], "1.20",
            "{body}"
        );
        assert_eq!(self.headers["content-type"], "application/json", "{body}");
        assert_eq!(body["protocol_version"], "1.20", "{body}");
        assert!(
            body["server_capabilities"]["supported_workflow_task_commands"].is_array(),
            "{body}"
        );
        if !self.status.is_success() {
            assert!(body["reason"].is_string(), "{body}");
            assert_eq!(body["error"], body["message"], "{body}");
        }
    }

    /// The body without the two fields that every answer of the worker plane has.
    pub(crate) fn bare(&self) -> Value {
        let mut body = self.body.clone();
        if let Value::Object(fields) = &mut body {
            fields.remove("protocol_version");
            fields.remove("server_capabilities");
        }
        body
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.body[field]
            .as_str()
            .unwrap_or_else(|| panic!("no text {field} in {}", self.body))
            .to_owned()
    }
}
