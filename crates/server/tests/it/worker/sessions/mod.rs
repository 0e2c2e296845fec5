//! Worker sessions on the worker plane and for operators. Every body that has a published shape is held against it.

mod admission;
mod edges;
mod endpoints;
mod leases;
mod operators;
mod waking;

use http::Method;
use serde_json::{Value, json};

use crate::support::contract::worker_sessions;
use crate::support::{Answer, Call, Server, activity_report, complete, merge};

/// A server with workers `a` and `b` for every type of the queue `default`, both with a GPU.
async fn two_workers() -> Server {
    let server = Server::open().await;
    for worker_id in ["a", "b"] {
        register(&server, worker_id, json!({})).await;
    }
    server
}

async fn register(server: &Server, worker_id: &str, fields: Value) {
    let mut said = json!({
        "supported_workflow_types": [],
        "supported_activity_types": [],
        "capabilities": ["gpu:nvidia-l4", "worker_sessions"],
    });
    merge(&mut said, fields);
    server.register(worker_id, said).await;
}

/// Validates a value against one definition of the published schema.
#[track_caller]
fn check(value: &Value, definition: &str) {
    let document = worker_sessions();
    let schema = json!({"$ref": format!("#/$defs/{definition}"), "$defs": document["$defs"]});
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{definition}: {errors:?} in {value}");
}

fn create<'a>(server: &'a Server, worker_id: &str, session_id: &str, fields: Value) -> Call<'a> {
    let mut body = json!({"worker_id": worker_id, "session_id": session_id});
    merge(&mut body, fields);
    server.worker_post("/sessions", &body)
}

fn beat<'a>(server: &'a Server, worker_id: &str, session_id: &str, fields: Value) -> Call<'a> {
    let mut body = json!({"worker_id": worker_id});
    merge(&mut body, fields);
    server.worker_post(
        &format!("/sessions/{}/heartbeat", encoded(session_id)),
        &body,
    )
}

fn close<'a>(server: &'a Server, worker_id: &str, session_id: &str) -> Call<'a> {
    let body = json!({"worker_id": worker_id, "reason": "worker_shutdown"});
    let path = format!("/sessions/{}", encoded(session_id));
    server.worker_call(Method::DELETE, &path).json(&body)
}

/// Percent-encodes every byte that is not a letter or digit, as clients do.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Sends a call that must be accepted with this outcome, and returns its session.
async fn outcome(call: Call<'_>, status: u16, outcome: &str) -> Value {
    let body = call.accepted(status).await;
    check(&body, "workerSessionOperationResult");
    assert_eq!(
        (
            &body["admitted"],
            &body["outcome"],
            &body["status"],
            &body["reason"]
        ),
        (&json!(true), &json!(outcome), &json!(status), &Value::Null),
        "{body}"
    );
    body["session"].clone()
}

/// Sends a call that the session refuses, and returns the body.
async fn refused(call: Call<'_>, status: u16, reason: &str) -> Value {
    let body = call.refused(status, reason).await;
    check(&body, "workerSessionOperationResult");
    assert_eq!(
        (&body["admitted"], &body["status"]),
        (&json!(false), &json!(status)),
        "{body}"
    );
    body
}

/// Returns the session as operators see it.
async fn seen(server: &Server, session_id: &str) -> Value {
    let path = format!("/worker-sessions/{}", encoded(session_id));
    let body = server.get(&path).accepted(200).await;
    check(&body, "workerSessionDetail");
    body["session"].clone()
}

async fn is_unknown(server: &Server, session_id: &str) {
    let path = format!("/worker-sessions/{}", encoded(session_id));
    server
        .get(&path)
        .refused(404, "worker_session_not_found")
        .await;
}

#[track_caller]
fn expect_status(session: &Value, status: &str, failure_reason: Value) {
    assert_eq!(
        (&session["status"], &session["failure_reason"]),
        (&json!(status), &failure_reason),
        "{session}"
    );
}

/// Returns a command for an activity in a session.
fn in_session(session_id: &str, options: Value) -> Value {
    let mut session = json!({"session_id": session_id});
    merge(&mut session, options);
    json!({"type": "schedule_activity", "activity_type": "say", "worker_session": session})
}

/// Starts a workflow and completes its first task with these commands.
async fn schedule(server: &Server, workflow_id: &str, commands: Value) -> Value {
    server.start(workflow_id).await;
    let task = server.worker("a").workflow_task().await;
    complete(server, &task, commands).accepted(200).await;
    task
}

/// Polls once for an activity.
async fn try_poll(server: &Server, worker_id: &str) -> Answer {
    server
        .worker(worker_id)
        .poll("activity", json!({}))
        .send()
        .await
}

/// Polls once for an activity task, which must exist.
async fn take(server: &Server, worker_id: &str) -> Value {
    let task = crate::support::leased(try_poll(server, worker_id).await);
    if !task["worker_session"].is_null() {
        check(&task["worker_session"], "workerSessionTaskAffinity");
    }
    task
}

/// Polls once, and checks that there is no activity task for this worker.
async fn take_nothing(server: &Server, worker_id: &str) {
    let answer = try_poll(server, worker_id).await;
    assert_eq!(answer.body["poll_status"], "empty", "{}", answer.body);
    assert_eq!(answer.body["task"], Value::Null);
}

async fn finish(server: &Server, task: &Value) {
    activity_report(server, task, "complete", json!({"result": null}))
        .accepted(200)
        .await;
}
