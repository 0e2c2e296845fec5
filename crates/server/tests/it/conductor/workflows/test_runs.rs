//! Test runs: the passes of real runs with given results, and nothing of them is stored.

use serde_json::{Value, json};

use crate::conductor::support::{ask, tell, with_hello};
use crate::support::Server;

fn trace(run: &Value) -> Vec<(String, String)> {
    let tasks = run["tasks"].as_array().expect("tasks");
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let shown = tasks.iter();
    shown
        .map(|task| (word(&task["referenceTaskName"]), word(&task["status"])))
        .collect()
}

async fn test(server: &Server, body: &Value) -> Value {
    tell(server, "POST", "/workflow/test", body).await.json()
}

#[tokio::test]
async fn a_test_run_ends_as_a_real_run_would_and_leaves_nothing() {
    let server = Server::open().await;
    with_hello(&server).await;
    let body = json!({
        "name": "hello", "input": {"n": "x"}, "correlationId": "c",
        "taskRefToMockOutput": {"greet_ref": [
            {"status": "FAILED", "output": {"try": 1}},
            {"_status": "COMPLETED", "_output": {"result": "hi"}, "queueWaitTime": 2000, "_execution_time": 3000, "_queue_wait_time": "<property>"},
        ]},
    });
    let run = test(&server, &body).await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("COMPLETED"), &json!({"g": "hi"}))
    );
    assert_eq!(
        (&run["correlationId"], &run["input"]),
        (&json!("c"), &json!({"n": "x"}))
    );
    let last = &run["tasks"][1];
    assert_eq!(
        (&last["retryCount"], &last["pollCount"]),
        (&json!(1), &json!(1))
    );
    let time = |name: &str| last[name].as_i64().expect("a time");
    assert_eq!(time("endTime") - time("startTime"), 3000);
    let id = run["workflowId"].as_str().expect("an id");
    ask(&server, "GET", &format!("/workflow/{id}"))
        .await
        .refused(404, "run_not_found");
    let task = last["taskId"].as_str().expect("an id");
    ask(&server, "GET", &format!("/tasks/{task}"))
        .await
        .refused(404, "task_not_found");
    let found = ask(&server, "GET", "/workflow/search").await.json();
    assert_eq!(found["totalHits"], 0);
    let polled = ask(&server, "GET", "/tasks/poll/batch/greet?timeout=0&count=9").await;
    assert_eq!(polled.json(), json!([]));
}

#[tokio::test]
async fn a_test_run_stops_at_a_task_without_a_result() {
    let server = Server::open().await;
    let definition = json!({"name": "w", "tasks": [
        {"name": "wait", "taskReferenceName": "wait", "type": "WAIT", "inputParameters": {"duration": "1 hour"}},
        {"name": "b", "taskReferenceName": "b"},
    ]});
    let run = test(&server, &json!({"name": "w", "workflowDef": definition})).await;
    assert_eq!(run["status"], "RUNNING");
    assert_eq!(trace(&run), [("wait".to_owned(), "IN_PROGRESS".to_owned())]);
    let mocks = json!({"wait": [{}], "none": [{}]});
    let body = json!({"name": "w", "workflowDef": definition, "taskRefToMockOutput": mocks});
    let run = test(&server, &body).await;
    assert_eq!(run["tasks"][1]["status"], "SCHEDULED");
}

#[tokio::test]
async fn large_values_scripts_and_sub_workflows_work_in_a_test_run() {
    let server = Server::open().await;
    let child =
        json!({"name": "child", "tasks": [{"name": "inner", "taskReferenceName": "inner"}]});
    tell(&server, "POST", "/metadata/workflow", &child)
        .await
        .void();
    let definition = json!({"name": "w", "tasks": [
        {"name": "a", "taskReferenceName": "a"},
        {"name": "size", "taskReferenceName": "size", "type": "SET_VARIABLE", "inputParameters": {"text": "${a.output.text}"}},
        {"name": "sub", "taskReferenceName": "sub", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}},
    ], "outputParameters": {"text": "${workflow.variables.text}", "inner": "${sub.output.n}"}});
    let text = "x".repeat(10_000);
    let body = json!({
        "name": "w", "workflowDef": definition,
        "taskRefToMockOutput": {"a": [{"output": {"text": text}}]},
        "subWorkflowTestRequest": {"sub": {"name": "child", "taskRefToMockOutput": {"inner": [{"output": {"n": 7}}]}}},
    });
    let run = test(&server, &body).await;
    assert_eq!(run["status"], "COMPLETED", "{run}");
    assert_eq!(run["output"], json!({"text": text, "inner": 7}));
    // A sub-workflow that fails fails its task.
    let failing = json!({"sub": {"name": "child", "taskRefToMockOutput": {"inner": [{"status": "FAILED_WITH_TERMINAL_ERROR"}]}}});
    let mut body = body;
    body["subWorkflowTestRequest"] = failing;
    let run = test(&server, &body).await;
    assert_eq!(
        (&run["status"], &run["tasks"][2]["status"]),
        (&json!("FAILED"), &json!("FAILED"))
    );
}

#[tokio::test]
async fn a_test_run_that_cannot_begin_is_refused() {
    let server = Server::open().await;
    with_hello(&server).await;
    for (body, status, reason) in [
        (json!({"name": "none"}), 404, "definition_not_found"),
        (json!({"name": ""}), 400, "validation_failed"),
        (
            json!({"name": "hello", "taskRefToMockOutput": {"greet_ref": [{"status": "DONE"}]}}),
            400,
            "validation_failed",
        ),
        (
            json!({"name": "hello", "taskRefToMockOutput": {"greet_ref": {}}}),
            400,
            "validation_failed",
        ),
        (
            json!({"name": "w", "workflowDef": {"name": "w", "tasks": []}}),
            400,
            "definition_invalid",
        ),
    ] {
        let refusal = tell(&server, "POST", "/workflow/test", &body).await;
        refusal.refused(status, reason);
    }
    ask(&server, "GET", "/workflow/test")
        .await
        .refused(405, "method_not_allowed");
}
