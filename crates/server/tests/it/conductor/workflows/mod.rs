//! Definition runs: start, execute, read, pause, resume, terminate.

mod removal;
mod reopening;
mod signals;
mod test_runs;

use serde_json::{Value, json};

use super::support::{ask, call, poll, send, start_hello, tell, update_of, with_hello};
use crate::support::Server;

/// A definition that waits for a caller.
fn waiting() -> Value {
    json!({"name": "waiting", "tasks": [
        {"name": "wait", "taskReferenceName": "wait_ref", "type": "WAIT"},
    ]})
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

#[tokio::test]
async fn a_run_starts_by_request_by_name_and_with_its_own_definition() {
    let server = Server::open().await;
    with_hello(&server).await;
    let start = json!({
        "name": "hello", "version": 1, "input": {"n": "ü"}, "correlationId": "c-1", "priority": 7,
        "taskToDomain": {}, "idempotencyStrategy": "FAIL",
    });
    let id = tell(&server, "POST", "/workflow", &start).await.text();
    let run = run_of(&server, &id).await;
    assert_eq!(run["input"], json!({"n": "ü"}));
    assert_eq!(
        (&run["correlationId"], &run["priority"]),
        (&json!("c-1"), &json!(7))
    );
    let path = "/workflow/hello?version=1&correlationId=c-2&priority=3";
    let id = tell(&server, "POST", path, &json!({"n": 2})).await.text();
    let run = run_of(&server, &id).await;
    assert_eq!(
        (&run["input"], &run["correlationId"]),
        (&json!({"n": 2}), &json!("c-2"))
    );
    // Without a body.
    let id = ask(&server, "POST", "/workflow/hello").await.text();
    assert_eq!(run_of(&server, &id).await["input"], json!({}));
    let start = json!({"name": "own", "workflowDef": {"name": "own", "version": 3, "tasks": waiting()["tasks"]}});
    let id = tell(&server, "POST", "/workflow", &start).await.text();
    let run = run_of(&server, &id).await;
    assert_eq!(
        (&run["workflowName"], &run["workflowVersion"]),
        (&json!("own"), &json!(3))
    );
    // It is not registered.
    ask(&server, "GET", "/metadata/workflow/own")
        .await
        .refused(404, "definition_not_found");
}

#[tokio::test]
async fn a_start_that_is_refused_begins_nothing() {
    let server = Server::open().await;
    with_hello(&server).await;
    for (body, message) in [
        (
            json!({"name": "none"}),
            "No such workflow defined. name=none, version=null",
        ),
        (
            json!({"name": "hello", "version": 9}),
            "No such workflow defined. name=hello, version=9",
        ),
    ] {
        let refusal = tell(&server, "POST", "/workflow", &body)
            .await
            .refused(404, "definition_not_found");
        assert_eq!(refusal["message"], message);
    }
    for (path, message) in [
        (
            "/workflow/none",
            "No such workflow found by name: none, version: null",
        ),
        (
            "/workflow/hello?version=9",
            "No such workflow found by name: hello, version: 9",
        ),
    ] {
        let refusal = tell(&server, "POST", path, &json!({}))
            .await
            .refused(404, "definition_not_found");
        assert_eq!(refusal["message"], message);
    }
    tell(&server, "POST", "/workflow/none", &json!({}))
        .await
        .refused(404, "definition_not_found");
    tell(&server, "POST", "/workflow/execute/none/1", &json!({}))
        .await
        .refused(404, "definition_not_found");
    for (path, body) in [
        ("/workflow", json!({"name": ""})),
        ("/workflow", json!({"input": {}})),
        ("/workflow", json!({"name": "hello", "priority": 100})),
        ("/workflow", json!({"name": "hello", "input": 5})),
        ("/workflow/hello?priority=-1", json!({})),
        ("/workflow/hello?version=x", json!({})),
        ("/workflow/execute/hello/x", json!({"name": "hello"})),
        (
            "/workflow/execute/hello/1?returnStrategy=LATER",
            json!({"name": "hello"}),
        ),
        (
            "/workflow/execute/hello/1?waitForSeconds=soon",
            json!({"name": "hello"}),
        ),
    ] {
        let answer = tell(&server, "POST", path, &body).await;
        answer.refused(400, "validation_failed");
    }
    let invalid = json!({"name": "own", "workflowDef": {"name": "own", "tasks": []}});
    tell(&server, "POST", "/workflow", &invalid)
        .await
        .refused(400, "definition_invalid");
    let polled = ask(&server, "GET", "/tasks/poll/batch/greet?timeout=0&count=10").await;
    assert_eq!(polled.json(), json!([]));
}

#[tokio::test]
async fn an_execution_answers_when_it_ends_or_blocks() {
    let server = Server::open().await;
    tell(&server, "POST", "/metadata/workflow", &waiting())
        .await
        .void();
    let path = "/workflow/execute/waiting/0?requestId=r-1&waitForSeconds=10&waitUntilTaskRef=&consistency=DURABLE";
    let body = json!({"name": "waiting", "input": {"a": 1}});
    let run = tell(&server, "POST", path, &body).await.json();
    assert_eq!(
        (&run["responseType"], &run["requestId"]),
        (&json!("TARGET_WORKFLOW"), &json!("r-1"))
    );
    assert_eq!(run["targetWorkflowId"], run["workflowId"]);
    assert_eq!(
        (&run["status"], &run["signalTimeout"]),
        (&json!("RUNNING"), &json!(false))
    );
    assert_eq!(run["tasks"][0]["referenceTaskName"], "wait_ref");
    let path = "/workflow/execute/waiting/1?returnStrategy=BLOCKING_TASK&requestId=None";
    let task = tell(&server, "POST", path, &body).await.json();
    assert_eq!(
        (&task["responseType"], &task["referenceTaskName"]),
        (&json!("BLOCKING_TASK"), &json!("wait_ref"))
    );
    let id = task["workflowId"].as_str().unwrap();
    let path = format!("/tasks/{id}/wait_ref/COMPLETED");
    let task_id = tell(&server, "POST", &path, &json!({"ok": true}))
        .await
        .text();
    assert_eq!(task_id, task["taskId"].as_str().unwrap());
    let run = run_of(&server, id).await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("COMPLETED"), &json!({"ok": true}))
    );
    let refusal = tell(&server, "POST", &path, &json!({}))
        .await
        .refused(404, "task_not_found");
    assert_eq!(
        refusal["message"],
        format!("Found no running task wait_ref of workflow {id} to update")
    );
}

#[tokio::test]
async fn a_run_is_read_with_and_without_its_tasks_in_parts_and_as_a_status() {
    let server = Server::open().await;
    with_hello(&server).await;
    let start = json!({"name": "hello", "input": {"n": 1}, "correlationId": "c"});
    let id = tell(&server, "POST", "/workflow", &start).await.text();
    let run = ask(
        &server,
        "GET",
        &format!("/workflow/{id}?includeTasks=False"),
    )
    .await
    .json();
    assert_eq!(run["tasks"], json!([]));
    assert_eq!(run["workflowId"], id);
    let status = ask(&server, "GET", &format!("/workflow/{id}/status"))
        .await
        .json();
    assert_eq!(
        status,
        json!({"workflowId": id, "correlationId": "c", "status": "RUNNING"})
    );
    let task = poll(&server, "greet").await;
    let done = update_of(&task, "COMPLETED", json!({"result": "hi"}));
    assert_eq!(
        tell(&server, "POST", "/tasks", &done).await.text(),
        task["taskId"].as_str().unwrap()
    );
    let path = format!("/workflow/{id}/status?includeOutput=true&includeVariables=true");
    let status = ask(&server, "GET", &path).await.json();
    assert_eq!(
        (&status["output"], &status["variables"]),
        (&json!({"g": "hi"}), &json!({}))
    );
    let tasks = ask(&server, "GET", &format!("/workflow/{id}/tasks"))
        .await
        .json();
    assert_eq!(
        (&tasks["totalHits"], &tasks["results"][0]["taskId"]),
        (&json!(1), &task["taskId"])
    );
    for path in [
        "/workflow/none",
        "/workflow/none/status",
        "/workflow/none/tasks",
    ] {
        let refusal = ask(&server, "GET", path)
            .await
            .refused(404, "run_not_found");
        assert_eq!(refusal["message"], "No such workflow found by id: none");
    }
    ask(&server, "GET", &format!("/workflow/{id}?includeTasks=some"))
        .await
        .refused(400, "validation_failed");
    ask(&server, "GET", &format!("/workflow/{id}/tasks?count=all"))
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn a_run_is_paused_resumed_and_terminated() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let change = |method: &'static str, rest: &'static str| {
        let path = format!("/workflow/{id}{rest}");
        let server = &server;
        async move { ask(server, method, &path).await }
    };
    change("PUT", "/resume")
        .await
        .refused(409, "run_not_paused");
    change("PUT", "/pause").await.void();
    change("PUT", "/pause").await.void();
    assert_eq!(run_of(&server, &id).await["status"], "PAUSED");
    change("PUT", "/resume").await.void();
    assert_eq!(run_of(&server, &id).await["status"], "RUNNING");
    change("DELETE", "?reason=enough").await.void();
    let run = run_of(&server, &id).await;
    assert_eq!(
        (&run["status"], &run["reasonForIncompletion"]),
        (&json!("TERMINATED"), &json!("enough"))
    );
    assert_eq!(run["tasks"][0]["status"], "CANCELED");
    assert_eq!(change("PUT", "/pause").await.status, 409);
    assert_eq!(change("PUT", "/resume").await.status, 409);
    for (method, path) in [
        ("DELETE", "/workflow/none"),
        ("PUT", "/workflow/none/pause"),
        ("PUT", "/workflow/none/resume"),
    ] {
        ask(&server, method, path)
            .await
            .refused(404, "run_not_found");
    }
    // A completed run cannot be terminated.
    let id = start_hello(&server, json!({})).await;
    let task = poll(&server, "greet").await;
    tell(
        &server,
        "POST",
        "/tasks",
        &update_of(&task, "COMPLETED", json!({})),
    )
    .await
    .text();
    assert_eq!(
        ask(&server, "DELETE", &format!("/workflow/{id}"))
            .await
            .status,
        409
    );
    assert_eq!(run_of(&server, &id).await["status"], "COMPLETED");
}

/// A named task is found in a sub-workflow, also if it ended together with it.
#[tokio::test]
async fn an_execution_waits_for_a_task_that_ends_its_sub_workflow() {
    let server = Server::open().await;
    for definition in [
        json!({"name": "child", "tasks": [{"name": "n", "taskReferenceName": "n", "type": "NOOP"}]}),
        json!({"name": "parent", "tasks": [
            {"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}},
            {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": [1], "loopOver": [
                {"name": "m", "taskReferenceName": "m", "type": "NOOP"}]},
            {"name": "h", "taskReferenceName": "h", "type": "HUMAN"}]}),
    ] {
        let path = "/metadata/workflow?overwrite=true";
        tell(&server, "POST", path, &definition).await.void();
    }
    for reference in ["n", "m", "m__1"] {
        let path =
            format!("/workflow/execute/parent/1?waitForSeconds=60&waitUntilTaskRef={reference}");
        let run = tell(&server, "POST", &path, &json!({})).await.json();
        assert_eq!(run["signalTimeout"], false, "{reference}");
        assert_eq!(run["status"], "RUNNING", "{reference}");
        // The answer has an id also if the request has none.
        assert!(run["requestId"].is_string(), "{run}");
    }
}

#[tokio::test]
async fn member_names_of_the_parser_are_refused() {
    let server = Server::open().await;
    with_hello(&server).await;
    for name in [
        "$serde_json::private::RawValue",
        "\\u0024serde_json::private::Number",
    ] {
        let body = format!(r#"{{"name":"hello","input":{{"x":{{"{name}":"[1]"}}}}}}"#);
        for path in ["/workflow", "/workflow/hello"] {
            let call = call(&server, "POST", path).raw(body.clone());
            let refusal = send(call).await.refused(400, "validation_failed");
            let message = refusal["message"].as_str().unwrap();
            assert!(message.contains("is reserved"), "{message}");
        }
    }
}
