//! A server that records requests and returns prepared answers. The first segment of a path is the step to which a request belongs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::harness::eventually;

/// A recorded request. Its path has no step.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: String,
    pub(super) token: Option<String>,
}

/// A running recorder.
#[derive(Clone)]
pub(super) struct Recorder {
    url: String,
    steps: Steps,
}

type Steps = Arc<Mutex<BTreeMap<String, Vec<Sent>>>>;

impl Recorder {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let recorder = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            steps: Steps::default(),
        };
        let router = Router::new().fallback(record).with_state(recorder.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        recorder
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the requests of a step. Of the step `heartbeat` only heartbeats: one client sends them beside its task.
    pub(super) fn take(&self, step: &str) -> Vec<Sent> {
        let mut sent = self.steps.lock().unwrap().remove(step).unwrap_or_default();
        if step == "heartbeat" {
            sent.retain(is_heartbeat);
        }
        sent
    }

    /// Waits for the first heartbeat of a step.
    pub(super) async fn heartbeat(&self, step: &str) {
        let seen = |sent: &Vec<Sent>| sent.iter().any(is_heartbeat);
        eventually("a heartbeat", async || {
            let steps = self.steps.lock().unwrap();
            steps.get(step).is_some_and(seen).then_some(())
        })
        .await;
    }
}

fn is_heartbeat(sent: &Sent) -> bool {
    let body: serde_json::Value = serde_json::from_str(&sent.body).unwrap_or_default();
    body["extendLease"] == true
}

async fn record(State(recorder): State<Recorder>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let rest = parts.uri.path().trim_start_matches('/');
    let (step, path) = rest.split_once('/').unwrap();
    let url = reqwest::Url::parse(&format!("http://unused{}", parts.uri)).unwrap();
    let token = parts.headers.get("X-Authorization");
    let sent = Sent {
        method: parts.method.to_string(),
        path: format!("/{path}"),
        query: url.query_pairs().into_owned().collect(),
        body: String::from_utf8(body.to_vec()).unwrap(),
        token: token.map(|token| token.to_str().unwrap().to_owned()),
    };
    let answer = answer(step, &sent);
    let mut steps = recorder.steps.lock().unwrap();
    steps.entry(step.to_owned()).or_default().push(sent);
    answer
}

/// The task of all steps in which a worker polls.
const TASKS: &str = r#"[{"taskId": "t", "taskType": "charge", "taskDefName": "charge", "workflowInstanceId": "i", "status": "IN_PROGRESS",
    "inputData": {"order": "o", "cents": 5}, "responseTimeoutSeconds": 2}]"#;

/// Returns the smallest answer that both clients accept.
fn answer(step: &str, sent: &Sent) -> Response {
    let has_worker = step.starts_with("work") || step == "heartbeat";
    let json = |body: &'static str| ([(header::CONTENT_TYPE, "application/json")], body);
    match (&*sent.method, &*sent.path) {
        ("POST", "/api/token") => json(r#"{"token": "a-token"}"#).into_response(),
        ("POST", "/api/tasks/update-v2") | ("GET", "/api/tasks/poll/charge") => {
            StatusCode::NO_CONTENT.into_response()
        }
        ("POST", "/api/tasks" | "/api/workflow" | "/api/workflow/order") => "an-id".into_response(),
        ("GET", path) if path.starts_with("/api/tasks/poll/batch/") => {
            json(if has_worker { TASKS } else { "[]" }).into_response()
        }
        ("GET", "/api/metadata/taskdefs/charge") if step == "work_with_a_new_definition" => (
            StatusCode::NOT_FOUND,
            json(r#"{"status": 404, "message": "no such definition"}"#),
        )
            .into_response(),
        (
            "GET",
            "/api/metadata/taskdefs"
            | "/api/metadata/workflow"
            | "/api/schema"
            | "/api/tasks/t/log"
            | "/api/tasks/queue/polldata"
            | "/api/workflow/running/order",
        ) => json("[]").into_response(),
        ("GET", _) => json("{}").into_response(),
        ("POST", path)
            if path.contains("/execute/")
                || path.ends_with("/correlated")
                || path.ends_with("/sync") =>
        {
            json("{}").into_response()
        }
        _ => StatusCode::OK.into_response(),
    }
}
