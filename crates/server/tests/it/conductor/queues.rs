//! Sizes of queues, and who polled them last.

use serde_json::{Value, json};

use super::support::{ask, poll, tell, update_of};
use crate::support::{BEGIN, Server};

async fn with_runs(count: usize) -> Server {
    let server = Server::open().await;
    let workflow =
        json!({"name": "hello", "tasks": [{"name": "greet", "taskReferenceName": "greet_ref"}]});
    let path = "/metadata/workflow?overwrite=true";
    tell(&server, "POST", path, &workflow).await.void();
    for _ in 0..count {
        let start = json!({"name": "hello"});
        tell(&server, "POST", "/workflow", &start).await.text();
    }
    server
}

async fn read(server: &Server, path: &str) -> Value {
    ask(server, "GET", &format!("/tasks/queue/{path}"))
        .await
        .json()
}

#[tokio::test]
async fn a_size_counts_the_tasks_that_no_worker_has() {
    let server = with_runs(2).await;
    let sizes = "sizes?taskType=greet&taskType=other";
    assert_eq!(read(&server, sizes).await, json!({"greet": 2, "other": 0}));
    let task = poll(&server, "greet").await;
    assert_eq!(read(&server, sizes).await, json!({"greet": 1, "other": 0}));
    // A task that waits for its callback is waiting too.
    let mut update = update_of(&task, "IN_PROGRESS", json!({}));
    update["callbackAfterSeconds"] = json!(60);
    tell(&server, "POST", "/tasks", &update).await.text();
    assert_eq!(
        read(&server, "sizes?taskType=greet,other").await,
        json!({"greet": 2, "other": 0})
    );
    assert_eq!(read(&server, "size?taskType=greet").await, json!(2));
    assert_eq!(read(&server, "size?taskType=nothing").await, json!(0));
}

#[tokio::test]
async fn domains_have_queues_of_their_own() {
    let server = with_runs(1).await;
    let start = json!({"name": "hello", "taskToDomain": {"*": "blue"}});
    tell(&server, "POST", "/workflow", &start).await.text();
    assert_eq!(
        read(&server, "sizes").await,
        json!({"blue:greet": 1, "greet": 1})
    );
    assert_eq!(
        read(&server, "size?taskType=greet&domain=blue").await,
        json!(1)
    );
    let named = "size?taskType=greet&domain=blue&isolationGroupId=g&executionNamespace=n";
    assert_eq!(read(&server, named).await, json!(0));
    assert_eq!(
        read(&server, "sizes?taskType=blue%3Agreet").await,
        json!({"blue:greet": 1})
    );
}

#[tokio::test]
async fn all_queues_are_listed_without_those_of_operators() {
    let server = with_runs(1).await;
    let wait = json!({"name": "waits", "tasks": [
        {"name": "w", "taskReferenceName": "w", "type": "WAIT"},
        {"name": "h", "taskReferenceName": "h", "type": "HUMAN"},
    ]});
    let path = "/metadata/workflow?overwrite=true";
    tell(&server, "POST", path, &wait).await.void();
    let start = json!({"name": "waits"});
    tell(&server, "POST", "/workflow", &start).await.text();
    ask(&server, "GET", "/tasks/poll/idle").await.nothing();
    assert_eq!(read(&server, "all").await, json!({"greet": 1, "idle": 0}));
    let shard = |size: u64| json!({"a": {"size": size, "uacked": 0}});
    assert_eq!(
        read(&server, "all/verbose").await,
        json!({"greet": shard(1), "idle": shard(0)})
    );
}

#[tokio::test]
async fn the_last_poll_of_each_queue_is_known() {
    let server = with_runs(1).await;
    assert_eq!(read(&server, "polldata/all").await, json!([]));
    poll(&server, "greet").await;
    let path = "/tasks/poll/batch/greet?workerid=x&domain=blue&timeout=0";
    ask(&server, "GET", path).await.json();
    ask(&server, "GET", "/tasks/poll/other").await.nothing();
    let at = BEGIN.as_millis();
    let greet = json!([
        {"queueName": "greet", "workerId": "w", "lastPollTime": at},
        {"queueName": "greet", "domain": "blue", "workerId": "x", "lastPollTime": at},
    ]);
    assert_eq!(read(&server, "polldata?taskType=greet").await, greet);
    assert_eq!(read(&server, "polldata?taskType=none").await, json!([]));
    let all = read(&server, "polldata/all").await;
    assert_eq!(all.as_array().expect("a list").len(), 3);
    assert_eq!(all[2], json!({"queueName": "other", "lastPollTime": at}));
}

#[tokio::test]
async fn a_queue_must_be_named() {
    let server = with_runs(0).await;
    for path in [
        "size",
        "size?taskType=",
        "polldata",
        "polldata?taskType=None",
    ] {
        let answer = ask(&server, "GET", &format!("/tasks/queue/{path}")).await;
        answer.refused(400, "validation_failed");
    }
}
