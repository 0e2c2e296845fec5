//! Workflows that are removed, and operations on many.

use serde_json::{Value, json};

use super::waiting;
use crate::conductor::support::{ask, poll, start_hello, tell, update_of, with_hello};
use crate::support::Server;

async fn is_gone(server: &Server, id: &str, task_id: &str) {
    let path = format!("/workflow/{id}");
    ask(server, "GET", &path)
        .await
        .refused(404, "run_not_found");
    let path = format!("/tasks/{task_id}");
    ask(server, "GET", &path)
        .await
        .refused(404, "task_not_found");
    let path = format!("/tasks/{task_id}/log");
    assert_eq!(ask(server, "GET", &path).await.status, 404);
    let found = ask(server, "GET", "/workflow/search?query=&freeText=*")
        .await
        .json();
    let results = found["results"].as_array().expect("a member");
    assert!(results.iter().all(|run| run["workflowId"] != id), "{found}");
}

#[tokio::test]
async fn a_removed_workflow_is_gone() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({"n": 1})).await;
    let task = poll(&server, "greet").await;
    let task_id = task["taskId"].as_str().unwrap();
    let update = update_of(&task, "COMPLETED", json!({}));
    tell(&server, "POST", "/tasks", &update).await.text();
    let path = format!("/workflow/{id}/remove?archiveWorkflow=True");
    ask(&server, "DELETE", &path).await.void();
    is_gone(&server, &id, task_id).await;
    ask(&server, "DELETE", &path)
        .await
        .refused(404, "run_not_found");
    for verb in ["restart", "retry", "rerun"] {
        let path = format!("/workflow/{id}/{verb}");
        ask(&server, "POST", &path)
            .await
            .refused(404, "run_not_found");
    }
    // A report that comes late finds nothing.
    tell(&server, "POST", "/tasks", &update)
        .await
        .refused(404, "task_not_found");
}

#[tokio::test]
async fn an_open_workflow_is_terminated_and_removed_with_its_tasks() {
    let server = Server::open().await;
    with_hello(&server).await;
    for (position, verb) in ["remove", "terminate-remove?reason=enough"]
        .iter()
        .enumerate()
    {
        let leased = start_hello(&server, json!({"n": position})).await;
        let task = poll(&server, "greet").await;
        ask(&server, "DELETE", &format!("/workflow/{leased}/{verb}"))
            .await
            .void();
        is_gone(&server, &leased, task["taskId"].as_str().unwrap()).await;
        let ready = start_hello(&server, json!({"n": position})).await;
        ask(&server, "DELETE", &format!("/workflow/{ready}/{verb}"))
            .await
            .void();
        // No worker gets a task of it, and its place in the queue is free.
        let path = "/tasks/poll/batch/greet?workerid=w&count=5&timeout=1";
        assert_eq!(ask(&server, "GET", path).await.json(), json!([]));
        let sizes = ask(&server, "GET", "/tasks/queue/sizes?taskType=greet")
            .await
            .json();
        assert_eq!(sizes, json!({"greet": 0}));
    }
}

#[tokio::test]
async fn a_key_is_free_after_its_workflow_was_removed() {
    let server = Server::open().await;
    with_hello(&server).await;
    let start = json!({"name": "hello", "idempotencyKey": "order-7"});
    let id = tell(&server, "POST", "/workflow", &start).await.text();
    tell(&server, "POST", "/workflow", &start)
        .await
        .refused(409, "idempotency_key_taken");
    ask(&server, "DELETE", &format!("/workflow/{id}/remove"))
        .await
        .void();
    assert_ne!(tell(&server, "POST", "/workflow", &start).await.text(), id);
}

#[tokio::test]
async fn a_removed_child_ends_the_task_of_its_parent() {
    let server = Server::open().await;
    tell(&server, "POST", "/metadata/workflow", &waiting())
        .await
        .void();
    let sub = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "waiting"}});
    let outer = json!({"name": "outer", "tasks": [sub]});
    tell(&server, "POST", "/metadata/workflow", &outer)
        .await
        .void();
    let id = tell(&server, "POST", "/workflow/outer", &json!({}))
        .await
        .text();
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    let child = run["tasks"][0]["subWorkflowId"]
        .as_str()
        .unwrap()
        .to_owned();
    ask(&server, "DELETE", &format!("/workflow/{child}/remove"))
        .await
        .void();
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    assert_eq!(
        (&run["status"], &run["tasks"][0]["status"]),
        (&json!("TERMINATED"), &json!("CANCELED"))
    );
    // A parent that is removed takes its open child along.
    let id = tell(&server, "POST", "/workflow/outer", &json!({}))
        .await
        .text();
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    let child = run["tasks"][0]["subWorkflowId"]
        .as_str()
        .unwrap()
        .to_owned();
    ask(
        &server,
        "DELETE",
        &format!("/workflow/{id}/terminate-remove"),
    )
    .await
    .void();
    let child = ask(&server, "GET", &format!("/workflow/{child}"))
        .await
        .json();
    assert_eq!(child["status"], "TERMINATED");
}

/// Starts workflows that wait for a caller.
async fn several(server: &Server, count: usize) -> Vec<String> {
    tell(
        server,
        "POST",
        "/metadata/workflow?overwrite=true",
        &waiting(),
    )
    .await
    .void();
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(
            tell(server, "POST", "/workflow/waiting", &json!({}))
                .await
                .text(),
        );
    }
    ids
}

async fn bulk(server: &Server, verb: &str, operation: &str, ids: &[String]) -> Value {
    let path = format!("/workflow/bulk/{operation}");
    tell(server, verb, &path, &json!(ids)).await.json()
}

#[tokio::test]
async fn operations_on_many_workflows_name_what_failed() {
    let server = Server::open().await;
    let ids = several(&server, 3).await;
    let with_unknown = [&ids[..], &["none".to_owned()]].concat();
    let unknown = json!({"none": "No such workflow found by id: none"});
    for (verb, operation) in [
        ("PUT", "pause"),
        ("PUT", "resume"),
        ("POST", "terminate?reason=enough"),
        ("POST", "retry"),
        ("POST", "terminate"),
        ("POST", "restart?useLatestDefinitions=true"),
        ("DELETE", "terminate-remove?reason=enough"),
    ] {
        let answer = bulk(&server, verb, operation, &with_unknown).await;
        let expected = json!({"bulkErrorResults": unknown, "bulkSuccessfulResults": ids});
        assert_eq!(answer, expected, "{operation}");
    }
    for id in &ids {
        ask(&server, "GET", &format!("/workflow/{id}"))
            .await
            .refused(404, "run_not_found");
    }
    for (verb, operation) in [("DELETE", "remove"), ("POST", "delete")] {
        let ids = several(&server, 40).await;
        let answer = bulk(&server, verb, operation, &ids).await;
        assert_eq!(
            answer,
            json!({"bulkErrorResults": {}, "bulkSuccessfulResults": ids})
        );
    }
}

#[tokio::test]
async fn a_refused_operation_has_the_words_of_the_single_request() {
    let server = Server::open().await;
    let ids = several(&server, 2).await;
    let single = ask(&server, "POST", &format!("/workflow/{}/retry", ids[0])).await;
    let message = single.refused(409, "run_not_ended")["message"].clone();
    let answer = bulk(&server, "POST", "retry", &ids).await;
    let errors = json!({&ids[0]: message, &ids[1]: message});
    assert_eq!(
        answer,
        json!({"bulkErrorResults": errors, "bulkSuccessfulResults": []})
    );
}

#[tokio::test]
async fn many_workflows_are_read_at_once() {
    let server = Server::open().await;
    let ids = several(&server, 2).await;
    let answer = bulk(&server, "POST", "search?includeTasks=false", &ids).await;
    let found = answer["bulkSuccessfulResults"].as_array().unwrap();
    let shown: Vec<&Value> = found.iter().map(|run| &run["workflowId"]).collect();
    assert_eq!(shown, [&json!(ids[0]), &json!(ids[1])]);
    assert_eq!(found[0]["tasks"], json!([]));
    let answer = bulk(&server, "POST", "search", &ids).await;
    assert_eq!(
        answer["bulkSuccessfulResults"][1]["tasks"][0]["taskType"],
        "WAIT"
    );
}

#[tokio::test]
async fn lists_of_ids_are_bounded() {
    let server = Server::open().await;
    for body in [json!([]), json!(vec!["x"; 1001]), json!({"ids": []})] {
        let path = "/workflow/bulk/pause";
        tell(&server, "PUT", path, &body)
            .await
            .refused(400, "validation_failed");
    }
    let answer = tell(
        &server,
        "PUT",
        "/workflow/bulk/pause",
        &json!(vec!["x"; 1000]),
    )
    .await
    .json();
    assert_eq!(answer["bulkErrorResults"].as_object().unwrap().len(), 1);
    ask(&server, "POST", "/workflow/bulk/pause")
        .await
        .refused(405, "method_not_allowed");
    ask(&server, "POST", "/workflow/bulk/status")
        .await
        .refused(404, "not_found");
}
