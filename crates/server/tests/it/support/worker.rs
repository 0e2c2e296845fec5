//! What workers do all day, in few words: poll, report, read history.

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::server::{Answer, Call, Server, merge};

/// A server with worker `w` for every type of the queue `default`.
pub(crate) async fn staffed() -> Server {
    let server = Server::open().await;
    register_for_all(&server, "w").await;
    server
}

pub(crate) async fn register_for_all(server: &Server, worker_id: &str) {
    let every_type = json!({"supported_workflow_types": [], "supported_activity_types": []});
    server.register(worker_id, every_type).await;
}

/// One poll that does not wait, of `workflow` or `activity` tasks.
pub(crate) fn poll<'a>(server: &'a Server, kind: &str, worker_id: &str, fields: Value) -> Call<'a> {
    let mut body = json!({"worker_id": worker_id, "task_queue": "default", "timeout_seconds": 0});
    merge(&mut body, fields);
    server.worker(&format!("/{kind}-tasks/poll"), &body)
}

/// The next workflow task, which must be there.
pub(crate) async fn workflow_task(server: &Server, worker_id: &str) -> Value {
    leased(poll(server, "workflow", worker_id, json!({})).send().await)
}

/// The next activity task, which must be there.
pub(crate) async fn activity_task(server: &Server, worker_id: &str) -> Value {
    leased(poll(server, "activity", worker_id, json!({})).send().await)
}

pub(crate) fn leased(answer: Answer) -> Value {
    assert_eq!(answer.body["poll_status"], "leased", "{}", answer.body);
    answer.body["task"].clone()
}

/// There is nothing to do for worker `w`.
pub(crate) async fn expect_no_task(server: &Server, kind: &str) {
    let answer = poll(server, kind, "w", json!({})).accepted(200).await;
    assert_eq!(answer["poll_status"], "empty", "{answer}");
}

/// A call on a leased workflow task with the lease it was given; `fields` are added or replace.
pub(crate) fn report<'a>(server: &'a Server, task: &Value, verb: &str, fields: Value) -> Call<'a> {
    let mut body = json!({
        "lease_owner": task["lease_owner"],
        "workflow_task_attempt": task["workflow_task_attempt"],
    });
    merge(&mut body, fields);
    server.worker(&format!("/workflow-tasks/{}/{verb}", id(task)), &body)
}

pub(crate) fn complete<'a>(server: &'a Server, task: &Value, commands: Value) -> Call<'a> {
    report(server, task, "complete", json!({"commands": commands}))
}

pub(crate) fn fail<'a>(server: &'a Server, task: &Value, failure: Value) -> Call<'a> {
    report(server, task, "fail", json!({"failure": failure}))
}

/// A call on a leased activity task.
pub(crate) fn activity_report<'a>(
    server: &'a Server,
    task: &Value,
    verb: &str,
    fields: Value,
) -> Call<'a> {
    let mut body = json!({
        "activity_attempt_id": task["activity_attempt_id"],
        "lease_owner": task["lease_owner"],
    });
    merge(&mut body, fields);
    server.worker(&format!("/activity-tasks/{}/{verb}", id(task)), &body)
}

pub(crate) fn id(task: &Value) -> &str {
    task["task_id"].as_str().expect("a task id")
}

/// Starts workflow `wf` and decides its first task.
pub(crate) async fn decided(server: &Server, commands: Value) -> Value {
    server.start("wf").await;
    let task = workflow_task(server, "w").await;
    complete(server, &task, commands).accepted(200).await;
    task
}

/// Starts workflow `wf` with one activity, `fields` added to its command; the leased activity task.
pub(crate) async fn running_activity(server: &Server, fields: Value) -> Value {
    let mut command = json!({"type": "schedule_activity", "activity_type": "say"});
    merge(&mut command, fields);
    decided(server, json!([command])).await;
    activity_task(server, "w").await
}

/// The whole history of a task's run, as the control plane shows it.
pub(crate) async fn history(server: &Server, task: &Value) -> Vec<Value> {
    let run = task["run_id"].as_str().expect("a run id");
    let workflow = task["workflow_id"].as_str().expect("a workflow id");
    let path = format!("/workflows/{workflow}/runs/{run}/history?page_size=1000");
    let page = server.get(&path).accepted(200).await;
    page["events"].as_array().expect("events").clone()
}

pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event_type"].as_str().expect("a type"))
        .collect()
}

/// The payload of the only event of this type.
pub(crate) fn payload_of<'a>(events: &'a [Value], event_type: &str) -> &'a Value {
    let mut found = events
        .iter()
        .filter(|event| event["event_type"] == event_type);
    let event = found
        .next()
        .unwrap_or_else(|| panic!("no {event_type} in {:?}", types(events)));
    assert!(found.next().is_none(), "{event_type} stands there twice");
    &event["payload"]
}

pub(crate) async fn signal(server: &Server, name: &str, input: Value) -> Value {
    let answer = server
        .post(
            &format!("/workflows/wf/signal/{name}"),
            &json!({"input": input}),
        )
        .send()
        .await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    answer.body
}

/// Closes workflow `wf` by `cancel` or `terminate`.
pub(crate) async fn stop(server: &Server, verb: &str) {
    let path = format!("/workflows/wf/{verb}");
    let answer = server
        .post(&path, &json!({"reason": "enough"}))
        .send()
        .await;
    assert!(answer.status.is_success(), "{}", answer.body);
}

/// An envelope around these bytes.
pub(crate) fn blob(bytes: &[u8]) -> Value {
    json!({"codec": "avro", "blob": base64(bytes)})
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
