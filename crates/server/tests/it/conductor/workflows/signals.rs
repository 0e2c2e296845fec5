//! Signals, variables and state of runs: statuses, answers of each return strategy, refusals.

use serde_json::{Value, json};

use crate::conductor::support::{ask, poll, start_hello, tell, update_of, with_hello};
use crate::support::Server;

fn wait(reference: &str) -> Value {
    json!({"name": reference, "taskReferenceName": reference, "type": "WAIT"})
}

/// Registers a parent that waits in a sub-workflow first, and then itself. Starts it and returns its id.
async fn start_tree(server: &Server) -> String {
    let child = json!({"name": "child", "tasks": [wait("inner")], "outputParameters": {"said": "${inner.output.said}"}});
    let parent = json!({"name": "parent", "tasks": [
        {"name": "sub", "taskReferenceName": "sub", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}},
        wait("outer"),
    ]});
    for definition in [child, parent] {
        let path = "/metadata/workflow?overwrite=true";
        tell(server, "POST", path, &definition).await.void();
    }
    let start = json!({"name": "parent"});
    tell(server, "POST", "/workflow", &start).await.text()
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

#[tokio::test]
async fn a_signal_reaches_the_task_that_waits_wherever_it_is_in_the_tree() {
    let server = Server::open().await;
    let id = start_tree(&server).await;
    let path = format!("/tasks/{id}/COMPLETED/signal");
    tell(&server, "POST", &path, &json!({"said": "yes"}))
        .await
        .void();
    let run = run_of(&server, &id).await;
    assert_eq!(run["tasks"][0]["status"], "COMPLETED");
    assert_eq!(run["tasks"][0]["outputData"]["said"], "yes");
    assert_eq!(run["tasks"][1]["status"], "IN_PROGRESS");
    tell(&server, "POST", &path, &json!({"last": 1}))
        .await
        .void();
    let run = run_of(&server, &id).await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("COMPLETED"), &json!({"last": 1}))
    );
    // Nothing waits any more: without an answer that is nothing, with one it is an error.
    tell(&server, "POST", &path, &json!({"late": 1}))
        .await
        .void();
    assert_eq!(run_of(&server, &id).await["output"], json!({"last": 1}));
    let refusal = tell(&server, "POST", &format!("{path}/sync"), &json!({})).await;
    let refusal = refusal.refused(404, "task_not_found");
    assert_eq!(
        refusal["message"],
        format!("Found no blocked task in workflow {id} to signal")
    );
}

#[tokio::test]
async fn a_signal_answers_in_the_form_that_was_asked_for() {
    let server = Server::open().await;
    for (strategy, shows) in [
        ("TARGET_WORKFLOW", "parent"),
        ("BLOCKING_WORKFLOW", "parent"),
        ("BLOCKING_TASK", "outer"),
        ("BLOCKING_TASK_INPUT", "outer"),
    ] {
        let id = start_tree(&server).await;
        let path = format!(
            "/tasks/{id}/COMPLETED/signal/sync?returnStrategy={strategy}&timeoutMillis=60000"
        );
        let answer = tell(&server, "POST", &path, &json!({"said": "yes"}))
            .await
            .json();
        assert_eq!(answer["responseType"], strategy);
        assert_eq!(answer["targetWorkflowId"], id);
        assert_eq!(answer["targetWorkflowStatus"], "RUNNING");
        assert_eq!(answer["signalTimeout"], false);
        if shows == "outer" {
            assert_eq!(answer["referenceTaskName"], "outer", "{answer}");
            assert_eq!(answer["taskType"], "WAIT");
        } else {
            assert_eq!(answer["workflowId"], id, "{answer}");
            assert_eq!(answer["tasks"][0]["status"], "COMPLETED", "{answer}");
        }
    }
}

#[tokio::test]
async fn a_signal_that_cannot_be_understood_changes_nothing() {
    let server = Server::open().await;
    let id = start_tree(&server).await;
    for (path, body, status, reason) in [
        (
            format!("/tasks/{id}/DONE/signal"),
            json!({}),
            400,
            "validation_failed",
        ),
        (
            format!("/tasks/{id}/COMPLETED/signal"),
            json!([]),
            400,
            "validation_failed",
        ),
        (
            format!("/tasks/{id}/COMPLETED/signal/sync?returnStrategy=LATER"),
            json!({}),
            400,
            "validation_failed",
        ),
        (
            format!("/tasks/{id}/COMPLETED/signal/sync?timeoutMillis=soon"),
            json!({}),
            400,
            "validation_failed",
        ),
        (
            "/tasks/none/COMPLETED/signal".to_owned(),
            json!({}),
            404,
            "run_not_found",
        ),
        (
            "/tasks/none/COMPLETED/signal/sync".to_owned(),
            json!({}),
            404,
            "run_not_found",
        ),
    ] {
        let refusal = tell(&server, "POST", &path, &body).await;
        refusal.refused(status, reason);
    }
    assert_eq!(
        run_of(&server, &id).await["tasks"][0]["status"],
        "IN_PROGRESS"
    );
}

#[tokio::test]
async fn a_signal_whose_run_goes_on_answers_after_its_time() {
    let server = Server::open().await;
    let definition = json!({"name": "then", "tasks": [wait("first"), {"name": "work", "taskReferenceName": "work"}]});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    let id = tell(&server, "POST", "/workflow", &json!({"name": "then"}))
        .await
        .text();
    let path = format!("/tasks/{id}/COMPLETED/signal/sync?timeoutMillis=1");
    let answer = tell(&server, "POST", &path, &json!({})).await.json();
    assert_eq!(
        (&answer["signalTimeout"], &answer["status"]),
        (&json!(true), &json!("RUNNING"))
    );
    assert_eq!(answer["tasks"][1]["status"], "SCHEDULED");
}

#[tokio::test]
async fn variables_change_while_a_run_is_open() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let path = format!("/workflow/{id}/variables");
    let run = tell(&server, "POST", &path, &json!({"a": 1})).await.json();
    assert_eq!(
        (&run["workflowId"], &run["variables"]),
        (&json!(id), &json!({"a": 1}))
    );
    assert_eq!(run["tasks"][0]["status"], "SCHEDULED");
    let run = tell(&server, "POST", &path, &json!({"b": null}))
        .await
        .json();
    assert_eq!(run["variables"], json!({"a": 1, "b": null}));
    let large = json!({"a": "x".repeat(300_000)});
    tell(&server, "POST", &path, &large)
        .await
        .refused(400, "value_too_large");
    tell(&server, "POST", &path, &json!([1]))
        .await
        .refused(400, "validation_failed");
    let task = poll(&server, "greet").await;
    tell(
        &server,
        "POST",
        "/tasks",
        &update_of(&task, "COMPLETED", json!({})),
    )
    .await
    .text();
    tell(&server, "POST", &path, &json!({"a": 2}))
        .await
        .refused(409, "run_not_active");
    let none = tell(&server, "POST", "/workflow/none/variables", &json!({})).await;
    none.refused(404, "run_not_found");
}

#[tokio::test]
async fn the_state_of_a_run_changes_as_a_whole() {
    let server = Server::open().await;
    let definition = json!({"name": "stateful", "tasks": [wait("first"), wait("second")]});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    let id = tell(&server, "POST", "/workflow", &json!({"name": "stateful"}))
        .await
        .text();
    let path = format!("/workflow/{id}/state?requestId=r-1&waitForSeconds=60");
    let result = |status: &str| json!({"status": status, "outputData": {"x": 1}});
    let unknown = json!({"taskReferenceName": "none", "taskResult": result("COMPLETED"), "variables": {"v": 1}});
    let refusal = tell(&server, "POST", &path, &unknown)
        .await
        .refused(404, "task_not_found");
    assert_eq!(
        refusal["message"],
        format!("Found no running task none of workflow {id} to update")
    );
    for body in [
        json!({"taskReferenceName": "first"}),
        json!({"taskResult": result("COMPLETED")}),
        json!({"taskReferenceName": "first", "taskResult": result("DONE")}),
        json!({"taskReferenceName": "first", "taskResult": {}}),
    ] {
        let refusal = tell(&server, "POST", &path, &body).await;
        refusal.refused(400, "validation_failed");
    }
    assert_eq!(run_of(&server, &id).await["variables"], json!({}));
    let body = json!({"taskReferenceName": "first", "taskResult": result("COMPLETED"), "variables": {"v": 1}});
    let run = tell(&server, "POST", &path, &body).await.json();
    assert_eq!(
        (&run["requestId"], &run["variables"]),
        (&json!("r-1"), &json!({"v": 1}))
    );
    assert_eq!(
        (&run["status"], &run["tasks"][0]["outputData"]),
        (&json!("RUNNING"), &json!({"x": 1}))
    );
    let run = tell(&server, "POST", &path, &json!({"variables": {"v": 2}}))
        .await
        .json();
    assert_eq!(run["variables"], json!({"v": 2}));
    ask(&server, "DELETE", &format!("/workflow/{id}"))
        .await
        .void();
    tell(&server, "POST", &path, &json!({"variables": {"v": 3}}))
        .await
        .refused(409, "run_not_active");
}

#[tokio::test]
async fn a_signal_passes_over_the_runs_of_code_that_a_workflow_started() {
    let server = Server::open().await;
    let code = json!({"name": "code", "taskReferenceName": "code", "type": "DURABLE_WORKFLOW",
        "inputParameters": {"workflowType": "greet", "taskQueue": "greetings"}});
    let fork = json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [
            [code], [{"name": "sub", "taskReferenceName": "sub", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}}]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["code", "sub"]},
    ]);
    for (name, tasks) in [("child", json!([wait("inner")])), ("calls", fork)] {
        let definition = json!({"name": name, "tasks": tasks});
        tell(&server, "POST", "/metadata/workflow", &definition)
            .await
            .void();
    }
    let id = tell(&server, "POST", "/workflow", &json!({"name": "calls"}))
        .await
        .text();
    let path = format!("/tasks/{id}/COMPLETED/signal");
    tell(&server, "POST", &path, &json!({"a": 1})).await.void();
    let run = run_of(&server, &id).await;
    let status = |reference: &str| {
        let tasks = run["tasks"].as_array().expect("tasks");
        let mut tasks = tasks.iter();
        let task = tasks.find(|task| task["referenceTaskName"] == reference);
        task.expect("a task")["status"].clone()
    };
    assert_eq!(status("code"), "IN_PROGRESS");
    assert_eq!(status("sub"), "COMPLETED");
    // Only the run of code is open now.
    tell(&server, "POST", &path, &json!({})).await.void();
    tell(&server, "POST", &format!("{path}/sync"), &json!({}))
        .await
        .refused(404, "task_not_found");
}
