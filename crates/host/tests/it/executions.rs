//! Definition runs: what a request has done when it is answered.

use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::Rejection;
use longhaul_engine::conductor::execution::command::update::{Output, Report};
use longhaul_host::clock::ManualClock;
use longhaul_host::{AfterTermination, BatchPoll, Error, Existing, Host, StartExecution};
use longhaul_protocol::conductor::{IdempotencyStrategy, ResultStatus, WorkflowStatus, read};
use longhaul_protocol::id::RunId;
use longhaul_store::Store;
use longhaul_store::sqlite::Sqlite;
use serde_json::{Value, json};

use crate::setup::{namespace, open, setup};

fn simple(name: &str) -> Value {
    json!({"name": name, "taskReferenceName": name, "type": "SIMPLE"})
}

fn calls(name: &str) -> Value {
    json!({"name": "call", "taskReferenceName": "call", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": name}})
}

async fn define(host: &Host, name: &str, tasks: Value) {
    let definition = read(json!({"name": name, "version": 1, "tasks": tasks})).unwrap();
    host.definitions()
        .put_workflows(&namespace(), vec![definition], Existing::Refuse)
        .await
        .unwrap();
}

fn start_of(name: &str) -> StartExecution {
    StartExecution {
        name: name.to_owned(),
        ..StartExecution::default()
    }
}

fn keyed(strategy: IdempotencyStrategy) -> StartExecution {
    StartExecution {
        idempotency_key: Some("order-7".to_owned()),
        idempotency_strategy: Some(strategy),
        ..start_of("w")
    }
}

async fn start(host: &Host, start: StartExecution) -> Result<RunId, Error> {
    host.executions().start(&namespace(), start).await
}

async fn status(host: &Host, id: &RunId) -> WorkflowStatus {
    let view = host
        .executions()
        .get(&namespace(), id.as_str(), false)
        .await
        .unwrap();
    view.workflow(false).status
}

/// Takes the only ready task of a type and completes it.
async fn complete(host: &Host, task_type: &str) {
    let poll = BatchPoll {
        namespace: namespace(),
        task_type: task_type.to_owned(),
        domain: None,
        worker_id: None,
        count: 1,
        timeout: Duration::ZERO,
    };
    let tasks = host.execution_tasks().poll(&poll).await.unwrap();
    let [task] = tasks.as_slice() else {
        panic!("one task was expected: {tasks:?}");
    };
    let report = Report::Status {
        status: ResultStatus::Completed,
        output: Output::Replace(serde_json::Map::new()),
        reason: None,
        worker_id: None,
        callback_after_seconds: 0,
        logs: Vec::new(),
    };
    host.execution_tasks()
        .update(
            &namespace(),
            &task.workflow_instance_id,
            &task.task_id,
            report,
        )
        .await
        .unwrap();
}

/// Returns a host on a database file.
async fn on_disk(directory: &tempfile::TempDir) -> (Host, Arc<dyn Store>) {
    let store: Arc<dyn Store> =
        Arc::new(Sqlite::open(directory.path().join("longhaul.db")).unwrap());
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let host = open(&store, &clock).await;
    (host, store)
}

#[tokio::test]
async fn a_run_and_its_first_pass_are_one_commit() {
    let setup = setup().await;
    define(&setup.host, "w", json!([simple("a")])).await;
    let id = start(&setup.host, start_of("w")).await.unwrap();
    let stored = setup.store.run(&id).await.unwrap().unwrap();
    assert_eq!(stored.version, 1);
    complete(&setup.host, "a").await;
    assert_eq!(status(&setup.host, &id).await, WorkflowStatus::Completed);
}

#[tokio::test]
async fn of_starts_with_one_key_one_run_exists() {
    let directory = tempfile::tempdir().unwrap();
    let (host, _store) = on_disk(&directory).await;
    define(&host, "w", json!([simple("a")])).await;
    let starts = (0..50).map(|_| start(&host, keyed(IdempotencyStrategy::Fail)));
    let outcomes = futures::future::join_all(starts).await;
    let started: Vec<&RunId> = outcomes
        .iter()
        .filter_map(|one| one.as_ref().ok())
        .collect();
    let [first] = started.as_slice() else {
        panic!("one start wins: {started:?}");
    };
    for refused in outcomes.iter().filter_map(|one| one.as_ref().err()) {
        assert!(
            matches!(refused, Error::Rejected(Rejection::KeyTaken { run_id }) if run_id == *first),
            "{refused:?}"
        );
    }
    let existing = start(&host, keyed(IdempotencyStrategy::ReturnExisting)).await;
    assert_eq!(existing.as_ref().unwrap(), *first);
    let running = start(&host, keyed(IdempotencyStrategy::FailOnRunning)).await;
    assert!(matches!(
        running,
        Err(Error::Rejected(Rejection::KeyTaken { .. }))
    ));

    complete(&host, "a").await;
    let starts = (0..50).map(|_| start(&host, keyed(IdempotencyStrategy::FailOnRunning)));
    let outcomes = futures::future::join_all(starts).await;
    let started: Vec<&RunId> = outcomes
        .iter()
        .filter_map(|one| one.as_ref().ok())
        .collect();
    let [second] = started.as_slice() else {
        panic!("one start wins: {started:?}");
    };
    assert_ne!(first, second);
    let existing = start(&host, keyed(IdempotencyStrategy::ReturnExisting)).await;
    assert_eq!(existing.as_ref().unwrap(), *second);

    let other = StartExecution {
        idempotency_key: Some("order-8".to_owned()),
        ..start_of("w")
    };
    start(&host, other).await.unwrap();
}

#[tokio::test]
async fn parents_are_decided_before_the_update_of_a_sub_workflow_returns() {
    let setup = setup().await;
    define(&setup.host, "leaf", json!([simple("a")])).await;
    define(&setup.host, "middle", json!([calls("leaf")])).await;
    define(&setup.host, "root", json!([calls("middle"), simple("b")])).await;
    for _ in 0..20 {
        let id = start(&setup.host, start_of("root")).await.unwrap();
        complete(&setup.host, "a").await;
        complete(&setup.host, "b").await;
        assert_eq!(status(&setup.host, &id).await, WorkflowStatus::Completed);
    }
}

#[tokio::test]
async fn sub_workflows_are_terminated_before_their_parent_is_answered() {
    let setup = setup().await;
    define(&setup.host, "leaf", json!([simple("a")])).await;
    define(&setup.host, "middle", json!([calls("leaf")])).await;
    define(&setup.host, "root", json!([calls("middle")])).await;
    let id = start(&setup.host, start_of("root")).await.unwrap();
    setup
        .host
        .executions()
        .terminate(
            &namespace(),
            id.as_str(),
            Some("enough"),
            AfterTermination::Nothing,
        )
        .await
        .unwrap();
    assert_eq!(status(&setup.host, &id).await, WorkflowStatus::Terminated);
    let mut parent = id;
    for _ in 0..2 {
        let view = setup
            .host
            .executions()
            .get(&namespace(), parent.as_str(), true)
            .await
            .unwrap();
        let tasks = view.workflow(true).tasks;
        let child = tasks[0].sub_workflow_id.as_deref().unwrap();
        let child = RunId::from(child);
        assert_eq!(
            status(&setup.host, &child).await,
            WorkflowStatus::Terminated
        );
        parent = child;
    }
}
