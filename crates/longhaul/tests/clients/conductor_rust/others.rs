//! Servers that are not ours: a stand-in in front of the built binary that lacks what some servers lack.
//!
//! It has no update that returns the next task, no schema registry and no tokens, takes polls only by GET, and returns ids as text.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_conductor_sdk::client::SearchQuery;
use longhaul_conductor_sdk::definition::{IdempotencyStrategy, human, simple};
use longhaul_conductor_sdk::model::{SchemaDef, StartWorkflowRequest, WorkflowStatus};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::function;
use serde_json::{Value, json};

use super::{World, configuration, refused, request, unique};
use crate::harness::Server;

/// What a stand-in refuses and counts.
struct StandIn {
    server: Server,
    http: reqwest::Client,
    /// How an update that returns the next task is refused.
    unknown: StatusCode,
    updates: AtomicUsize,
    next_updates: AtomicUsize,
    /// How many of the next starts lose their answer.
    lost_starts: AtomicUsize,
}

impl StandIn {
    /// Starts a stand-in. Returns it with its address.
    async fn start(unknown: StatusCode) -> (Arc<Self>, String) {
        let stand_in = Arc::new(Self {
            server: Server::start().await,
            http: reqwest::Client::new(),
            unknown,
            updates: AtomicUsize::new(0),
            next_updates: AtomicUsize::new(0),
            lost_starts: AtomicUsize::new(0),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&stand_in));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (stand_in, url)
    }

    /// Passes a request on to the server.
    async fn pass_on(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let url = format!("{}{}", self.server.url(), parts.uri);
        let mut headers = parts.headers;
        headers.remove(header::HOST);
        let sent = self.http.request(parts.method, url).headers(headers);
        let answer = sent.body(body).send().await.unwrap();
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        let mut response = Response::new(Body::from(answer.bytes().await.unwrap()));
        *response.status_mut() = status;
        if let Some(kind) = kind {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    }
}

async fn answer(State(stand_in): State<Arc<StandIn>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let is_poll = path.starts_with("/api/tasks/poll/");
    match &*path {
        "/api/tasks/update-v2" => {
            stand_in.next_updates.fetch_add(1, Ordering::Relaxed);
            stand_in.unknown.into_response()
        }
        "/api/token" => StatusCode::NOT_FOUND.into_response(),
        _ if path.starts_with("/api/schema") => StatusCode::NOT_FOUND.into_response(),
        _ if is_poll && request.method() != Method::GET => {
            StatusCode::METHOD_NOT_ALLOWED.into_response()
        }
        "/api/tasks" => {
            stand_in.updates.fetch_add(1, Ordering::Relaxed);
            stand_in.pass_on(request).await
        }
        "/api/workflow" => {
            let mut answer = stand_in.pass_on(request).await;
            let lost = &stand_in.lost_starts;
            if lost.load(Ordering::Relaxed) > 0 {
                lost.fetch_sub(1, Ordering::Relaxed);
                return broken();
            }
            let text = "text/plain".parse().unwrap();
            answer.headers_mut().insert(header::CONTENT_TYPE, text);
            answer
        }
        _ => stand_in.pass_on(request).await,
    }
}

/// Returns a response that breaks its connection.
fn broken() -> Response {
    let error = std::io::Error::other("the connection breaks");
    let body = futures::stream::iter([Err::<Vec<u8>, _>(error)]);
    Body::from_stream(body).into_response()
}

#[tokio::test]
async fn servers_without_the_newer_routes_are_served() {
    for unknown in [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED] {
        let (stand_in, url) = StandIn::start(unknown).await;
        // The server has no tokens, so the client goes on without one.
        let configuration = configuration(&url).key("key", "a-secret-for-the-tests");
        let world = World::at(configuration, None);
        let task = unique("task");
        let name = world
            .define(|workflow| workflow.then(simple(&task, "a")).then(simple(&task, "b")))
            .await;
        let worker = function(&task, |_: Value| Ok(json!({"ok": true})));
        let _workers = world
            .workers([worker.settings(CodeSettings::new().register_task_def(true))])
            .await;
        for _ in 0..5 {
            let ended = world.run(&name, json!({})).await;
            assert_eq!(ended.status, WorkflowStatus::Completed);
            assert_eq!(ended.output["ok"], true);
        }
        // The worker asked once, and not again.
        assert_eq!(stand_in.next_updates.load(Ordering::Relaxed), 1);
        assert_eq!(stand_in.updates.load(Ordering::Relaxed), 10);
        let registered = world.client.metadata().task(&task).await.unwrap();
        assert_eq!(registered.name, task);
        assert!(registered.input_schema.is_none(), "{registered:?}");
    }
}

#[tokio::test]
async fn a_missing_schema_registry_is_an_error_that_says_so() {
    let (_stand_in, url) = StandIn::start(StatusCode::NOT_FOUND).await;
    let world = World::at(configuration(&url), None);
    let schema = SchemaDef {
        name: unique("schema"),
        version: 1,
        ..SchemaDef::default()
    };
    refused(404, world.client.schemas().register(&schema).await);
}

#[tokio::test]
async fn a_start_whose_answer_is_lost_gives_one_run() {
    let (stand_in, url) = StandIn::start(StatusCode::NOT_FOUND).await;
    let world = World::at(configuration(&url), None);
    let name = world.define(|workflow| workflow.then(human("h"))).await;
    let query = SearchQuery::new(format!("workflowType='{name}'"));
    let workflows = world.client.workflows();
    // The key lets the client repeat the start.
    let keyed = StartWorkflowRequest {
        idempotency_key: Some("once".to_owned()),
        idempotency_strategy: Some(IdempotencyStrategy::ReturnExisting),
        ..request(&name, json!({}))
    };
    stand_in.lost_starts.store(1, Ordering::Relaxed);
    let id = workflows.start(&keyed).await.unwrap();
    assert_eq!(stand_in.lost_starts.load(Ordering::Relaxed), 0);
    assert_eq!(world.found(1, &query).await.results[0].workflow_id, id);
    // Without one it must not.
    stand_in.lost_starts.store(1, Ordering::Relaxed);
    let lost = workflows.start(&request(&name, json!({}))).await;
    assert!(lost.unwrap_err().refusal().is_none());
    world.found(2, &query).await;
}
