//! Signals and `wait_signal`: early, late, many, twice on one name, repeated by the client.

use std::sync::Arc;

use durable_workflow::{ParallelOperation, ParallelResult, Value, Worker, json};
use tokio::sync::Semaphore;

use crate::rust_sdk::fixture::{Fixture, result};

/// Registers `collect`, which waits for `go` as often as its argument says and returns the first argument of each.
fn register_collect(worker: &mut Worker) {
    worker.register_workflow("collect", |context, arguments| async move {
        let mut received = Vec::new();
        for _ in 0..arguments[0].as_u64().unwrap_or_default() {
            received.push(context.wait_signal("go").await?[0].clone());
        }
        Ok(json!(received))
    });
}

#[tokio::test]
async fn a_signal_sent_before_any_worker_runs_is_kept() {
    let fixture = Fixture::start().await;
    let handle = fixture.start_workflow("collect", "early", json!([1])).await;
    fixture.signal("early", "go", json!(["first"])).await;

    let _worker = fixture.worker(register_collect);

    assert_eq!(result(&handle).await.unwrap(), json!(["first"]));
    assert_eq!(
        fixture.closed_history("early").await.count("SignalApplied"),
        1
    );
}

#[tokio::test]
async fn a_signal_sent_before_the_wait_is_kept() {
    let fixture = Fixture::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let _worker = fixture.worker(|worker| {
        worker.register_activity("gated", move |_, _| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(json!(null))
            }
        });
        worker.register_workflow("busy", |context, _| async move {
            context.activity("gated", json!([])).await?;
            Ok(json!(context.wait_signal("go").await?))
        });
    });
    let handle = fixture.start_workflow("busy", "busy", json!([])).await;
    fixture.wait_for_events("busy", "ActivityStarted", 1).await;
    fixture.signal("busy", "go", json!(["while busy", 2])).await;
    fixture.wait_for_events("busy", "SignalReceived", 1).await;

    opened.add_permits(1);

    assert_eq!(result(&handle).await.unwrap(), json!(["while busy", 2]));
}

#[tokio::test]
async fn a_signal_sent_after_the_wait_wakes_it() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_collect);
    let handle = fixture.start_workflow("collect", "late", json!([1])).await;
    fixture.wait_for_events("late", "SignalWaitOpened", 1).await;

    fixture
        .signal("late", "unrelated", json!(["ignored"]))
        .await;
    fixture.signal("late", "go", json!(["now"])).await;

    assert_eq!(result(&handle).await.unwrap(), json!(["now"]));
}

#[tokio::test]
async fn fifty_signals_arrive_in_order() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_collect);
    let handle = fixture
        .start_workflow("collect", "fifty", json!([50]))
        .await;

    for number in 0..50 {
        fixture.signal("fifty", "go", json!([number])).await;
    }

    assert_eq!(
        result(&handle).await.unwrap(),
        json!((0..50).collect::<Vec<_>>())
    );
    let history = fixture.closed_history("fifty").await;
    assert_eq!(history.count("SignalReceived"), 50);
    assert_eq!(
        history.command_sequences("SignalApplied"),
        (1..=50).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn two_open_waits_on_one_name_take_one_signal_each() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("pair", |context, _| async move {
            let waits = [
                ParallelOperation::signal("go"),
                ParallelOperation::signal("go"),
            ];
            let received =
                context
                    .parallel(waits.into())
                    .await?
                    .into_iter()
                    .map(|wait| match wait {
                        ParallelResult::Signal(arguments) => json!(arguments),
                        other => Value::String(format!("not a signal: {other:?}")),
                    });
            Ok(received.collect())
        });
    });
    let handle = fixture.start_workflow("pair", "pair", json!([])).await;
    fixture.wait_for_events("pair", "SignalWaitOpened", 2).await;

    fixture.signal("pair", "go", json!(["one"])).await;
    fixture.signal("pair", "go", json!(["two"])).await;

    assert_eq!(result(&handle).await.unwrap(), json!([["one"], ["two"]]));
}

#[tokio::test]
async fn a_repeated_request_is_one_signal() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_collect);
    let handle = fixture
        .start_workflow("collect", "repeated", json!([2]))
        .await;

    let send = |request_id, input| {
        fixture
            .client
            .signal_workflow_with_request_id("repeated", "go", input, request_id)
    };
    let first = send("request-1", json!(["a"])).await.unwrap();
    let again = send("request-1", json!(["a"])).await.unwrap();
    let other_intent = send("request-1", json!(["b"])).await.unwrap_err();
    send("request-2", json!(["c"])).await.unwrap();

    assert_eq!(first["retained"], false);
    assert_eq!(again["retained"], true);
    assert_eq!(again["command_id"], first["command_id"]);
    assert!(other_intent.is_request_id_conflict(), "{other_intent}");
    assert_eq!(result(&handle).await.unwrap(), json!(["a", "c"]));
    assert_eq!(
        fixture
            .closed_history("repeated")
            .await
            .count("SignalReceived"),
        2
    );
}

#[tokio::test]
async fn only_declared_signals_are_accepted() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        register_collect(worker);
        worker.declare_workflow_signals("collect", &["go"]).unwrap();
        worker.register_workflow("probe", |_, _| async { Ok(json!(null)) });
    });
    // The declaration is copied to a run at its start, so the worker must have registered before.
    fixture.run("probe", json!([])).await;
    let handle = fixture
        .start_workflow("collect", "declared", json!([1]))
        .await;

    let refused = fixture
        .client
        .signal_workflow("declared", "stop", json!([]))
        .await
        .unwrap_err();
    fixture.signal("declared", "go", json!(["declared"])).await;

    let durable_workflow::Error::Http { status, body } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(status.as_u16(), 404);
    assert!(body.contains("unknown_signal"), "{body}");
    assert_eq!(result(&handle).await.unwrap(), json!(["declared"]));
}
