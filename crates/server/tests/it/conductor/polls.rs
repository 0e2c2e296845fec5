//! Polls and what a delivered task becomes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::support::{ask, poll, tell, update_of};
use crate::support::Server;

/// Registers a workflow of tasks in sequence, each of the type of its reference.
async fn define(server: &Server, name: &str, references: &[&str]) {
    let tasks: Vec<Value> = references
        .iter()
        .map(|reference| json!({"name": reference, "taskReferenceName": reference, "type": "SIMPLE"}))
        .collect();
    let definition = json!([{"name": name, "version": 1, "tasks": tasks}]);
    tell(server, "PUT", "/metadata/workflow", &definition).await;
    let retried: Vec<Value> = references
        .iter()
        .map(|name| json!({"name": name, "retryCount": 3, "retryDelaySeconds": 0, "responseTimeoutSeconds": 60}))
        .collect();
    tell(server, "POST", "/metadata/taskdefs", &json!(retried))
        .await
        .void();
}

async fn start(server: &Server, name: &str, more: Value) -> String {
    let mut request = json!({"name": name, "input": {}});
    for (member, value) in more.as_object().expect("members") {
        request[member] = value.clone();
    }
    tell(server, "POST", "/workflow", &request).await.text()
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

/// The status and the retry count of each task of a run.
async fn tasks_of(server: &Server, id: &str) -> Vec<(String, i64)> {
    let run = run_of(server, id).await;
    let tasks = run["tasks"].as_array().expect("tasks");
    tasks
        .iter()
        .map(|task| {
            let status = task["status"].as_str().expect("a status").to_owned();
            (status, task["retryCount"].as_i64().expect("a number"))
        })
        .collect()
}

async fn polled(server: &Server, method: &str, path: &str) -> usize {
    let tasks = ask(server, method, path).await.json();
    tasks.as_array().expect("a list").len()
}

#[tokio::test]
async fn a_waiting_poll_gets_a_task_when_one_is_scheduled() {
    let server = Server::open().await;
    define(&server, "w", &["a"]).await;
    let waiting = ask(
        &server,
        "GET",
        "/tasks/poll/batch/a?workerid=w&count=5&timeout=30000",
    );
    let starting = start(&server, "w", json!({}));
    let (tasks, id) = tokio::join!(waiting, starting);
    let tasks = tasks.json();
    assert_eq!(tasks[0]["workflowInstanceId"], id, "{tasks}");
    assert_eq!(tasks.as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_batch_has_as_many_tasks_as_it_asks_for() {
    let server = Server::open().await;
    define(&server, "w", &["a"]).await;
    for _ in 0..10 {
        start(&server, "w", json!({})).await;
    }
    let poll = |count: u32| format!("/tasks/poll/batch/a?workerid=w&count={count}&timeout=0");
    assert_eq!(polled(&server, "GET", &poll(1)).await, 1);
    assert_eq!(polled(&server, "GET", &poll(7)).await, 7);
    assert_eq!(polled(&server, "GET", &poll(100_000)).await, 2);
    assert_eq!(polled(&server, "GET", &poll(100)).await, 0);
}

#[tokio::test]
async fn both_verbs_poll_and_only_the_type_is_required() {
    let server = Server::open().await;
    define(&server, "w", &["a"]).await;
    for _ in 0..4 {
        start(&server, "w", json!({})).await;
    }
    for (method, path) in [
        ("GET", "/tasks/poll/batch/a?workerid=w&count=1&timeout=0"),
        ("POST", "/tasks/poll/batch/a?workerid=w&count=1&timeout=0"),
        ("GET", "/tasks/poll/batch/a"),
        ("GET", "/tasks/poll/batch/a?domain=&workerid=&timeout=0"),
    ] {
        assert_eq!(polled(&server, method, path).await, 1, "{method} {path}");
    }
    assert_eq!(polled(&server, "GET", "/tasks/poll/batch/a").await, 0);
}

#[tokio::test]
async fn a_task_has_one_worker_until_it_comes_back() {
    let server = Server::open().await;
    define(&server, "w", &["a"]).await;
    let id = start(&server, "w", json!({"input": {"n": null}})).await;
    let task = poll(&server, "a").await;
    for (member, value) in [
        ("taskDefName", json!("a")),
        ("taskType", json!("a")),
        ("referenceTaskName", json!("a")),
        ("workflowInstanceId", json!(id)),
        ("status", json!("IN_PROGRESS")),
        ("inputData", json!({})),
        ("pollCount", json!(1)),
        ("retryCount", json!(0)),
        ("callbackAfterSeconds", json!(0)),
        ("responseTimeoutSeconds", json!(60)),
    ] {
        assert_eq!(task[member], value, "{member}: {task}");
    }
    let task_id = task["taskId"].as_str().expect("an id");
    let read = ask(&server, "GET", &format!("/tasks/{task_id}"))
        .await
        .json();
    assert_eq!(read["status"], "IN_PROGRESS");
    assert_eq!(
        polled(&server, "GET", "/tasks/poll/batch/a?timeout=0").await,
        0
    );

    for round in 1..3 {
        let report = update_of(&task, "IN_PROGRESS", json!({"round": round}));
        tell(&server, "POST", "/tasks", &report).await.text();
        let again = poll(&server, "a").await;
        assert_eq!(again["taskId"], task["taskId"]);
        assert_eq!(again["pollCount"], round + 1);
        assert_eq!(again["outputData"], json!({"round": round}));
    }
    let report = update_of(&task, "COMPLETED", json!({"done": true}));
    tell(&server, "POST", "/tasks", &report).await.text();
    assert_eq!(run_of(&server, &id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_task_of_a_domain_is_for_that_domain() {
    let server = Server::open().await;
    define(&server, "w", &["a"]).await;
    start(&server, "w", json!({"taskToDomain": {"a": "blue"}})).await;
    for path in [
        "/tasks/poll/batch/a?timeout=0",
        "/tasks/poll/batch/a?timeout=0&domain=red",
    ] {
        assert_eq!(polled(&server, "GET", path).await, 0, "{path}");
    }
    let path = "/tasks/poll/batch/a?timeout=0&domain=blue";
    assert_eq!(polled(&server, "GET", path).await, 1);
}

#[tokio::test]
async fn every_status_that_a_worker_reports_has_its_effect() {
    let server = Server::open().await;
    define(&server, "w", &["a", "b"]).await;
    let id = start(&server, "w", json!({})).await;
    let first = poll(&server, "a").await;

    let unknown = update_of(&first, "DONE", json!({"x": 1}));
    tell(&server, "POST", "/tasks", &unknown)
        .await
        .refused(400, "validation_failed");
    assert_eq!(
        tasks_of(&server, &id).await,
        [("IN_PROGRESS".to_owned(), 0)]
    );

    let failed = update_of(&first, "FAILED", json!({}));
    tell(&server, "POST", "/tasks", &failed).await.text();
    let second = poll(&server, "a").await;
    assert_ne!(second["taskId"], first["taskId"]);
    assert_eq!(second["retryCount"], 1);

    let completed = update_of(&second, "COMPLETED", json!({"x": 1}));
    tell(&server, "POST", "/tasks", &completed).await.text();
    let next = poll(&server, "b").await;
    let terminal = update_of(&next, "FAILED_WITH_TERMINAL_ERROR", json!({}));
    tell(&server, "POST", "/tasks", &terminal).await.text();
    let run = run_of(&server, &id).await;
    assert_eq!(run["status"], "FAILED");
    let ended = tasks_of(&server, &id).await;
    let statuses: Vec<&str> = ended.iter().map(|(status, _)| status.as_str()).collect();
    assert_eq!(
        statuses,
        ["FAILED", "COMPLETED", "FAILED_WITH_TERMINAL_ERROR"]
    );
    // A report after the end is accepted and changes nothing.
    tell(&server, "POST", "/tasks", &completed).await.text();
    let late = update_of(&second, "FAILED", json!({"late": true}));
    tell(&server, "POST", "/tasks", &late).await.text();
    assert_eq!(run_of(&server, &id).await, run);
}

#[tokio::test]
async fn workers_of_one_type_share_its_tasks() {
    let server = Server::open().await;
    define(&server, "w", &["a"]).await;
    for _ in 0..150 {
        start(&server, "w", json!({})).await;
    }
    let work = async || {
        let mut seen = Vec::new();
        loop {
            let path = "/tasks/poll/batch/a?count=7&timeout=0";
            let tasks = ask(&server, "GET", path).await.json();
            let tasks = tasks.as_array().expect("a list").clone();
            if tasks.is_empty() {
                return seen;
            }
            for task in tasks {
                let report = update_of(&task, "COMPLETED", json!({}));
                tell(&server, "POST", "/tasks", &report).await.text();
                seen.push(task["taskId"].as_str().expect("an id").to_owned());
            }
        }
    };
    let (one, two, three) = tokio::join!(work(), work(), work());
    let all: Vec<String> = [one, two, three].concat();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (150, 150));
}
