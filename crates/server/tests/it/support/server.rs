//! One server per test, and calls on it. A call is built up from what it deviates in: token, version, namespace, body.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use http::{HeaderMap, Method, Request, StatusCode};
use longhaul_host::clock::ManualClock;
use longhaul_host::{Config, Host};
use longhaul_protocol::{Payload, Timestamp};
use longhaul_server::auth::Auth;
use longhaul_server::{App, Options};
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// When every test begins: 2026-01-01T00:00:00Z.
pub(crate) const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// Turns of the scheduler that a sweep gets after the clock was moved; it needs about five.
const SWEEP_TURNS: usize = 200;

pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) host: Host,
    pub(crate) clock: ManualClock,
}

impl Server {
    /// Open to everybody.
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

    /// On a store that may misbehave, or with other limits.
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
        let builder = Request::builder().method(method).uri(format!("/api{path}"));
        Call {
            server: self,
            builder,
            version: Some(("x-durable-workflow-control-plane-version", "2")),
            body: Body::empty(),
            is_worker: false,
        }
    }

    /// Moves the clock and lets what fell due happen.
    pub(crate) async fn advance(&self, seconds: u64) {
        self.clock.advance_seconds(seconds);
        // Everything happens in this thread and in memory: a sweep is done after a few turns of the scheduler.
        for _ in 0..SWEEP_TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// A call on the worker plane; `path` begins after `/api/worker`.
    pub(crate) fn worker(&self, path: &str, body: &Value) -> Call<'_> {
        self.worker_call(Method::POST, path).json(body)
    }

    pub(crate) fn worker_call(&self, method: Method, path: &str) -> Call<'_> {
        let mut call = self.call(method, &format!("/worker{path}"));
        call.version = Some(("x-durable-workflow-protocol-version", "1.20"));
        call.is_worker = true;
        call
    }

    /// Starts a workflow of type `greet`; its run id.
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
        let answer = self.worker("/register", &body).send().await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    }

    /// Leases the next workflow task of queue `default` for `worker_id`.
    pub(crate) async fn poll(&self, worker_id: &str) -> Value {
        let body = json!({"worker_id": worker_id, "task_queue": "default", "timeout_seconds": 0});
        let answer = self.worker("/workflow-tasks/poll", &body).send().await;
        assert_eq!(answer.body["poll_status"], "leased", "{}", answer.body);
        answer.body["task"].clone()
    }

    /// Takes the next workflow task and answers it with `commands`.
    pub(crate) async fn decide(&self, worker_id: &str, commands: Value) {
        let task = self.poll(worker_id).await;
        let path = format!(
            "/workflow-tasks/{}/complete",
            task["task_id"].as_str().expect("a task id")
        );
        let body = json!({
            "lease_owner": worker_id,
            "workflow_task_attempt": task["workflow_task_attempt"],
            "commands": commands,
        });
        let answer = self.worker(&path, &body).send().await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
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

    /// A body as it stands, without a media type.
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

    /// As if it came from this address.
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

    /// The version of the worker protocol that the call speaks.
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
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&bytes)));
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Sends it and expects a refusal; its body.
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

    /// Sends it and expects a 422; the names of the fields at fault.
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

    /// Sends it and expects a success; its body.
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
    /// What every answer of the worker plane carries, whatever happened (worker-protocol.md §1.4, §1.5).
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

/// An envelope of plain JSON.
pub(crate) fn envelope(json: &str) -> Value {
    let value = longhaul_protocol::payload::from_json(json).expect("JSON");
    json!(Payload::encode(&value).expect("a value that fits"))
}

/// Puts the fields of one object into another.
pub(crate) fn merge(into: &mut Value, fields: Value) {
    let (Value::Object(into), Value::Object(fields)) = (into, fields) else {
        panic!("two objects")
    };
    into.extend(fields);
}

/// One text field of every row of a list.
pub(crate) fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let rows = list.as_array().expect("a list");
    rows.iter()
        .map(|row| row[field].as_str().expect("a text"))
        .collect()
}
