//! Updates that answer with more than an id: the next task of the worker, or the run.

use serde_json::{Value, json};

use super::support::{ask, poll, tell, update_of};
use crate::support::Server;

async fn define(server: &Server, name: &str, tasks: Value) {
    let workflow = json!({"name": name, "tasks": tasks});
    let path = "/metadata/workflow?overwrite=true";
    tell(server, "POST", path, &workflow).await.void();
}

async fn start(server: &Server, name: &str) -> String {
    let start = json!({"name": name});
    tell(server, "POST", "/workflow", &start).await.text()
}

fn chain() -> Value {
    json!([
        {"name": "greet", "taskReferenceName": "one"},
        {"name": "greet", "taskReferenceName": "two"},
    ])
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

#[tokio::test]
async fn an_older_task_of_the_queue_goes_first() {
    let server = Server::open().await;
    define(&server, "chain", chain()).await;
    let first = start(&server, "chain").await;
    server.clock.advance_seconds(1);
    let second = start(&server, "chain").await;
    let task = poll(&server, "greet").await;
    assert_eq!(task["workflowInstanceId"], first.as_str());
    let update = |task: &Value| update_of(task, "COMPLETED", json!({"done": true}));
    let next = tell(&server, "POST", "/tasks/update-v2", &update(&task))
        .await
        .json();
    // The second run began before the first one scheduled its second task.
    assert_eq!(
        (&next["workflowInstanceId"], &next["referenceTaskName"]),
        (&json!(second), &json!("one"))
    );
    assert_eq!(
        (&next["status"], &next["pollCount"], &next["workerId"]),
        (&json!("IN_PROGRESS"), &json!(1), &json!("w"))
    );
    let next = tell(&server, "POST", "/tasks/update-v2", &update(&next))
        .await
        .json();
    assert_eq!(
        (&next["workflowInstanceId"], &next["referenceTaskName"]),
        (&json!(first), &json!("two"))
    );
    // The queue has one more; the same report again gets it.
    let again = tell(&server, "POST", "/tasks/update-v2", &update(&task))
        .await
        .json();
    assert_eq!(again["workflowInstanceId"], second.as_str());
    assert_eq!(again["referenceTaskName"], "two");
    for task in [&next, &again] {
        tell(&server, "POST", "/tasks/update-v2", &update(task))
            .await
            .nothing();
    }
    for id in [first, second] {
        assert_eq!(run_of(&server, &id).await["status"], "COMPLETED");
    }
}

#[tokio::test]
async fn the_next_task_of_the_run_is_taken_with_the_report() {
    let server = Server::open().await;
    define(&server, "chain", chain()).await;
    let id = start(&server, "chain").await;
    let task = poll(&server, "greet").await;
    let update = update_of(&task, "COMPLETED", json!({}));
    let next = tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .json();
    assert_eq!(next["referenceTaskName"], "two");
    assert_eq!(next["workflowInstanceId"], id.as_str());
    let update = update_of(&next, "FAILED_WITH_TERMINAL_ERROR", json!({}));
    tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .nothing();
    assert_eq!(run_of(&server, &id).await["status"], "FAILED");
}

#[tokio::test]
async fn progress_and_heartbeats_take_no_task() {
    let server = Server::open().await;
    define(&server, "chain", chain()).await;
    start(&server, "chain").await;
    start(&server, "chain").await;
    let task = poll(&server, "greet").await;
    let mut beat = update_of(&task, "COMPLETED", json!({}));
    beat["extendLease"] = json!(true);
    let mut progress = update_of(&task, "IN_PROGRESS", json!({}));
    progress["callbackAfterSeconds"] = json!(60);
    for update in [beat, progress] {
        tell(&server, "POST", "/tasks/update-v2", &update)
            .await
            .nothing();
    }
    let sizes = ask(&server, "GET", "/tasks/queue/sizes?taskType=greet").await;
    assert_eq!(sizes.json(), json!({"greet": 2}));
}

#[tokio::test]
async fn a_refused_report_takes_no_task() {
    let server = Server::open().await;
    define(&server, "chain", chain()).await;
    start(&server, "chain").await;
    let update = json!({
        "taskId": "0199a9c0-0000-7000-8000-000000000000", "workflowInstanceId": "x", "status": "COMPLETED",
    });
    let refusal = tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .refused(400, "task_not_found");
    let message = refusal["message"].as_str().expect("a text");
    assert!(message.contains("0199a9c0-0000-7000-8000-000000000000"));
    let sizes = ask(&server, "GET", "/tasks/queue/sizes?taskType=greet").await;
    assert_eq!(sizes.json(), json!({"greet": 1}));
}

#[tokio::test]
async fn a_report_that_frees_a_slot_gets_the_next_task_of_a_limited_name() {
    let server = Server::open().await;
    let definition = json!([{"name": "greet", "concurrentExecLimit": 1}]);
    tell(&server, "POST", "/metadata/taskdefs", &definition)
        .await
        .void();
    define(&server, "chain", chain()).await;
    let ids = [start(&server, "chain").await, start(&server, "chain").await];
    server.clock.advance_seconds(1);
    let mut task = poll(&server, "greet").await;
    let mut references = vec![task["referenceTaskName"].clone()];
    for _ in 0..3 {
        let update = update_of(&task, "COMPLETED", json!({}));
        task = tell(&server, "POST", "/tasks/update-v2", &update)
            .await
            .json();
        references.push(task["referenceTaskName"].clone());
        // No second one at the same time.
        ask(&server, "GET", "/tasks/poll/greet").await.nothing();
    }
    assert_eq!(references, ["one", "one", "two", "two"]);
    let update = update_of(&task, "COMPLETED", json!({}));
    tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .nothing();
    for id in ids {
        assert_eq!(run_of(&server, &id).await["status"], "COMPLETED");
    }
}

#[tokio::test]
async fn a_worker_that_never_polls_keeps_its_domain_alive() {
    let server = Server::open().await;
    define(&server, "chain", chain()).await;
    let domains = json!({"name": "chain", "taskToDomain": {"greet": "blue, NO_DOMAIN"}});
    let path = "/tasks/poll/batch/greet?domain=blue&timeout=0&workerid=w";
    ask(&server, "GET", path).await.json();
    tell(&server, "POST", "/workflow", &domains).await.text();
    let task = ask(&server, "GET", path).await.json()[0].clone();
    server.advance(9).await;
    let update = update_of(&task, "COMPLETED", json!({}));
    let next = tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .json();
    assert_eq!(next["domain"], "blue");
    let polls = ask(&server, "GET", "/tasks/queue/polldata?taskType=greet").await;
    let at = polls.json()[0]["lastPollTime"].clone();
    assert_eq!(at, json!(server.host.now().as_millis()));
}

#[tokio::test]
async fn the_synchronous_update_answers_the_run_after_it() {
    let server = Server::open().await;
    let tasks = json!([
        {"name": "w", "taskReferenceName": "wait", "type": "WAIT"},
        {"name": "greet", "taskReferenceName": "after"},
    ]);
    define(&server, "waits", tasks).await;
    let id = start(&server, "waits").await;
    // The output is taken as it is, and merged over what there is.
    for (status, body) in [
        ("IN_PROGRESS", json!({"a": 1, "b": 1})),
        ("COMPLETED", json!({"taskOutput": {"v": 9}, "b": null})),
    ] {
        let path = format!("/tasks/{id}/wait/{status}/sync?workerid=w");
        let run = tell(&server, "POST", &path, &body).await.json();
        assert_eq!(run["workflowId"], id.as_str());
        assert_eq!(run["tasks"][0]["status"], status);
    }
    let run = run_of(&server, &id).await;
    assert_eq!(
        run["tasks"][0]["outputData"],
        json!({"a": 1, "b": null, "taskOutput": {"v": 9}})
    );
    assert_eq!(run["tasks"][1]["status"], "SCHEDULED");
    // A task for workers is updated without having been polled; this ends the run.
    let path = format!("/tasks/{id}/after/COMPLETED/sync");
    let run = ask(&server, "POST", &path).await.json();
    assert_eq!(run["status"], "COMPLETED");
    let refusal = ask(&server, "POST", &path)
        .await
        .refused(404, "task_not_found");
    let message = format!("Found no running task after of workflow {id} to update");
    assert_eq!(refusal["message"], message);
    let plain = format!("/tasks/{id}/after/COMPLETED");
    let refusal = ask(&server, "POST", &plain)
        .await
        .refused(404, "task_not_found");
    assert_eq!(refusal["message"], message);
}

#[tokio::test]
async fn the_synchronous_update_is_refused_like_the_other() {
    let server = Server::open().await;
    let tasks = json!([{"name": "w", "taskReferenceName": "wait", "type": "WAIT"}]);
    define(&server, "waits", tasks).await;
    let id = start(&server, "waits").await;
    for form in ["", "/sync"] {
        let path = format!("/tasks/{id}/wait/DONE{form}");
        ask(&server, "POST", &path)
            .await
            .refused(400, "validation_failed");
        let path = format!("/tasks/{id}/wait/COMPLETED{form}");
        tell(&server, "POST", &path, &json!([1]))
            .await
            .refused(400, "validation_failed");
        let path = format!("/tasks/{id}/nothing/COMPLETED{form}");
        ask(&server, "POST", &path)
            .await
            .refused(404, "task_not_found");
        let path = format!("/tasks/none/wait/COMPLETED{form}");
        ask(&server, "POST", &path)
            .await
            .refused(404, "run_not_found");
    }
    assert_eq!(
        run_of(&server, &id).await["tasks"][0]["status"],
        "IN_PROGRESS"
    );
    // A run of code has no tasks of this kind.
    let run = server.start("code").await;
    let path = format!("/tasks/{run}/wait/COMPLETED/sync");
    ask(&server, "POST", &path)
        .await
        .refused(404, "run_not_found");
}
