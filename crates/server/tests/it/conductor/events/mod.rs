//! Event handlers, EVENT tasks, messages of callers and messages to runs.

mod actions;
mod handlers;
mod messages;

use serde_json::{Value, json};

use super::support::{ask, tell};
use crate::support::Server;

/// Returns a handler with one action.
fn handler(name: &str, event: &str, action: &str, parameters: Value) -> Value {
    json!({"name": name, "event": event, "active": true, "actions": [{"action": action, action: parameters}]})
}

/// Registers a workflow of these tasks.
async fn define(server: &Server, name: &str, tasks: Value) {
    let definition = json!({"name": name, "version": 1, "tasks": tasks});
    let path = "/metadata/workflow?overwrite=true";
    tell(server, "POST", path, &definition).await.void();
}

/// Starts a run and returns its id.
async fn start(server: &Server, name: &str, input: Value) -> String {
    let body = json!({"name": name, "input": input});
    tell(server, "POST", "/workflow", &body).await.text()
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

/// Publishes a message of a caller.
async fn publish(server: &Server, event: &str, id: &str, payload: Value) {
    let body = json!({"event": event, "messageId": id, "payload": payload});
    tell(server, "POST", "/event/handleIncomingEvent", &body)
        .await
        .void();
}

/// Returns the records of a handler, newest first.
async fn records(server: &Server, handler: &str) -> Value {
    let path = format!("/event/execution/{handler}");
    ask(server, "GET", &path).await.json()
}

/// Returns the runs of a workflow.
async fn runs_of(server: &Server, name: &str) -> Vec<Value> {
    let path = format!("/workflow/search?query=workflowType%3D{name}");
    let found = ask(server, "GET", &path).await.json();
    found["results"].as_array().expect("a list").clone()
}
