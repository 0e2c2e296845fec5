//! Workers that are declared with the attribute.

use std::time::Duration;

use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::handler::Isolation;
use longhaul_conductor_sdk::model::{Object, ResultStatus, Task, TaskDef, TaskResult};
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::transport::RequestRetry;
use longhaul_conductor_sdk::worker::{
    AnyWorker, NonRetryable, Outcome, RunnerKind, TaskInProgress, TaskResponse,
};
use longhaul_conductor_sdk::{Client, Configuration, TaskHandler, worker_task};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::recording::Recording;

#[derive(Deserialize, Serialize)]
struct Address {
    city: String,
}

fn three() -> u32 {
    3
}

/// Charges an order.
#[worker_task(
    "declared_charge",
    thread_count = 20,
    domain = "eu",
    poll_interval_millis = 250,
    poll_timeout = 500,
    register_task_def = true,
    task_definition = TaskDef { retry_count: 9, ..TaskDef::default() }
)]
async fn charge(
    order_id: String,
    cents: i64,
    note: Option<String>,
    #[serde(rename = "shipTo")] ship_to: Address,
    #[serde(default)] express: bool,
    #[serde(default = "three")] parcels: u32,
) -> TaskResponse<Value> {
    tokio::task::yield_now().await;
    Ok(json!([order_id, cents, note, ship_to, express, parcels]))
}

#[worker_task]
fn declared_plain(a: u32) -> u32 {
    a + 1
}

#[worker_task]
fn declared_nothing() {}

#[worker_task]
fn declared_error(kind: String) -> Result<(), std::num::ParseIntError> {
    kind.parse::<u8>().map(drop)
}

#[worker_task]
async fn declared_result() -> TaskResult {
    TaskResult {
        status: Some(ResultStatus::FailedWithTerminalError),
        ..TaskResult::default()
    }
}

#[worker_task]
fn declared_result_or_failure(fail: bool) -> TaskResponse<TaskResult> {
    if fail {
        return Err(NonRetryable::new("as asked").into());
    }
    Ok(TaskResult {
        status: Some(ResultStatus::Completed),
        ..TaskResult::default()
    })
}

#[worker_task]
fn declared_progress(done: bool) -> TaskResponse<Outcome> {
    if done {
        return Outcome::output(&"done");
    }
    Ok(TaskInProgress::after(Duration::from_secs(5)).into())
}

/// Runs one task with a worker and returns the result that it sent.
async fn execute(worker: AnyWorker, input: Value) -> TaskResult {
    let recording = Recording::default();
    let task = Task {
        task_id: "t".to_owned(),
        workflow_instance_id: "w".to_owned(),
        input_data: input.as_object().unwrap().clone(),
        ..Task::default()
    };
    recording.answer(200, serde_json::to_string(&[task]).unwrap());
    let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
    let client = Client::over(&configuration, recording.clone());
    let mut runner = TaskRunner::new(worker, client.tasks(), EventDispatcher::silent()).unwrap();
    runner.run_once().await;
    runner.drain().await;
    let update = recording.take().pop().unwrap();
    serde_json::from_slice(&update.body.unwrap()).unwrap()
}

fn output(result: &TaskResult) -> Value {
    Value::Object(Object::clone(&result.output_data))
}

#[tokio::test]
async fn parameters_are_found_by_name() {
    let worker = charge::worker();
    assert_eq!(worker.task_type(), "declared_charge");
    assert_eq!(worker.kind(), RunnerKind::Async);
    let input = json!({"cents": "250", "order_id": 7, "shipTo": {"city": "Bern"}, "other": 1});
    let result = execute(charge::worker(), input).await;
    assert_eq!(
        output(&result),
        json!({"result": ["7", 250, null, {"city": "Bern"}, false, 3]})
    );
    let input = json!({"order_id": "o", "shipTo": {"city": "Bern"}});
    let result = execute(charge::worker(), input).await;
    assert_eq!(result.status, Some(ResultStatus::Failed));
    let reason = result.reason_for_incompletion.as_deref();
    assert_eq!(
        reason,
        Some("the parameter `cents` is missing in the input")
    );
    // The function itself is unchanged.
    let address = Address {
        city: "Bern".to_owned(),
    };
    charge("o".to_owned(), 1, None, address, true, 1)
        .await
        .unwrap();
}

#[tokio::test]
async fn functions_return_values_results_and_failures() {
    assert_eq!(declared_plain::worker().kind(), RunnerKind::Sync);
    assert_eq!(
        output(&execute(declared_plain::worker(), json!({"a": 1})).await),
        json!({"result": 2})
    );
    assert_eq!(
        output(&execute(declared_nothing::worker(), json!({})).await),
        json!({"result": null})
    );
    let failed = execute(declared_error::worker(), json!({"kind": "x"})).await;
    assert_eq!(failed.status, Some(ResultStatus::Failed));
    assert_eq!(
        failed.logs[0].log,
        "ParseIntError: invalid digit found in string"
    );
    let whole = execute(declared_result::worker(), json!({})).await;
    assert_eq!(whole.status, Some(ResultStatus::FailedWithTerminalError));
    for (fail, status) in [
        (true, ResultStatus::FailedWithTerminalError),
        (false, ResultStatus::Completed),
    ] {
        let result = execute(declared_result_or_failure::worker(), json!({"fail": fail})).await;
        assert_eq!(result.status, Some(status));
    }
    let result = execute(declared_progress::worker(), json!({"done": false})).await;
    assert_eq!(
        (result.status, result.callback_after_seconds),
        (Some(ResultStatus::InProgress), 5)
    );
    let result = execute(declared_progress::worker(), json!({"done": true})).await;
    assert_eq!(output(&result), json!({"result": "done"}));
}

#[tokio::test]
async fn declared_workers_are_discovered_beside_those_registered_by_hand() {
    let mut handler = TaskHandler::builder(Configuration::new("http://127.0.0.1:9/api"))
        .isolation(Isolation::InProcess)
        .discover()
        .worker(longhaul_conductor_sdk::worker::function(
            "by_hand",
            |input: Value| Ok(input),
        ))
        .build()
        .unwrap();
    handler.start_processes().await;
    let status = handler.worker_status();
    let found: Vec<_> = status.iter().map(|worker| &*worker.task_type).collect();
    // Other tests of this program declare workers, too.
    let found: Vec<_> = found
        .into_iter()
        .filter(|name| name.starts_with("declared_") || *name == "by_hand")
        .collect();
    assert_eq!(
        found,
        [
            "declared_charge",
            "declared_error",
            "declared_nothing",
            "declared_plain",
            "declared_progress",
            "declared_result",
            "declared_result_or_failure",
            "by_hand",
        ]
    );
    handler.stop_processes();
    handler.join_processes().await;
}
