//! The forms in which servers answer. Servers differ in them, and every form of an answer is read alike.

use longhaul_conductor_sdk::client::{Correlated, Execute, Poll};
use longhaul_conductor_sdk::model::{Object, ResultStatus, StartWorkflowRequest, TaskResult};
use longhaul_conductor_sdk::transport::RequestRetry;
use longhaul_conductor_sdk::{Client, Configuration};
use serde_json::json;

use crate::recording::Recording;

/// What servers send if there is nothing.
const NOTHING: [(u16, &str); 4] = [(204, ""), (200, ""), (200, " \n"), (200, "null")];

fn client() -> (Client, Recording) {
    let recording = Recording::default();
    let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
    (Client::over(&configuration, recording.clone()), recording)
}

#[tokio::test]
async fn ids_come_as_text_or_as_json() {
    let (client, recording) = client();
    let (workflows, request) = (client.workflows(), StartWorkflowRequest::new("w"));
    for answer in ["an-id", "\"an-id\""] {
        recording.answer(200, answer);
        let started = workflows.start(&request).await.unwrap();
        assert_eq!(started, "an-id", "{answer}");
        recording.answer(200, answer);
        let (tasks, none) = (client.tasks(), Object::new());
        let updated = tasks.update_by_reference("w", "r", ResultStatus::Completed, &none);
        assert_eq!(updated.await.unwrap(), "an-id", "{answer}");
    }
    // Text is not read as a number.
    recording.answer(200, "12345678901234567890");
    let started = workflows.start(&request).await.unwrap();
    assert_eq!(started, "12345678901234567890");
}

#[tokio::test]
async fn an_accepted_report_is_no_error_whatever_the_answer_is() {
    let (client, recording) = client();
    let (tasks, result) = (client.tasks(), TaskResult::default());
    let others = [
        (200, "a-task-id"),
        (200, "\"a-task-id\""),
        (200, "COMPLETED"),
        (200, "{}"),
        (200, r#"{"status": "ok"}"#),
        (200, r#"{"taskId": []}"#),
        (200, "[]"),
        (200, "<html>"),
        (200, r#"{"taskId": "#),
    ];
    for (status, body) in NOTHING.into_iter().chain(others) {
        recording.answer(status, body);
        tasks.update(&result).await.unwrap();
        recording.answer(status, body);
        let next = tasks.update_and_poll(&result).await.unwrap();
        assert!(next.is_none(), "{body}");
    }
    recording.answer(200, r#"{"taskId": "a", "workflowInstanceId": "w"}"#);
    tasks.update(&result).await.unwrap();
    recording.answer(200, r#" {"taskId": "a", "workflowInstanceId": "w"}"#);
    let next = tasks.update_and_poll(&result).await.unwrap().unwrap();
    assert_eq!((&*next.task_id, &*next.workflow_instance_id), ("a", "w"));
}

#[tokio::test]
async fn a_poll_without_tasks_is_empty_in_every_form() {
    let (client, recording) = client();
    let (tasks, poll) = (client.tasks(), Poll::new("t"));
    // A task without an id is none.
    for (status, body) in NOTHING.into_iter().chain([(200, "[]"), (200, "[{}]")]) {
        recording.answer(status, body);
        assert!(tasks.batch_poll(&poll).await.unwrap().is_empty(), "{body}");
    }
    for (status, body) in NOTHING.into_iter().chain([(200, "{}")]) {
        recording.answer(status, body);
        assert!(tasks.poll(&poll).await.unwrap().is_none(), "{body}");
    }
    recording.answer(200, r#"[{"taskId": "a"}, {"status": "SCHEDULED"}]"#);
    let polled = tasks.batch_poll(&poll).await.unwrap();
    assert_eq!((polled.len(), &*polled[0].task_id), (1, "a"));
}

#[tokio::test]
async fn an_empty_list_may_be_nothing() {
    let (client, recording) = client();
    let (tasks, metadata, workflows) = (client.tasks(), client.metadata(), client.workflows());
    for (status, body) in NOTHING {
        for _ in 0..8 {
            recording.answer(status, body);
        }
        assert!(tasks.logs("t").await.unwrap().is_empty());
        assert!(tasks.poll_data("t").await.unwrap().is_empty());
        assert!(tasks.queue_sizes(&["t"]).await.unwrap().is_empty());
        assert!(metadata.tasks().await.unwrap().is_empty());
        assert!(metadata.workflows().await.unwrap().is_empty());
        assert!(client.schemas().list().await.unwrap().is_empty());
        assert!(workflows.running("w", 1).await.unwrap().is_empty());
        let found = workflows.correlated("w", &["c"], Correlated::default());
        assert!(found.await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_request_without_an_answer_ignores_what_it_gets() {
    let (client, recording) = client();
    let (metadata, workflows) = (client.metadata(), client.workflows());
    for body in ["", "null", "{}", "[]", "true", "order", "<html>"] {
        for _ in 0..6 {
            recording.answer(200, body);
        }
        metadata.register_tasks(&[]).await.unwrap();
        metadata.update_task(&Default::default()).await.unwrap();
        client
            .schemas()
            .register(&Default::default())
            .await
            .unwrap();
        client.tasks().add_log("t", "a line").await.unwrap();
        workflows.pause("w").await.unwrap();
        workflows.terminate("w", None).await.unwrap();
    }
}

#[tokio::test]
async fn an_executed_workflow_has_its_id_in_either_form() {
    let (client, recording) = client();
    for answer in [
        json!({"responseType": "TARGET_WORKFLOW", "targetWorkflowId": "w", "workflowId": "w"}),
        json!({"responseType": "BLOCKING_WORKFLOW", "targetWorkflowId": "w", "workflowId": "child"}),
        json!({"responseType": "BLOCKING_TASK", "targetWorkflowId": "w", "workflowId": "w",
            "taskId": "t", "referenceTaskName": "r"}),
        // Servers without the choice show the workflow.
        json!({"workflowId": "w", "status": "COMPLETED", "output": {}, "tasks": []}),
    ] {
        recording.answer(200, answer.to_string());
        let request = StartWorkflowRequest::new("w");
        let executed = client.workflows().execute(&request, &Execute::new()).await;
        assert_eq!(executed.unwrap().workflow_id(), "w", "{answer}");
    }
}

#[tokio::test]
async fn members_that_are_null_or_unknown_are_read() {
    let (client, recording) = client();
    // Every member that the guide lists, some that are null, and one that no server has yet.
    let full = json!([{
        "taskId": "t", "taskDefName": "charge", "taskType": "charge", "workflowInstanceId": "w",
        "inputData": {"nested": {"list": [1, null, {"deep": null}]}, "none": null},
        "status": "IN_PROGRESS", "pollCount": 2, "callbackAfterSeconds": 30,
        "responseTimeoutSeconds": 60, "retryCount": 1, "outputData": null, "domain": null,
        "workflowTask": null, "taskDefinition": {"present": true, "name": "charge"}, "newInTheNextRelease": {"a": 1},
    }]);
    recording.answer(200, full.to_string());
    let tasks = client
        .tasks()
        .batch_poll(&Poll::new("charge"))
        .await
        .unwrap();
    let task = &tasks[0];
    assert_eq!(
        (
            &*task.task_id,
            &*task.task_def_name,
            &*task.workflow_instance_id
        ),
        ("t", "charge", "w")
    );
    assert_eq!(task.status.as_str(), "IN_PROGRESS");
    assert_eq!((task.poll_count, task.retry_count), (2, 1));
    assert_eq!(
        (task.callback_after_seconds, task.response_timeout_seconds),
        (30, 60)
    );
    assert_eq!(json!(task.input_data), full[0]["inputData"]);
    assert!(task.output_data.is_empty());
}
