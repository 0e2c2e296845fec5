//! Logs of tasks.

use serde_json::{Value, json};

use super::support::{ask, call, poll, send, tell, update_of};
use crate::support::{BEGIN, Server};

async fn started() -> (Server, Value) {
    let server = Server::open().await;
    let workflow =
        json!({"name": "hello", "tasks": [{"name": "greet", "taskReferenceName": "greet_ref"}]});
    let path = "/metadata/workflow?overwrite=true";
    tell(&server, "POST", path, &workflow).await.void();
    let start = json!({"name": "hello"});
    tell(&server, "POST", "/workflow", &start).await.text();
    let task = poll(&server, "greet").await;
    (server, task)
}

async fn log_of(server: &Server, task: &Value) -> Value {
    let path = format!("/tasks/{}/log", task["taskId"].as_str().expect("a text"));
    ask(server, "GET", &path).await.json()
}

fn texts(log: &Value) -> Vec<&str> {
    let lines = log.as_array().expect("a list");
    lines
        .iter()
        .map(|line| line["log"].as_str().expect("a text"))
        .collect()
}

#[tokio::test]
async fn lines_are_added_in_the_form_of_either_client() {
    let (server, task) = started().await;
    assert_eq!(log_of(&server, &task).await, json!([]));
    let id = task["taskId"].as_str().expect("a text");
    let path = format!("/tasks/{id}/log");
    // One client sends JSON with its quotes, the other one without, both with the same content type.
    for body in [r#""half \"way\" ü""#, r"half \u00fc way", "{}", "7"] {
        let add = call(&server, "POST", &path).raw(body);
        send(add.header("content-type", "application/json"))
            .await
            .void();
    }
    let log = log_of(&server, &task).await;
    assert_eq!(
        texts(&log),
        ["half \"way\" ü", r"half \u00fc way", "{}", "7"]
    );
    let first = &log[0];
    let members: Vec<&String> = first.as_object().expect("an object").keys().collect();
    assert_eq!(members, ["createdTime", "log", "taskId"]);
    assert_eq!(first["taskId"], id);
    assert_eq!(first["createdTime"], json!(BEGIN.as_millis()));
    // The Python client sends an empty line as an empty body.
    let empty = call(&server, "POST", &path).raw("");
    send(empty).await.void();
    let longer = log_of(&server, &task).await;
    assert_eq!(
        longer.as_array().unwrap().len(),
        log.as_array().unwrap().len() + 1
    );
}

#[tokio::test]
async fn a_log_of_an_unknown_task_is_refused() {
    let (server, _) = started().await;
    let path = "/tasks/0199a9c0-0000-7000-8000-000000000000/log";
    for refused in [
        ask(&server, "GET", path).await,
        send(call(&server, "POST", path).raw("text")).await,
    ] {
        let body = refused.refused(404, "task_not_found");
        let message = body["message"].as_str().expect("a text");
        assert!(message.starts_with("Task not found for taskId:"), "{body}");
    }
}

#[tokio::test]
async fn another_namespace_has_no_such_task() {
    let (server, task) = started().await;
    let body = json!({"name": "elsewhere", "retention_days": 7});
    server.post("/namespaces", &body).accepted(201).await;
    let path = format!("/tasks/{}/log", task["taskId"].as_str().expect("a text"));
    for method in ["GET", "POST"] {
        let call = call(&server, method, &path).raw("x").namespace("elsewhere");
        send(call).await.refused(404, "task_not_found");
    }
    assert_eq!(log_of(&server, &task).await, json!([]));
}

#[tokio::test]
async fn a_report_brings_lines_in_either_form() {
    let (server, task) = started().await;
    let mut update = update_of(&task, "IN_PROGRESS", json!({}));
    update["callbackAfterSeconds"] = json!(0);
    update["logs"] = json!([
        {"log": "in milliseconds", "taskId": task["taskId"], "createdTime": 1_700_000_000_001_i64},
        {"message": "in seconds", "createdTime": 1_700_000_000_i64},
        {"log": "without a time"},
    ]);
    tell(&server, "POST", "/tasks", &update).await.text();
    let log = log_of(&server, &task).await;
    // In the order of time.
    assert_eq!(
        texts(&log),
        ["in seconds", "in milliseconds", "without a time"]
    );
    assert_eq!(log[0]["createdTime"], json!(1_700_000_000_000_i64));
    assert_eq!(log[1]["createdTime"], json!(1_700_000_000_001_i64));
    assert_eq!(log[2]["createdTime"], json!(BEGIN.as_millis()));
    // A heartbeat changes nothing else, and a report on an ended task changes nothing.
    let task = poll(&server, "greet").await;
    let mut beat = update_of(&task, "IN_PROGRESS", json!({}));
    beat["extendLease"] = json!(true);
    beat["logs"] = json!([{"log": "beat"}]);
    tell(&server, "POST", "/tasks", &beat).await.text();
    let mut end = update_of(&task, "COMPLETED", json!({}));
    end["logs"] = json!([{"log": "last"}]);
    tell(&server, "POST", "/tasks/update-v2", &end)
        .await
        .nothing();
    tell(&server, "POST", "/tasks/update-v2", &end)
        .await
        .nothing();
    let log = log_of(&server, &task).await;
    assert_eq!(texts(&log).len(), 4);
    assert_eq!(texts(&log)[3], "last");
    // A line for an ended task of an ended run is kept.
    let path = format!("/tasks/{}/log", task["taskId"].as_str().expect("a text"));
    send(call(&server, "POST", &path).raw("after the end"))
        .await
        .void();
    assert_eq!(log_of(&server, &task).await[4]["log"], "after the end");
}

#[tokio::test]
async fn lines_and_their_number_are_bounded() {
    let (server, task) = started().await;
    let mut update = update_of(&task, "IN_PROGRESS", json!({}));
    let long = "ü".repeat(20_000);
    let logs = (0..12).map(|number| json!({"log": format!("{number} {long}")}));
    update["logs"] = logs.collect();
    tell(&server, "POST", "/tasks", &update).await.text();
    let log = log_of(&server, &task).await;
    assert_eq!(texts(&log).len(), 10);
    assert!(texts(&log).iter().all(|line| line.len() <= 16 * 1024));
    assert!(texts(&log)[0].starts_with("0 ü"));
}
