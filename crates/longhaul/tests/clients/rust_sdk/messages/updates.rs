//! Updates: answered by their handler, refused, failed, repeated, and seen by conditions.

use durable_workflow::{Error, Value, Worker, json, wait_condition};

use crate::rust_sdk::fixture::{Fixture, result};

/// Registers `counter`, which ends when `add` updates sum up to ten; the handler answers twice the amount.
fn register_counter(worker: &mut Worker) {
    worker.register_workflow("counter", |context, _| async move {
        let view = context.clone();
        let reached = move || Ok(total(&view.updates("add")?) >= 10);
        wait_condition!(context, "ten", reached).await?;
        Ok(json!(total(&context.updates("add")?)))
    });
    worker.register_update("counter", "add", |_, arguments: Value| async move {
        match arguments[0].as_i64() {
            Some(amount) if amount >= 0 => Ok(json!(amount * 2)),
            _ => Err(Error::WorkerLoop("less than nothing".to_owned())),
        }
    });
}

fn total(updates: &[Vec<Value>]) -> i64 {
    let amounts = updates
        .iter()
        .filter_map(|arguments| arguments.first()?.as_i64());
    amounts.filter(|amount| *amount > 0).sum()
}

/// Status and reason of a refused update.
fn refusal(outcome: durable_workflow::Result<Value>) -> (u16, Value) {
    let Err(Error::Http { status, body }) = outcome else {
        panic!("expected a refusal, got {outcome:?}");
    };
    (
        status.as_u16(),
        serde_json::from_str(&body).expect("a refusal is JSON"),
    )
}

#[tokio::test]
async fn an_update_is_answered_and_seen_by_conditions() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_counter);
    let handle = fixture.start_workflow("counter", "sum", json!([])).await;
    fixture
        .wait_for_events("sum", "ConditionWaitOpened", 1)
        .await;
    for (amount, answer) in [(4, 8), (6, 12)] {
        let answered = handle.update("add", json!([amount]), None).await;
        assert_eq!(answered.unwrap(), json!(answer));
    }
    assert_eq!(result(&handle).await.unwrap(), json!(10));
    let history = fixture.closed_history("sum").await;
    for event in ["UpdateAccepted", "UpdateApplied", "UpdateCompleted"] {
        assert_eq!(history.count(event), 2, "{event}");
    }
    assert_eq!(history.count("ConditionWaitOpened"), 1);
    assert_eq!(
        history.payloads("ConditionWaitSatisfied")[0]["workflow_update_id"],
        history.payloads("UpdateApplied")[1]["update_id"]
    );
}

#[tokio::test]
async fn a_failing_handler_fails_the_update_only() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_counter);
    let handle = fixture.start_workflow("counter", "sum", json!([])).await;
    fixture
        .wait_for_events("sum", "ConditionWaitOpened", 1)
        .await;
    let (status, body) = refusal(handle.update("add", json!([-1]), None).await);
    assert_eq!(
        (status, &body["outcome"]),
        (422, &json!("update_failed")),
        "{body}"
    );
    assert!(body.to_string().contains("less than nothing"), "{body}");
    handle.update("add", json!([10]), None).await.unwrap();
    assert_eq!(result(&handle).await.unwrap(), json!(10));
    let history = fixture.closed_history("sum").await;
    assert_eq!(history.count("UpdateAccepted"), 2);
    assert_eq!(history.count("UpdateApplied"), 1);
    assert_eq!(history.count("WorkflowTaskFailed"), 0);
}

#[tokio::test]
async fn unknown_updates_and_closed_runs_are_refused() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_counter);
    let handle = fixture.start_workflow("counter", "sum", json!([])).await;
    fixture
        .wait_for_events("sum", "ConditionWaitOpened", 1)
        .await;
    let (status, body) = refusal(handle.update("explode", json!([]), None).await);
    assert_eq!((status, &body["reason"]), (404, &json!("unknown_update")));
    handle.update("add", json!([10]), None).await.unwrap();
    result(&handle).await.unwrap();
    let (status, body) = refusal(handle.update("add", json!([1]), None).await);
    assert_eq!((status, &body["reason"]), (409, &json!("run_not_active")));
}

#[tokio::test]
async fn the_same_request_is_one_update() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_counter);
    let handle = fixture.start_workflow("counter", "sum", json!([])).await;
    fixture
        .wait_for_events("sum", "ConditionWaitOpened", 1)
        .await;
    for _ in 0..3 {
        let answered = handle.update("add", json!([4]), Some("once")).await;
        assert_eq!(answered.unwrap(), json!(8));
    }
    let conflict = handle.update("add", json!([5]), Some("once")).await;
    assert!(conflict.unwrap_err().is_request_id_conflict());
    handle.update("add", json!([6]), None).await.unwrap();
    assert_eq!(result(&handle).await.unwrap(), json!(10));
    let history = fixture.closed_history("sum").await;
    assert_eq!(history.count("UpdateAccepted"), 2);
}

#[tokio::test]
async fn many_callers_update_at_once() {
    const CALLERS: usize = 10;
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("tally", |context, _| async move {
            context.wait_signal("close").await?;
            Ok(json!(total(&context.updates("add")?)))
        });
        worker.register_update("tally", "add", |_, arguments: Value| async move {
            Ok(arguments[0].clone())
        });
    });
    let handle = fixture.start_workflow("tally", "tally", json!([])).await;
    fixture
        .wait_for_events("tally", "SignalWaitOpened", 1)
        .await;
    let callers: Vec<_> = (1..=CALLERS)
        .map(|amount| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.update("add", json!([amount]), None).await })
        })
        .collect();
    for (caller, amount) in callers.into_iter().zip(1..) {
        assert_eq!(caller.await.unwrap().unwrap(), json!(amount));
    }
    fixture.signal("tally", "close", json!([])).await;
    assert_eq!(result(&handle).await.unwrap(), json!(55));
    let history = fixture.closed_history("tally").await;
    assert_eq!(history.count("UpdateCompleted"), CALLERS);
}
