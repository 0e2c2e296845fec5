//! Limits of task definitions: tasks in progress at once, and starts in a window.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_store::Store;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use super::support::{ask, tell, update_of};
use crate::support::Server;

/// Longer than any poll here should wait: one that is woken returns at once.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Registers a task definition and a workflow `run_<name>` of one such task.
async fn define(server: &Server, definition: Value) {
    let name = definition["name"].as_str().expect("a text").to_owned();
    let path = "/metadata/taskdefs";
    tell(server, "POST", path, &json!([definition]))
        .await
        .void();
    let workflow = json!({"name": format!("run_{name}"), "tasks": [{"name": name, "taskReferenceName": "ref"}]});
    let path = "/metadata/workflow?overwrite=true";
    tell(server, "POST", path, &workflow).await.void();
}

async fn start(server: &Server, name: &str, fields: Value) -> String {
    let mut body = json!({"name": format!("run_{name}")});
    crate::support::merge(&mut body, fields);
    tell(server, "POST", "/workflow", &body).await.text()
}

async fn start_many(server: &Server, name: &str, count: usize) {
    for _ in 0..count {
        start(server, name, json!({})).await;
    }
}

/// Polls as many tasks as there are, without waiting.
async fn poll_all(server: &Server, name: &str) -> Vec<Value> {
    poll_for(server, name, 0).await
}

async fn poll_for(server: &Server, name: &str, timeout: u32) -> Vec<Value> {
    let path = format!("/tasks/poll/batch/{name}?workerid=w&count=100&timeout={timeout}");
    let tasks = ask(server, "GET", &path).await.json();
    tasks.as_array().expect("a list").clone()
}

async fn complete(server: &Server, task: &Value) {
    let update = update_of(task, "COMPLETED", json!({}));
    tell(server, "POST", "/tasks", &update).await.text();
}

#[tokio::test]
async fn at_most_so_many_tasks_are_in_progress() {
    let server = Server::open().await;
    define(&server, json!({"name": "t", "concurrentExecLimit": 2})).await;
    define(&server, json!({"name": "other"})).await;
    start_many(&server, "t", 5).await;
    let first = poll_all(&server, "t").await;
    assert_eq!(first.len(), 2);
    assert!(poll_all(&server, "t").await.is_empty());
    // Another name has its own queue.
    start_many(&server, "other", 3).await;
    assert_eq!(poll_all(&server, "other").await.len(), 3);
    complete(&server, &first[0]).await;
    let third = poll_all(&server, "t").await;
    assert_eq!(third.len(), 1);
    complete(&server, &first[1]).await;
    complete(&server, &third[0]).await;
    // A second report on the same task frees nothing.
    complete(&server, &third[0]).await;
    assert_eq!(poll_all(&server, "t").await.len(), 2);
    assert!(poll_all(&server, "t").await.is_empty());
}

#[tokio::test]
async fn tasks_of_every_domain_count() {
    let server = Server::open().await;
    define(&server, json!({"name": "t", "concurrentExecLimit": 1})).await;
    start(&server, "t", json!({"taskToDomain": {"t": "blue"}})).await;
    start(&server, "t", json!({})).await;
    let path = "/tasks/poll/batch/t?domain=blue&timeout=0";
    let blue = ask(&server, "GET", path).await.json();
    assert_eq!(blue[0]["domain"], "blue");
    assert!(poll_all(&server, "t").await.is_empty());
    complete(&server, &blue[0]).await;
    assert_eq!(poll_all(&server, "t").await.len(), 1);
}

#[tokio::test]
async fn a_waiting_poll_gets_a_task_when_a_slot_frees() {
    let server = Server::open().await;
    let definition = json!({"name": "t", "concurrentExecLimit": 1, "retryCount": 0, "responseTimeoutSeconds": 60,
        "timeoutSeconds": 0});
    define(&server, definition).await;
    start_many(&server, "t", 5).await;
    let mut held = poll_all(&server, "t").await;
    for how in ["completed", "in progress", "terminated", "timed out"] {
        assert_eq!(held.len(), 1, "{how}");
        let task = held.remove(0);
        let began = Instant::now();
        let (polled, ()) = tokio::join!(poll_for(&server, "t", 30_000), async {
            server.polls_waiting(1).await;
            let id = task["workflowInstanceId"].as_str().expect("a text");
            match how {
                "completed" => complete(&server, &task).await,
                "in progress" => {
                    // The slot is free while the task waits for its callback.
                    let mut update = update_of(&task, "IN_PROGRESS", json!({}));
                    update["callbackAfterSeconds"] = json!(100_000);
                    tell(&server, "POST", "/tasks", &update).await.text();
                }
                "terminated" => {
                    let path = format!("/workflow/{id}");
                    ask(&server, "DELETE", &path).await.void();
                }
                _ => server.clock.advance_seconds(61),
            }
        });
        assert!(began.elapsed() < AT_ONCE, "{how}");
        held = polled;
    }
}

#[tokio::test]
async fn one_freed_slot_serves_one_of_many_waiting_polls() {
    let server = Server::open().await;
    define(&server, json!({"name": "t", "concurrentExecLimit": 2})).await;
    start_many(&server, "t", 4).await;
    let held = poll_all(&server, "t").await;
    let polls = (0..5).map(|_| poll_for(&server, "t", 30_000));
    let ended = async {
        server.polls_waiting(5).await;
        complete(&server, &held[0]).await;
        server.polls_waiting(4).await;
        server.host.begin_stop();
    };
    let (polled, ()) = tokio::join!(futures::future::join_all(polls), ended);
    let counts: Vec<usize> = polled.iter().map(Vec::len).collect();
    assert_eq!(counts.iter().sum::<usize>(), 1, "{counts:?}");
}

#[tokio::test]
async fn limits_hold_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let server = Server::on_store(Arc::clone(&store)).await;
    define(&server, json!({"name": "t", "concurrentExecLimit": 2})).await;
    let rate = json!({"name": "r", "rateLimitPerFrequency": 2, "rateLimitFrequencyInSeconds": 60});
    define(&server, rate).await;
    start_many(&server, "t", 4).await;
    start_many(&server, "r", 4).await;
    let held = poll_all(&server, "t").await;
    assert_eq!((held.len(), poll_all(&server, "r").await.len()), (2, 2));
    server.host.stop().await;
    let server = Server::on_store(store).await;
    assert!(poll_all(&server, "t").await.is_empty());
    assert!(poll_all(&server, "r").await.is_empty());
    complete(&server, &held[0]).await;
    assert_eq!(poll_all(&server, "t").await.len(), 1);
    server.advance(60).await;
    assert_eq!(poll_all(&server, "r").await.len(), 2);
}

#[tokio::test]
async fn at_most_so_many_tasks_start_in_a_window() {
    let server = Server::open().await;
    let rate =
        json!({"name": "t", "rateLimitPerFrequency": 100, "rateLimitFrequencyInSeconds": 60});
    define(&server, rate).await;
    start_many(&server, "t", 250).await;
    for task in poll_for(&server, "t", 0).await {
        // Ended tasks count too.
        complete(&server, &task).await;
    }
    assert!(poll_all(&server, "t").await.is_empty());
    server.advance(59).await;
    assert!(poll_all(&server, "t").await.is_empty());
    server.advance(1).await;
    assert_eq!(poll_all(&server, "t").await.len(), 100);
    assert!(poll_all(&server, "t").await.is_empty());
    server.advance(60).await;
    assert_eq!(poll_all(&server, "t").await.len(), 50);
}

#[tokio::test]
async fn a_waiting_poll_gets_a_task_when_the_window_has_room() {
    let server = Server::open().await;
    let rate = json!({"name": "t", "rateLimitPerFrequency": 1, "rateLimitFrequencyInSeconds": 10});
    define(&server, rate).await;
    let began = Instant::now();
    // This poll waits before there is any task.
    let (polled, ()) = tokio::join!(
        async {
            let first = poll_for(&server, "t", 30_000).await;
            let second = poll_for(&server, "t", 30_000).await;
            (first.len(), second.len())
        },
        async {
            server.polls_waiting(1).await;
            start_many(&server, "t", 2).await;
            server.polls_waiting(1).await;
            server.clock.advance_seconds(10);
        }
    );
    assert_eq!(polled, (1, 1));
    assert!(began.elapsed() < AT_ONCE);
}

#[tokio::test]
async fn a_task_keeps_the_limit_it_was_scheduled_with() {
    let server = Server::open().await;
    define(&server, json!({"name": "t", "concurrentExecLimit": 1})).await;
    start_many(&server, "t", 2).await;
    server.clock.advance_seconds(1);
    define(&server, json!({"name": "t", "concurrentExecLimit": 3})).await;
    start_many(&server, "t", 3).await;
    // One of the first two, then those with the larger limit; all tasks of the name count against it.
    let held = poll_all(&server, "t").await;
    assert_eq!(held.len(), 3);
    for task in held {
        complete(&server, &task).await;
    }
    assert_eq!(poll_all(&server, "t").await.len(), 2);
}

#[tokio::test]
async fn urgent_tasks_go_first_within_a_limit() {
    let server = Server::open().await;
    define(&server, json!({"name": "t", "concurrentExecLimit": 1})).await;
    for priority in [0, 50, 99, 50] {
        start(&server, "t", json!({"priority": priority})).await;
    }
    let mut order = Vec::new();
    while let Some(task) = poll_all(&server, "t").await.pop() {
        order.push(task["workflowPriority"].as_i64().expect("a number"));
        complete(&server, &task).await;
    }
    assert_eq!(order, [99, 50, 50, 0]);
}

#[tokio::test]
async fn a_request_for_tasks_that_gets_none_uses_no_store() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let store = Memory::with_fault(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let server = Server::on_store(Arc::new(store)).await;
    // Background loops may use the store at any time, but seldom.
    for _ in 0..20 {
        let before = calls.load(Ordering::SeqCst);
        for _ in 0..50 {
            assert!(poll_all(&server, "t").await.is_empty());
        }
        if calls.load(Ordering::SeqCst) == before {
            return;
        }
    }
    panic!("an empty poll uses the store");
}
