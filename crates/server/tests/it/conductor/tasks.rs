//! Tasks of definition runs: polls, updates, reads.

mod system_tasks;

use serde_json::{Value, json};

use super::support::{ask, call, poll, send, start_hello, tell, update_of, with_hello};
use crate::support::Server;

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

#[tokio::test]
async fn polls_answer_a_list_a_task_or_nothing() {
    let server = Server::open().await;
    with_hello(&server).await;
    for method in ["GET", "POST"] {
        let empty = ask(&server, method, "/tasks/poll/batch/greet?timeout=0").await;
        assert_eq!(empty.json(), json!([]));
    }
    ask(&server, "GET", "/tasks/poll/greet?workerid=w")
        .await
        .nothing();
    for n in 0..4 {
        start_hello(&server, json!({"n": n})).await;
    }
    let one = ask(&server, "GET", "/tasks/poll/greet?workerid=w")
        .await
        .json();
    assert_eq!(one["status"], "IN_PROGRESS");
    assert_eq!(
        (&one["pollCount"], &one["workerId"]),
        (&json!(1), &json!("w"))
    );
    // The Python client sends an empty object.
    let path = "/tasks/poll/batch/greet?count=2";
    let two = send(call(&server, "POST", path).json(&json!({})))
        .await
        .json();
    assert_eq!(two.as_array().unwrap().len(), 2);
    let rest = ask(&server, "GET", "/tasks/poll/batch/greet?count=100000")
        .await
        .json();
    assert_eq!(rest.as_array().unwrap().len(), 1);
    for path in [
        "/tasks/poll/batch/greet?count=x",
        "/tasks/poll/batch/greet?timeout=1.5",
    ] {
        ask(&server, "GET", path)
            .await
            .refused(400, "validation_failed");
    }
    let polls = ask(&server, "GET", "/tasks/queue/polldata?taskType=greet")
        .await
        .json();
    assert_eq!(polls.as_array().unwrap().len(), 1);
    assert_eq!(polls[0]["queueName"], "greet");
    assert_eq!(polls[0].get("domain"), None::<&Value>);
    assert!(polls[0]["lastPollTime"].is_i64());
}

#[tokio::test]
async fn an_update_answers_the_task_id_and_the_second_form_nothing_without_a_next_task() {
    let server = Server::open().await;
    with_hello(&server).await;
    let first = start_hello(&server, json!({"n": 1})).await;
    let task = poll(&server, "greet").await;
    let mut progress = update_of(&task, "IN_PROGRESS", json!({"step": 1}));
    progress["callbackAfterSeconds"] = json!(60);
    tell(&server, "POST", "/tasks/update-v2", &progress)
        .await
        .nothing();
    let extend = json!({
        "taskId": task["taskId"], "workflowInstanceId": first, "status": "IN_PROGRESS", "extendLease": true,
    });
    tell(&server, "POST", "/tasks/update-v2", &extend)
        .await
        .nothing();
    assert_eq!(
        tell(&server, "POST", "/tasks", &extend).await.text(),
        task["taskId"].as_str().unwrap()
    );
    let done = update_of(&task, "COMPLETED", json!({"result": "one"}));
    tell(&server, "POST", "/tasks/update-v2", &done)
        .await
        .nothing();
    // A repeated update of a finished task changes nothing.
    let late = update_of(&task, "FAILED", json!({"result": "late"}));
    assert_eq!(
        tell(&server, "POST", "/tasks", &late).await.text(),
        task["taskId"].as_str().unwrap()
    );
    let run = run_of(&server, &first).await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("COMPLETED"), &json!({"g": "one"}))
    );
    let read = ask(
        &server,
        "GET",
        &format!("/tasks/{}", task["taskId"].as_str().unwrap()),
    )
    .await
    .json();
    assert_eq!(
        (&read["status"], &read["outputData"]),
        (&json!("COMPLETED"), &json!({"result": "one"}))
    );
}

#[tokio::test]
async fn an_update_that_is_refused_changes_nothing() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let task = poll(&server, "greet").await;
    let before = run_of(&server, &id).await;
    let unknown = json!({"taskId": "none", "workflowInstanceId": id, "status": "COMPLETED"});
    let refusal = tell(&server, "POST", "/tasks", &unknown)
        .await
        .refused(404, "task_not_found");
    assert!(refusal["message"].as_str().unwrap().contains("none"));
    // Clients take 404 here for a server without the route.
    let refusal = tell(&server, "POST", "/tasks/update-v2", &unknown)
        .await
        .refused(400, "task_not_found");
    assert!(refusal["message"].as_str().unwrap().contains("none"));
    for path in ["/tasks", "/tasks/update-v2"] {
        for (member, value) in [
            ("taskId", json!("")),
            ("taskId", Value::Null),
            ("workflowInstanceId", Value::Null),
            ("status", json!("DONE")),
            ("status", json!("SCHEDULED")),
            ("outputData", json!([1])),
            ("callbackAfterSeconds", json!("soon")),
        ] {
            let mut update = update_of(&task, "COMPLETED", json!({}));
            update[member] = value;
            let answer = tell(&server, "POST", path, &update).await;
            answer.refused(400, "validation_failed");
        }
    }
    for (path, status, reason) in [
        (
            format!("/tasks/{id}/greet_ref/DONE"),
            400,
            "validation_failed",
        ),
        (
            format!("/tasks/{id}/other/COMPLETED"),
            404,
            "task_not_found",
        ),
        (
            "/tasks/none/greet_ref/COMPLETED".to_owned(),
            404,
            "run_not_found",
        ),
    ] {
        let answer = tell(&server, "POST", &path, &json!({})).await;
        assert_eq!(answer.status, status, "{answer:?}");
        if answer.status != 404 {
            answer.refused(status, reason);
        }
    }
    ask(&server, "GET", "/tasks/none")
        .await
        .refused(404, "task_not_found");
    assert_eq!(run_of(&server, &id).await, before);
}

#[tokio::test]
async fn an_update_names_the_workflow_of_its_task_and_a_status() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let task = poll(&server, "greet").await;
    let other = start_hello(&server, json!({})).await;
    let before = run_of(&server, &id).await;
    for workflow_id in ["no-such-workflow", other.as_str()] {
        let mut update = update_of(&task, "COMPLETED", json!({}));
        update["workflowInstanceId"] = json!(workflow_id);
        let refusal = tell(&server, "POST", "/tasks", &update)
            .await
            .refused(404, "task_not_found");
        let task_id = task["taskId"].as_str().unwrap();
        assert_eq!(
            refusal["message"],
            format!("Task {task_id} is not a task of workflow {workflow_id}")
        );
        // Clients take 404 for a server without this route.
        tell(&server, "POST", "/tasks/update-v2", &update)
            .await
            .refused(400, "task_not_found");
        update["extendLease"] = json!(true);
        tell(&server, "POST", "/tasks", &update)
            .await
            .refused(404, "task_not_found");
    }
    let mut update = update_of(&task, "COMPLETED", json!({}));
    update["status"] = Value::Null;
    for path in ["/tasks", "/tasks/update-v2"] {
        tell(&server, "POST", path, &update)
            .await
            .refused(400, "validation_failed");
    }
    assert_eq!(run_of(&server, &id).await, before);
}

#[tokio::test]
async fn a_head_request_takes_no_task() {
    let server = Server::open().await;
    with_hello(&server).await;
    start_hello(&server, json!({})).await;
    for path in ["/tasks/poll/greet", "/tasks/poll/batch/greet"] {
        assert_eq!(ask(&server, "HEAD", path).await.status, 405, "{path}");
    }
    assert_eq!(poll(&server, "greet").await["pollCount"], 1);
}

#[tokio::test]
async fn a_batch_is_in_the_order_of_priority() {
    let server = Server::open().await;
    with_hello(&server).await;
    for priority in [0, 50, 99, 1, 50] {
        let start = json!({"name": "hello", "priority": priority});
        tell(&server, "POST", "/workflow", &start).await.text();
    }
    let tasks = ask(&server, "GET", "/tasks/poll/batch/greet?count=5")
        .await
        .json();
    let order: Vec<_> = tasks.as_array().unwrap().iter().collect();
    let order: Vec<_> = order
        .iter()
        .map(|task| task["workflowPriority"].as_i64())
        .collect();
    assert_eq!(order, [99, 50, 50, 1, 0].map(Some));
}
