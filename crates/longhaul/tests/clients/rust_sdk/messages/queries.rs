//! Queries with the Rust SDK's client and its worker's handlers: open and closed runs, replayed state, failures, a restart.

use durable_workflow::{AvroValue, Error, QueryFailure, Value, Worker, json};

use crate::harness::{ServerOptions, eventually};
use crate::rust_sdk::fixture::{Fixture, RunningWorker, new_worker, result};

/// Registers `counter`, which adds up what it is sent until it gets `end`, with its queries.
fn register_counter(worker: &mut Worker) {
    worker.register_workflow("counter", |context, _| async move {
        let mut total = 0;
        loop {
            let number = context.wait_signal("add").await?[0].as_i64().unwrap_or(-1);
            if number < 0 {
                return Ok(json!(total));
            }
            total += number;
        }
    });
    worker.register_query("counter", "total", |context, arguments| async move {
        let sent = context.signals("add");
        let total: i64 = sent.iter().filter_map(|sent| sent[0].as_i64()).sum();
        Ok(json!({"total": total, "start": context.workflow_input(), "arguments": arguments}))
    });
    worker.register_query("counter", "broken", |_, _| async move {
        Err::<Value, _>(Error::Codec("the counter is stuck".into()))
    });
    worker.register_query_avro_value("counter", "raw", |_, _| async move {
        Ok(AvroValue::Bytes(vec![0, 255]))
    });
}

async fn refused(fixture: &Fixture, workflow_id: &str, query: &str) -> QueryFailure {
    match fixture
        .client
        .query_workflow(workflow_id, query, json!([]))
        .await
    {
        Err(Error::QueryFailed(failure)) => failure,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Returns the state that a query must not change.
async fn recorded(fixture: &Fixture, workflow_id: &str) -> (Value, Vec<String>) {
    let (_, description) = fixture
        .server
        .control()
        .get(&format!("/workflows/{workflow_id}"))
        .await;
    let history = fixture.history(workflow_id).await;
    let types = history.types().into_iter().map(str::to_owned).collect();
    (description, types)
}

#[tokio::test]
async fn open_and_closed_runs_answer() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_counter);
    let handle = fixture.start_workflow("counter", "sum", json!([7])).await;
    fixture.wait_for_events("sum", "SignalWaitOpened", 1).await;
    fixture.signal("sum", "add", json!([3])).await;
    fixture.signal("sum", "add", json!([4])).await;
    fixture.wait_for_events("sum", "SignalWaitOpened", 3).await;

    let before = recorded(&fixture, "sum").await;
    let open = handle.query("total", json!(["x", null])).await.unwrap();
    assert_eq!(
        open,
        json!({"total": 7, "start": [7], "arguments": ["x", null]})
    );
    let raw = handle.query_avro_value("raw", json!([])).await.unwrap();
    assert!(matches!(raw, AvroValue::Bytes(bytes) if bytes == [0, 255]));
    assert_eq!(recorded(&fixture, "sum").await, before);

    fixture.signal("sum", "add", json!([-1])).await;
    assert_eq!(result(&handle).await.unwrap(), json!(7));
    let closed = handle.query_selected_run("total", json!([])).await.unwrap();
    assert_eq!(closed["total"], 6);
}

#[tokio::test]
async fn a_handlers_failure_and_an_unknown_name_have_reasons() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_counter);
    fixture.start_workflow("counter", "sum", json!([])).await;
    fixture.wait_for_events("sum", "SignalWaitOpened", 1).await;
    let before = recorded(&fixture, "sum").await;

    let broken = refused(&fixture, "sum", "broken").await;
    assert_eq!(
        (broken.status, broken.reason.as_str()),
        (409, "query_rejected")
    );
    assert!(broken.message.contains("the counter is stuck"), "{broken}");
    let unknown = refused(&fixture, "sum", "nothing").await;
    assert_eq!(
        (unknown.status, unknown.reason.as_str()),
        (404, "rejected_unknown_query")
    );
    let missing = refused(&fixture, "missing", "total").await;
    assert_eq!(
        (missing.status, missing.reason.as_str()),
        (404, "instance_not_found")
    );
    assert_eq!(recorded(&fixture, "sum").await, before);
}

#[derive(Clone, Default)]
struct Greeting {
    names: Vec<String>,
}

#[tokio::test]
async fn replayed_state_answers() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_replayed_workflow(
            "greeting",
            Greeting::default,
            |context, _, state| async move {
                for _ in 0..2 {
                    let name = context.wait_signal("name").await?[0].clone();
                    let name = name.as_str().unwrap_or_default().to_owned();
                    state.update(|state| state.names.push(name))?;
                }
                Ok(json!(null))
            },
        );
        worker.register_replayed_query::<Greeting, _, _>(
            "greeting",
            "names",
            |_, state, _| async move { Ok(json!(state.names)) },
        );
    });
    let handle = fixture.start_workflow("greeting", "hi", json!([])).await;
    fixture.signal("hi", "name", json!(["ann"])).await;
    fixture.wait_for_events("hi", "SignalWaitOpened", 2).await;
    assert_eq!(
        handle.query("names", json!([])).await.unwrap(),
        json!(["ann"])
    );
    fixture.signal("hi", "name", json!(["bob"])).await;
    result(&handle).await.unwrap();
    assert_eq!(
        handle.query("names", json!([])).await.unwrap(),
        json!(["ann", "bob"])
    );
}

#[tokio::test]
async fn workers_that_insist_on_query_authority_are_served() {
    let fixture = Fixture::start().await;
    let mut worker =
        new_worker(fixture.client.clone(), "strict").require_query_task_authority(true);
    register_counter(&mut worker);
    let _worker = RunningWorker::start(worker);
    let handle = fixture.start_workflow("counter", "sum", json!([])).await;
    fixture.wait_for_events("sum", "SignalWaitOpened", 1).await;
    let answer = handle.query("total", json!([])).await.unwrap();
    assert_eq!(answer["total"], 0);
}

#[tokio::test]
async fn without_an_answering_worker_the_caller_gets_the_reason() {
    let options = ServerOptions::new().environment("LONGHAUL_QUERY_TASK_TIMEOUT_SECONDS", "1");
    let fixture = Fixture::with(options).await;
    fixture.start_workflow("counter", "sum", json!([])).await;
    let none = refused(&fixture, "sum", "total").await;
    assert_eq!(
        (none.status, none.reason.as_str()),
        (409, "query_worker_unavailable")
    );
    {
        // No query handler at all: the worker does not poll for queries.
        let _deaf = fixture.worker(|worker| {
            worker.register_workflow("counter", |context, _| async move {
                Ok(json!(context.wait_signal("add").await?))
            });
        });
        fixture.wait_for_events("sum", "SignalWaitOpened", 1).await;
        let deaf = refused(&fixture, "sum", "total").await;
        assert_eq!(
            (deaf.status, deaf.reason.as_str()),
            (409, "query_worker_incompatible")
        );
    }
    let _slow = fixture.worker_with_id("slow", |worker| {
        register_counter(worker);
        worker.register_query("counter", "stuck", |_, _| std::future::pending());
    });
    let slow = eventually("the new worker takes the query", || async {
        let failure = refused(&fixture, "sum", "stuck").await;
        (failure.body["timeout_stage"] == "executing").then_some(failure)
    })
    .await;
    assert_eq!(
        (slow.status, slow.reason.as_str()),
        (504, "query_worker_timeout")
    );
    // The worker has dropped the query and answers the next one.
    let answer = eventually("the worker answers again", || async {
        let answer = fixture
            .client
            .query_workflow("sum", "total", json!([]))
            .await;
        answer.ok()
    })
    .await;
    assert_eq!(answer["total"], 0);
}

#[tokio::test]
async fn queries_work_again_after_the_server_was_killed() {
    let mut fixture = Fixture::start().await;
    {
        let _worker = fixture.worker(register_counter);
        fixture.start_workflow("counter", "sum", json!([])).await;
        fixture.wait_for_events("sum", "SignalWaitOpened", 1).await;
        fixture.signal("sum", "add", json!([5])).await;
        fixture.wait_for_events("sum", "SignalWaitOpened", 2).await;
        let handle = fixture
            .client
            .query_workflow("sum", "total", json!([]))
            .await;
        assert_eq!(handle.unwrap()["total"], 5);
    }
    let before = recorded(&fixture, "sum").await;
    fixture.server.kill().await;
    fixture.server.restart().await;
    let _worker = fixture.worker_with_id("worker-2", register_counter);
    let answer = eventually("a worker answers after the restart", || async {
        let answer = fixture
            .client
            .query_workflow("sum", "total", json!([]))
            .await;
        answer.ok()
    })
    .await;
    assert_eq!(answer["total"], 5);
    assert_eq!(recorded(&fixture, "sum").await, before);
}
