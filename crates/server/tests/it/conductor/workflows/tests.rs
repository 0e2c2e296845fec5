//! Test runs, which nothing stores.

use serde_json::json;

use crate::conductor::support::{ask, tell};
use crate::support::Server;

#[tokio::test]
async fn a_test_run_takes_its_outputs_from_the_caller_and_is_not_stored() {
    let server = Server::open().await;
    let body = json!([{"name": "t", "taskReferenceName": "t"}]);
    let definition = json!({"name": "tested", "version": 1, "tasks": [
        {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": [1, 2], "loopOver": body},
        {"name": "big", "taskReferenceName": "big", "inputParameters": {"text": "${workflow.input.text}"}},
    ], "outputParameters": {"text": "${big.output.text}", "first": "${l.output.1.t.n}"}});
    let large = "x".repeat(5000);
    let mocks = json!({
        "t__1": [{"output": {"n": 1}}],
        "t__2": [{"output": {"n": 2}, "queueWaitTime": 500, "executionTime": 1500}],
        "big": [{"status": "FAILED"}, {"output": {"text": large}}],
    });
    let request = json!({"name": "tested", "workflowDef": definition, "input": {"text": large}, "taskRefToMockOutput": mocks});
    let run = tell(&server, "POST", "/workflow/test", &request)
        .await
        .json();
    assert_eq!(run["status"], "COMPLETED", "{run}");
    assert_eq!(run["output"], json!({"text": large, "first": 1}));
    let tasks: Vec<_> = run["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["referenceTaskName"])
        .collect();
    assert_eq!(tasks, ["l", "t__1", "t__2", "big", "big"]);
    let took = run["endTime"].as_i64().unwrap() - run["createTime"].as_i64().unwrap();
    assert_eq!(took, 2000, "the clock is that of the mocks");
    let id = run["workflowId"].as_str().unwrap();
    ask(&server, "GET", &format!("/workflow/{id}"))
        .await
        .refused(404, "run_not_found");
    let found = ask(&server, "GET", "/workflow/search?query=&freeText=*")
        .await
        .json();
    assert_eq!(found["totalHits"], 0);
    assert_eq!(
        ask(&server, "GET", "/tasks/queue/all").await.json(),
        json!({})
    );
}

#[tokio::test]
async fn a_test_run_stops_where_mocks_run_out() {
    let server = Server::open().await;
    let definition = json!({"name": "tested", "version": 1, "tasks": [
        {"name": "a", "taskReferenceName": "a"}, {"name": "b", "taskReferenceName": "b"}]});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    let request = json!({"name": "tested", "taskRefToMockOutput": {"a": [{"output": {}}]}});
    let run = tell(&server, "POST", "/workflow/test", &request)
        .await
        .json();
    assert_eq!(
        (&run["status"], &run["tasks"][1]["status"]),
        (&json!("RUNNING"), &json!("SCHEDULED"))
    );
    for (request, status, reason) in [
        (json!({"name": "none"}), 404, "definition_not_found"),
        (json!({}), 400, "validation_failed"),
        (
            json!({"name": "tested", "taskRefToMockOutput": {"a": [{"status": "DONE"}]}}),
            400,
            "validation_failed",
        ),
    ] {
        tell(&server, "POST", "/workflow/test", &request)
            .await
            .refused(status, reason);
    }
}

#[tokio::test]
async fn a_test_run_that_starts_itself_ends_at_the_limit() {
    let server = Server::open().await;
    let sub = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "retryCount": 0, "subWorkflowParam": {"name": "endless", "version": 1}});
    let definition = json!({"name": "endless", "version": 1, "tasks": [sub]});
    let path = "/metadata/workflow";
    tell(&server, "POST", path, &definition).await.void();
    let request = json!({"name": "endless"});
    let run = tell(&server, "POST", "/workflow/test", &request)
        .await
        .json();
    assert_eq!(run["status"], "FAILED");
    let found = ask(&server, "GET", "/workflow/search?query=&freeText=*")
        .await
        .json();
    assert_eq!(found["totalHits"], 0, "sub-workflows are in memory too");
}
