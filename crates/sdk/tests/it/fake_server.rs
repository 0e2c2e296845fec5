//! A server with scripted responses, for responses that the real server gives rarely or never. The tests use a paused clock that
//! jumps to the next timer, so pauses are exact and take no time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_sdk::transport::{Request, Response, Transport, TransportError};
use longhaul_sdk::worker::{Ended, WorkerBuilder, WorkerError};
use longhaul_sdk::{Client, Worker, WorkerHandle};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The response to a poll or report.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedReply {
    Body(u16, Value),
    Broken,
}

impl ScriptedReply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Body(200, body)
    }

    pub(crate) fn task(task: Value) -> Self {
        Self::ok(json!({"poll_status": "leased", "task": task}))
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) timeout: Duration,
    pub(crate) body: Value,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FakeServer {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    workflow_polls: Mutex<VecDeque<ScriptedReply>>,
    activity_polls: Mutex<VecDeque<ScriptedReply>>,
    reports: Mutex<VecDeque<ScriptedReply>>,
    asked: Mutex<Vec<Asked>>,
    changed: Notify,
}

impl FakeServer {
    /// Starts a worker of this server.
    pub(crate) async fn employ(
        &self,
        build: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> (WorkerHandle, JoinHandle<Result<Ended, WorkerError>>) {
        let client = Client::over(self.clone()).connect().await;
        let client = client.expect("the client connects");
        let builder = Worker::builder(&client, "q")
            .workflow_pollers(1)
            .activity_pollers(1);
        let worker = build(builder).build();
        (worker.handle(), tokio::spawn(worker.run()))
    }

    pub(crate) fn workflow_polls(self, answers: impl IntoIterator<Item = ScriptedReply>) -> Self {
        self.inner.workflow_polls.lock().extend(answers);
        self
    }

    pub(crate) fn activity_polls(self, answers: impl IntoIterator<Item = ScriptedReply>) -> Self {
        self.inner.activity_polls.lock().extend(answers);
        self
    }

    /// Adds responses to completed tasks. Later reports succeed.
    pub(crate) fn reports(self, answers: impl IntoIterator<Item = ScriptedReply>) -> Self {
        self.inner.reports.lock().extend(answers);
        self
    }

    /// Returns the requests whose path ends with `path_end`.
    pub(crate) fn asked(&self, path_end: &str) -> Vec<Asked> {
        let asked = self.inner.asked.lock();
        let found = asked.iter().filter(|asked| asked.path.ends_with(path_end));
        found.cloned().collect()
    }

    /// Waits until there are `count` requests whose path ends with `path_end`, for at most an hour of the paused clock.
    pub(crate) async fn wait_for(&self, path_end: &str, count: usize) -> Vec<Asked> {
        let waiting = self.heard(path_end, count);
        let Ok(asked) = tokio::time::timeout(Duration::from_secs(3600), waiting).await else {
            panic!("{path_end}: {:?}", self.asked(path_end));
        };
        asked
    }

    async fn heard(&self, path_end: &str, count: usize) -> Vec<Asked> {
        loop {
            let changed = self.inner.changed.notified();
            let asked = self.asked(path_end);
            if asked.len() >= count {
                return asked;
            }
            changed.await;
        }
    }

    async fn answer(&self, request: Request) -> Result<Response, TransportError> {
        let body = request.body.as_deref();
        let body: Value = body.map_or(Value::Null, |body| {
            serde_json::from_slice(body).expect("a JSON body")
        });
        let hold = Duration::from_secs(body["timeout_seconds"].as_u64().unwrap_or(0));
        self.inner.asked.lock().push(Asked {
            at: Instant::now(),
            path: request.path.clone(),
            timeout: request.timeout,
            body,
        });
        self.inner.changed.notify_waiters();
        let path = request.path.strip_prefix("/api").unwrap_or_default();
        let scripted = match path {
            "/worker/workflow-tasks/poll" => self.inner.workflow_polls.lock().pop_front(),
            "/worker/activity-tasks/poll" => self.inner.activity_polls.lock().pop_front(),
            _ if path.ends_with("/complete") => self.inner.reports.lock().pop_front(),
            _ => None,
        };
        match scripted {
            Some(ScriptedReply::Body(status, body)) => Ok(respond(status, &body)),
            Some(ScriptedReply::Broken) => Err(TransportError::Interrupted("torn".to_owned())),
            None if path.ends_with("/poll") => {
                tokio::time::sleep(hold).await;
                Ok(respond(200, &json!({"poll_status": "empty", "task": null})))
            }
            None => Ok(respond(200, &introduction())),
        }
    }
}

/// The description of the server. It is also a valid response to every report, because unknown fields are ignored.
fn introduction() -> Value {
    let capabilities =
        json!({"default_history_page_size": 200, "a new capability": {"depth": [1, 2]}});
    json!({
        "control_plane": {"version": "2", "a new field": true},
        "worker_protocol": {"version": "1.21", "server_capabilities": capabilities},
        "server_capabilities": capabilities,
        "heartbeat_interval_seconds": 3600,
        "a new field": null,
    })
}

fn respond(status: u16, body: &Value) -> Response {
    Response {
        status,
        body: body.to_string().into(),
    }
}

impl Transport for FakeServer {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(self.answer(request))
    }
}
