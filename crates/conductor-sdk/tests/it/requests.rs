//! Method, path, query and body of every request, and the forms of answers that servers send.

use std::time::Duration;

use longhaul_conductor_sdk::client::{Correlated, Execute, Executed, Poll, SearchQuery, TaskPage};
use longhaul_conductor_sdk::model::{
    Object, ResultStatus, ReturnStrategy, SchemaDef, StartWorkflowRequest, TaskDef, TaskResult,
    TaskStatus, WorkflowDef,
};
use longhaul_conductor_sdk::transport::{RequestError, RequestRetry};
use longhaul_conductor_sdk::{Client, Configuration};
use serde_json::json;

use crate::recording::Recording;

fn client() -> (Client, Recording) {
    let recording = Recording::default();
    let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
    (Client::over(&configuration, recording.clone()), recording)
}

fn object(value: serde_json::Value) -> Object {
    value.as_object().unwrap().clone()
}

#[tokio::test]
async fn tasks_are_polled_with_every_parameter_that_is_set() {
    let (client, recording) = client();
    let tasks = client.tasks();
    let full = Poll::new("a/b c")
        .worker_id("w 1")
        .domain("eu")
        .count(7)
        .timeout(Duration::from_millis(250));
    recording.answer(
        200,
        r#"[{"taskId":"1","inputData":{"deep":[null]}},{"taskId":"2"}]"#,
    );
    let found = tasks.batch_poll(&full).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].input_data["deep"], json!([null]));
    // No body is no task.
    assert!(
        tasks
            .batch_poll(&Poll::new("t").domain(""))
            .await
            .unwrap()
            .is_empty()
    );
    recording.answer(204, "");
    assert!(tasks.poll(&full).await.unwrap().is_none());
    assert_eq!(
        recording.lines(),
        [
            "GET /api/tasks/poll/batch/a%2Fb%20c?workerid=w%201&domain=eu&count=7&timeout=250",
            "GET /api/tasks/poll/batch/t?count=1&timeout=100",
            "GET /api/tasks/poll/a%2Fb%20c?workerid=w%201&domain=eu",
        ]
    );
}

#[tokio::test]
async fn tasks_are_reported_and_read() {
    let (client, recording) = client();
    let tasks = client.tasks();
    let result = TaskResult {
        task_id: "1".to_owned(),
        workflow_instance_id: "w".to_owned(),
        status: Some(ResultStatus::Completed),
        output_data: object(json!({"a": null})),
        ..TaskResult::default()
    };
    recording.answer(200, "1");
    tasks.update(&result).await.unwrap();
    recording.answer(204, "");
    assert!(tasks.update_and_poll(&result).await.unwrap().is_none());
    recording.answer(200, r#"{"taskId":"2"}"#);
    assert_eq!(
        tasks
            .update_and_poll(&result)
            .await
            .unwrap()
            .unwrap()
            .task_id,
        "2"
    );
    let sent = recording.lines();
    let body = concat!(
        r#"{"workflowInstanceId":"w","taskId":"1","callbackAfterSeconds":0,"status":"COMPLETED","#,
        r#""outputData":{"a":null},"logs":[],"extendLease":false,"supportsCancellation":false}"#
    );
    assert_eq!(sent[0], format!("POST /api/tasks {body}"));
    assert_eq!(sent[1], format!("POST /api/tasks/update-v2 {body}"));

    let output = object(json!({"ok": true}));
    recording.answer(200, "\"task 1\"");
    let updated = tasks.update_by_reference("w", "ref", ResultStatus::Completed, &output);
    assert_eq!(updated.await.unwrap(), "task 1");
    recording.answer(200, r#"{"workflowId":"w"}"#);
    let updated = tasks.update_by_reference_sync("w", "ref", ResultStatus::Failed, &output);
    assert_eq!(updated.await.unwrap().workflow_id, "w");
    tasks.add_log("1", "a \"line\"").await.unwrap();
    recording.answer(200, r#"[{"log":"x","createdTime":1700000000000}]"#);
    assert_eq!(tasks.logs("1").await.unwrap()[0].log, "x");
    recording.answer(204, "");
    assert!(tasks.logs("1").await.unwrap().is_empty());
    recording.answer(200, r#"{"taskId":"1"}"#);
    tasks.get("1").await.unwrap();
    recording.answer(200, r#"{"a":1,"b":0}"#);
    assert_eq!(tasks.queue_sizes(&["a", "b"]).await.unwrap()["a"], 1);
    recording.answer(200, r#"[{"queueName":"a","lastPollTime":1}]"#);
    tasks.poll_data("a").await.unwrap();
    assert_eq!(
        recording.lines(),
        [
            r#"POST /api/tasks/w/ref/COMPLETED {"ok":true}"#,
            r#"POST /api/tasks/w/ref/FAILED/sync {"ok":true}"#,
            r#"POST /api/tasks/1/log a "line""#,
            "GET /api/tasks/1/log",
            "GET /api/tasks/1/log",
            "GET /api/tasks/1",
            "GET /api/tasks/queue/sizes?taskType=a&taskType=b",
            "GET /api/tasks/queue/polldata?taskType=a",
        ]
    );
}

#[tokio::test]
async fn definitions_and_schemas_are_registered_and_read() {
    let (client, recording) = client();
    let metadata = client.metadata();
    let task = TaskDef {
        name: "t".to_owned(),
        ..TaskDef::default()
    };
    let workflow = WorkflowDef {
        name: "w".to_owned(),
        ..WorkflowDef::default()
    };
    metadata
        .register_tasks(std::slice::from_ref(&task))
        .await
        .unwrap();
    metadata.update_task(&task).await.unwrap();
    metadata.delete_task("t").await.unwrap();
    metadata.register_workflow(&workflow).await.unwrap();
    metadata
        .register_or_replace_workflow(&workflow)
        .await
        .unwrap();
    metadata.validate_workflow(&workflow).await.unwrap();
    metadata.delete_workflow("w", 2).await.unwrap();
    for answer in [
        r#"{"name":"t"}"#,
        "[]",
        r#"{"name":"w"}"#,
        r#"{"name":"w"}"#,
        "[]",
    ] {
        recording.answer(200, answer);
    }
    metadata.task("t").await.unwrap();
    metadata.tasks().await.unwrap();
    metadata.workflow("w", Some(2)).await.unwrap();
    metadata.workflow("w", None).await.unwrap();
    metadata.workflows().await.unwrap();
    let schemas = client.schemas();
    let schema = SchemaDef {
        name: "s".to_owned(),
        ..SchemaDef::default()
    };
    schemas.register(&schema).await.unwrap();
    schemas.register_new_version(&schema).await.unwrap();
    schemas.delete("s", None).await.unwrap();
    schemas.delete("s", Some(1)).await.unwrap();
    for answer in [r#"{"name":"s"}"#, r#"{"name":"s"}"#, "[]"] {
        recording.answer(200, answer);
    }
    schemas.get("s", None).await.unwrap();
    schemas.get("s", Some(3)).await.unwrap();
    schemas.list().await.unwrap();
    let sent: Vec<_> = recording
        .lines()
        .into_iter()
        .map(|line| {
            line.split(" {")
                .next()
                .unwrap()
                .split(" [")
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        sent,
        [
            "POST /api/metadata/taskdefs",
            "PUT /api/metadata/taskdefs",
            "DELETE /api/metadata/taskdefs/t",
            "POST /api/metadata/workflow",
            "POST /api/metadata/workflow?overwrite=true",
            "POST /api/metadata/workflow/validate",
            "DELETE /api/metadata/workflow/w/2",
            "GET /api/metadata/taskdefs/t",
            "GET /api/metadata/taskdefs",
            "GET /api/metadata/workflow/w?version=2",
            "GET /api/metadata/workflow/w",
            "GET /api/metadata/workflow",
            "POST /api/schema",
            "POST /api/schema?newVersion=true",
            "DELETE /api/schema/s",
            "DELETE /api/schema/s/1",
            "GET /api/schema/s",
            "GET /api/schema/s/3",
            "GET /api/schema",
        ]
    );
}

#[tokio::test]
async fn workflows_are_started_read_and_controlled() {
    let (client, recording) = client();
    let workflows = client.workflows();
    let request = StartWorkflowRequest {
        name: "order".to_owned(),
        input: object(json!({"id": 7})),
        ..StartWorkflowRequest::default()
    };
    // Some servers send the id as it is, some as JSON.
    for answer in ["an-id", "\"an-id\""] {
        recording.answer(200, answer);
        assert_eq!(workflows.start(&request).await.unwrap(), "an-id");
    }
    assert_eq!(
        recording.lines()[0],
        r#"POST /api/workflow {"name":"order","input":{"id":7},"taskToDomain":{},"priority":0}"#
    );
    recording.answer(
        200,
        r#"{"responseType":"TARGET_WORKFLOW","targetWorkflowId":"x","workflowId":"x"}"#,
    );
    let executed = workflows.execute(&request, &Execute::new()).await.unwrap();
    assert_eq!(executed.workflow_id(), "x");
    recording.answer(
        200,
        r#"{"responseType":"BLOCKING_TASK","targetWorkflowId":"x","taskId":"t","referenceTaskName":"r"}"#,
    );
    let options = Execute::new()
        .wait(Duration::from_millis(1500))
        .until("a")
        .until("b")
        .request_id("q")
        .returns(ReturnStrategy::BlockingTask);
    let executed = workflows.execute(&request, &options).await.unwrap();
    assert!(matches!(executed, Executed::Task(task) if task.reference_task_name == "r"));
    for answer in [
        r#"{"workflowId":"x"}"#,
        r#"{"workflowId":"x"}"#,
        r#"{"workflowId":"x","status":"PAUSED"}"#,
        r#"{"totalHits":1,"results":[{"taskId":"t"}]}"#,
        r#"["x"]"#,
        r#"{"c":[{"workflowId":"x"}]}"#,
        r#"{"totalHits":7,"results":[{"workflowId":"x"}]}"#,
    ] {
        recording.answer(200, answer);
    }
    workflows.get("x").await.unwrap();
    workflows.get_without_tasks("x").await.unwrap();
    workflows.status("x").await.unwrap();
    let page = TaskPage {
        statuses: vec![TaskStatus::Scheduled, TaskStatus::Failed],
        ..TaskPage::default()
    };
    assert_eq!(workflows.tasks("x", &page).await.unwrap().results.len(), 1);
    workflows.running("order", 1).await.unwrap();
    workflows
        .correlated("order", &["c"], Correlated::default())
        .await
        .unwrap();
    let query = SearchQuery::new("status IN (FAILED)")
        .free_text("Ada")
        .sort("startTime:DESC")
        .page(20, 10);
    assert_eq!(workflows.search(&query).await.unwrap().total_hits, 7);
    workflows.pause("x").await.unwrap();
    workflows.resume("x").await.unwrap();
    workflows.terminate("x", Some("too late")).await.unwrap();
    workflows.terminate("x", None).await.unwrap();
    workflows.terminate_as_failed("x", None).await.unwrap();
    let sent: Vec<_> = recording
        .lines()
        .into_iter()
        .map(|line| line.split(" {").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        sent,
        [
            "POST /api/workflow/execute/order/0?waitForSeconds=10&returnStrategy=TARGET_WORKFLOW",
            "POST /api/workflow/execute/order/0?requestId=q&waitUntilTaskRef=a%2Cb&waitForSeconds=2&returnStrategy=BLOCKING_TASK",
            "GET /api/workflow/x?includeTasks=true",
            "GET /api/workflow/x?includeTasks=false",
            "GET /api/workflow/x/status?includeOutput=true&includeVariables=true",
            "GET /api/workflow/x/tasks?start=0&count=15&status=SCHEDULED&status=FAILED",
            "GET /api/workflow/running/order?version=1",
            r#"POST /api/workflow/order/correlated?includeClosed=false&includeTasks=false ["c"]"#,
            "GET /api/workflow/search?start=20&size=10&sort=startTime:DESC&freeText=Ada&query=status%20IN%20%28FAILED%29",
            "PUT /api/workflow/x/pause",
            "PUT /api/workflow/x/resume",
            "DELETE /api/workflow/x?reason=too%20late",
            "DELETE /api/workflow/x",
            "DELETE /api/workflow/x?triggerFailureWorkflow=true",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn only_safe_requests_are_repeated() {
    let recording = Recording::default();
    let configuration = Configuration::new("http://unused").retry(RequestRetry::new(3));
    let client = Client::over(&configuration, recording.clone());
    let failing = || (0..3).for_each(|_| recording.answer(502, "bad gateway"));
    let request = StartWorkflowRequest::default();
    failing();
    client.workflows().start(&request).await.unwrap_err();
    assert_eq!(recording.lines().len(), 1, "a start may have had an effect");
    let keyed = StartWorkflowRequest {
        idempotency_key: Some("k".to_owned()),
        ..StartWorkflowRequest::default()
    };
    recording.answer(502, "");
    client.workflows().start(&keyed).await.unwrap_err();
    let again = recording.lines().len();
    assert_eq!(again, 3, "a start with a key has one effect");
    let recording = Recording::default();
    let client = Client::over(&configuration, recording.clone());
    (0..3).for_each(|_| recording.answer(503, ""));
    client
        .tasks()
        .batch_poll(&Poll::new("t"))
        .await
        .unwrap_err();
    assert_eq!(recording.lines().len(), 1, "a poll may have taken tasks");
}

#[tokio::test]
async fn answers_that_are_not_valid_are_errors_that_say_why() {
    let (client, recording) = client();
    for (body, why) in [
        ("", "EOF"),
        ("<html>", "expected value"),
        (r#"{"workflowId":[]}"#, "workflowId: must be text"),
        ("null", "must not be null"),
    ] {
        recording.answer(200, body);
        let error = client.workflows().get("x").await.unwrap_err();
        assert!(matches!(error, RequestError::Malformed(_)), "{body}");
        assert!(error.to_string().contains(why), "{body}: {error}");
    }
    let error = client.workflows().get("..").await.unwrap_err();
    assert_eq!(error.to_string(), "\"..\" cannot be an id or a name");
}
