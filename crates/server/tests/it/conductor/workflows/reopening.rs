//! Workflows that ended and are opened again, and operations on open ones.

use serde_json::{Value, json};

use super::super::support::{ask, poll, tell, update_of};
use crate::support::Server;

/// Registers a workflow of tasks for workers that are not retried by themselves.
async fn with_steps(server: &Server, name: &str, steps: &[&str]) {
    let node = |step: &&str| json!({"name": step, "taskReferenceName": step, "retryCount": 0});
    let tasks: Vec<Value> = steps.iter().map(node).collect();
    let definition = json!({"name": name, "version": 1, "tasks": tasks});
    let path = "/metadata/workflow?overwrite=true";
    tell(server, "POST", path, &definition).await.void();
}

async fn start(server: &Server, name: &str) -> String {
    let start = json!({"name": name, "input": {"n": 1}, "correlationId": "c-1"});
    tell(server, "POST", "/workflow", &start).await.text()
}

/// Polls a task and reports on it.
async fn report(server: &Server, step: &str, status: &str) -> Value {
    let task = poll(server, step).await;
    let update = update_of(&task, status, json!({"from": step}));
    tell(server, "POST", "/tasks", &update).await.text();
    task
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

fn shown(run: &Value) -> String {
    let tasks = run["tasks"].as_array().expect("a member").iter();
    let text = |task: &Value| {
        let words = [&task["referenceTaskName"], &task["status"]];
        words
            .map(|word| word.as_str().expect("a member").to_owned())
            .join(" ")
    };
    let status = run["status"].as_str().expect("a member");
    format!(
        "{status}: {}",
        tasks.map(text).collect::<Vec<_>>().join(", ")
    )
}

async fn operate(
    server: &Server,
    verb: &str,
    id: &str,
    what: &str,
) -> crate::conductor::support::Sent {
    ask(server, verb, &format!("/workflow/{id}/{what}")).await
}

#[tokio::test]
async fn a_restart_begins_from_the_start() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a", "b"]).await;
    let id = start(&server, "steps").await;
    operate(&server, "POST", &id, "restart")
        .await
        .refused(409, "run_not_ended");
    let first = report(&server, "a", "COMPLETED").await;
    report(&server, "b", "FAILED").await;
    operate(&server, "POST", &id, "restart?useLatestDefinitions=False")
        .await
        .nothing();
    let run = run_of(&server, &id).await;
    assert_eq!(shown(&run), "RUNNING: a SCHEDULED");
    assert_eq!(
        (&run["tasks"][0]["seq"], &run["input"]),
        (&json!(1), &json!({"n": 1}))
    );
    assert_eq!((&run["output"], &run["endTime"]), (&json!({}), &json!(0)));
    // The task of the first life is gone.
    let path = format!("/tasks/{}", first["taskId"].as_str().unwrap());
    ask(&server, "GET", &path)
        .await
        .refused(404, "task_not_found");
    let search = "/workflow/search?query=status%3DRUNNING&freeText=*";
    assert_eq!(ask(&server, "GET", search).await.json()["totalHits"], 1);
    report(&server, "a", "COMPLETED").await;
    report(&server, "b", "COMPLETED").await;
    assert_eq!(run_of(&server, &id).await["status"], "COMPLETED");
    operate(&server, "POST", "none", "restart")
        .await
        .refused(404, "run_not_found");
}

#[tokio::test]
async fn a_restart_with_the_latest_definition() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a"]).await;
    let id = start(&server, "steps").await;
    report(&server, "a", "FAILED").await;
    let second = json!({"name": "steps", "version": 2, "restartable": false, "tasks": [{"name": "b", "taskReferenceName": "b"}]});
    tell(&server, "POST", "/metadata/workflow", &second)
        .await
        .void();
    operate(&server, "POST", &id, "restart?useLatestDefinitions=true")
        .await
        .nothing();
    let run = run_of(&server, &id).await;
    assert_eq!(
        (shown(&run), &run["workflowVersion"]),
        ("RUNNING: b SCHEDULED".to_owned(), &json!(2))
    );
    report(&server, "b", "COMPLETED").await;
    operate(&server, "POST", &id, "restart")
        .await
        .refused(409, "run_not_restartable");
    // A definition that was only given with the start has no newer version.
    let own = json!({"name": "own", "workflowDef": {"name": "own", "version": 1, "tasks": [{"name": "n", "taskReferenceName": "n", "type": "NOOP"}]}});
    let id = tell(&server, "POST", "/workflow", &own).await.text();
    operate(&server, "POST", &id, "restart?useLatestDefinitions=true")
        .await
        .refused(404, "definition_not_found");
    operate(&server, "POST", &id, "restart").await.nothing();
}

#[tokio::test]
async fn a_retry_repeats_what_failed() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a", "b"]).await;
    let id = start(&server, "steps").await;
    operate(&server, "POST", &id, "retry")
        .await
        .refused(409, "run_not_ended");
    report(&server, "a", "COMPLETED").await;
    report(&server, "b", "FAILED").await;
    operate(&server, "POST", &id, "retry").await.nothing();
    let run = run_of(&server, &id).await;
    assert_eq!(shown(&run), "RUNNING: a COMPLETED, b FAILED, b SCHEDULED");
    assert_eq!(
        (&run["tasks"][1]["retried"], &run["tasks"][2]["retryCount"]),
        (&json!(true), &json!(1))
    );
    assert!(run["lastRetriedTime"].as_i64() > Some(0));
    report(&server, "b", "COMPLETED").await;
    let run = run_of(&server, &id).await;
    assert_eq!(
        (&run["status"], &run["failedReferenceTaskNames"]),
        (&json!("COMPLETED"), &json!(["b"]))
    );
    operate(&server, "POST", &id, "retry")
        .await
        .refused(409, "nothing_to_retry");
}

/// Registers `outer`, which waits for `inner`, which waits for `steps`.
async fn with_family(server: &Server) {
    with_steps(server, "steps", &["a", "b"]).await;
    for (name, child) in [("inner", "steps"), ("outer", "inner")] {
        let sub = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "retryCount": 0, "subWorkflowParam": {"name": child, "version": 1}});
        let definition = json!({"name": name, "version": 1, "tasks": [sub]});
        tell(server, "POST", "/metadata/workflow", &definition)
            .await
            .void();
    }
}

async fn child_of(server: &Server, id: &str) -> String {
    let run = run_of(server, id).await;
    let tasks = run["tasks"].as_array().expect("a member");
    tasks.last().expect("a member")["subWorkflowId"]
        .as_str()
        .expect("a member")
        .to_owned()
}

#[tokio::test]
async fn a_retry_descends_into_sub_workflows() {
    let server = Server::open().await;
    with_family(&server).await;
    let outer = start(&server, "outer").await;
    let inner = child_of(&server, &outer).await;
    let steps = child_of(&server, &inner).await;
    report(&server, "a", "COMPLETED").await;
    report(&server, "b", "FAILED").await;
    assert_eq!(shown(&run_of(&server, &outer).await), "FAILED: s FAILED");
    operate(&server, "POST", &outer, "retry?resumeSubworkflowTasks=True")
        .await
        .nothing();
    // Every ancestor is right when the call returns.
    for id in [&outer, &inner] {
        assert_eq!(shown(&run_of(&server, id).await), "RUNNING: s IN_PROGRESS");
    }
    assert_eq!(
        shown(&run_of(&server, &steps).await),
        "RUNNING: a COMPLETED, b FAILED, b SCHEDULED"
    );
    report(&server, "b", "FAILED").await;
    // Without descending, the run has another child.
    operate(&server, "POST", &outer, "retry").await.nothing();
    assert_eq!(
        shown(&run_of(&server, &outer).await),
        "RUNNING: s FAILED, s IN_PROGRESS"
    );
    assert_ne!(child_of(&server, &outer).await, inner);
    report(&server, "a", "COMPLETED").await;
    report(&server, "b", "COMPLETED").await;
    assert_eq!(run_of(&server, &outer).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_rerun_goes_on_from_a_task_of_a_sub_workflow() {
    let server = Server::open().await;
    with_family(&server).await;
    let outer = start(&server, "outer").await;
    let steps = child_of(&server, &child_of(&server, &outer).await).await;
    let task = report(&server, "a", "COMPLETED").await;
    let from = json!({"reRunFromTaskId": task["taskId"], "taskInput": {"new": true}});
    let path = format!("/workflow/{outer}/rerun");
    tell(&server, "POST", &path, &from)
        .await
        .refused(409, "run_not_ended");
    report(&server, "b", "COMPLETED").await;
    assert_eq!(tell(&server, "POST", &path, &from).await.text(), outer);
    let run = run_of(&server, &steps).await;
    assert_eq!(
        (shown(&run), &run["tasks"][0]["inputData"]),
        ("RUNNING: a SCHEDULED".to_owned(), &json!({"new": true}))
    );
    assert_eq!(run["tasks"][0]["taskId"], task["taskId"]);
    assert_eq!(
        shown(&run_of(&server, &outer).await),
        "RUNNING: s IN_PROGRESS"
    );
    report(&server, "a", "COMPLETED").await;
    report(&server, "b", "COMPLETED").await;
    assert_eq!(run_of(&server, &outer).await["status"], "COMPLETED");
    // A task of another workflow is unknown here.
    let other = start(&server, "steps").await;
    let foreign = report(&server, "a", "FAILED").await;
    let from = json!({"reRunFromTaskId": foreign["taskId"]});
    tell(&server, "POST", &path, &from)
        .await
        .refused(400, "validation_failed");
    let from = json!({"reRunFromTaskId": "none"});
    tell(&server, "POST", &path, &from)
        .await
        .refused(400, "validation_failed");
    assert_eq!(shown(&run_of(&server, &other).await), "FAILED: a FAILED");
}

#[tokio::test]
async fn a_rerun_begins_with_another_input() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a", "b"]).await;
    let id = start(&server, "steps").await;
    report(&server, "a", "COMPLETED").await;
    report(&server, "b", "COMPLETED").await;
    let path = format!("/workflow/{id}/rerun");
    let body = json!({"workflowInput": {"n": 2}, "correlationId": "c-2"});
    assert_eq!(tell(&server, "POST", &path, &body).await.text(), id);
    let run = run_of(&server, &id).await;
    assert_eq!(shown(&run), "RUNNING: a SCHEDULED");
    assert_eq!(
        (&run["input"], &run["correlationId"]),
        (&json!({"n": 2}), &json!("c-2"))
    );
    let search = "/workflow/search?query=correlationId%3D'c-2'";
    assert_eq!(ask(&server, "GET", search).await.json()["totalHits"], 1);
    tell(&server, "POST", &path, &json!({"taskInput": 7}))
        .await
        .refused(400, "validation_failed");
    tell(&server, "POST", &path, &json!({}))
        .await
        .refused(409, "run_not_ended");
}

#[tokio::test]
async fn a_task_is_skipped() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a", "b", "c"]).await;
    let id = start(&server, "steps").await;
    let skip = |reference: &str| format!("/workflow/{id}/skiptask/{reference}");
    let body = json!({"taskInput": {"i": 1}, "taskOutput": {"o": 2}});
    tell(&server, "PUT", &skip("b"), &body).await.void();
    tell(&server, "PUT", &skip("b"), &json!({}))
        .await
        .refused(409, "task_not_skippable");
    tell(&server, "PUT", &skip("a"), &json!({}))
        .await
        .refused(409, "task_not_skippable");
    tell(&server, "PUT", &skip("x"), &json!({}))
        .await
        .refused(404, "task_not_found");
    report(&server, "a", "COMPLETED").await;
    let run = run_of(&server, &id).await;
    assert_eq!(shown(&run), "RUNNING: a COMPLETED, b SKIPPED, c SCHEDULED");
    assert_eq!(
        (
            &run["tasks"][1]["inputData"],
            &run["tasks"][1]["outputData"]
        ),
        (&json!({"i": 1}), &json!({"o": 2}))
    );
    operate(&server, "PUT", &id, "pause").await.void();
    ask(&server, "PUT", &skip("c"))
        .await
        .refused(409, "run_not_active");
}

#[tokio::test]
async fn callbacks_are_reset_and_a_run_is_decided() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a"]).await;
    let id = start(&server, "steps").await;
    let task = poll(&server, "a").await;
    let mut update = update_of(&task, "IN_PROGRESS", json!({"half": true}));
    update["callbackAfterSeconds"] = json!(600);
    tell(&server, "POST", "/tasks", &update).await.text();
    operate(&server, "POST", &id, "resetcallbacks")
        .await
        .nothing();
    let again = poll(&server, "a").await;
    assert_eq!(
        (&again["taskId"], &again["pollCount"]),
        (&task["taskId"], &json!(2))
    );
    assert_eq!(
        (&again["callbackAfterSeconds"], &again["outputData"]),
        (&json!(0), &json!({"half": true}))
    );
    ask(&server, "PUT", &format!("/workflow/decide/{id}"))
        .await
        .void();
    ask(&server, "PUT", "/workflow/decide/none")
        .await
        .refused(404, "run_not_found");
    let update = update_of(&again, "COMPLETED", json!({}));
    tell(&server, "POST", "/tasks", &update).await.text();
    operate(&server, "POST", &id, "resetcallbacks")
        .await
        .refused(409, "run_not_active");
    ask(&server, "PUT", &format!("/workflow/decide/{id}"))
        .await
        .void();
}

#[tokio::test]
async fn a_run_of_another_namespace_is_not_opened() {
    let server = Server::open().await;
    with_steps(&server, "steps", &["a"]).await;
    let id = start(&server, "steps").await;
    report(&server, "a", "FAILED").await;
    let body = json!({"name": "other", "retention_days": 1});
    server
        .call("POST".parse().unwrap(), "/namespaces")
        .json(&body)
        .bytes()
        .await;
    for path in ["restart", "retry", "rerun", "resetcallbacks"] {
        let path = format!("/workflow/{id}/{path}?namespace=other");
        let sent = ask(&server, "POST", &path).await;
        assert_eq!(sent.status, 404, "{path}: {sent:?}");
    }
    assert_eq!(shown(&run_of(&server, &id).await), "FAILED: a FAILED");
}

#[tokio::test]
async fn the_tasks_of_a_restarted_workflow_are_found_and_chained() {
    let server = Server::open().await;
    with_steps(&server, "chained", &["link"]).await;
    let ids = [
        start(&server, "chained").await,
        start(&server, "chained").await,
    ];
    for _ in 0..2 {
        report(&server, "link", "COMPLETED").await;
    }
    for id in &ids {
        let path = format!("/workflow/{id}/restart");
        ask(&server, "POST", &path).await.nothing();
    }
    let search = "/tasks/search-v2?query=taskType=link%20AND%20status=SCHEDULED&sort=startTime:ASC";
    let found = ask(&server, "GET", search).await.json();
    assert_eq!(found["totalHits"], 2);
    assert_eq!(
        found["results"].as_array().map(Vec::len),
        Some(2),
        "{found}"
    );
    assert_eq!(found["results"][0]["seq"], 1);
    let first = poll(&server, "link").await;
    let update = update_of(&first, "COMPLETED", json!({}));
    let next = tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .json();
    assert_ne!(next["workflowInstanceId"], first["workflowInstanceId"]);
    let update = update_of(&next, "COMPLETED", json!({}));
    tell(&server, "POST", "/tasks/update-v2", &update)
        .await
        .nothing();
    for id in &ids {
        assert_eq!(run_of(&server, id).await["status"], "COMPLETED");
    }
}
