//! Durable selection: the first member to settle wins, the others are awaited, given up, or left alone.

use std::sync::Arc;
use std::time::Duration;

use durable_workflow::{
    ChildWorkflowOptions, ConditionWaitOptions, Error, ParallelOperation, ParallelResult,
    SelectionKey, SelectionResult, Value, Worker, json,
};
use tokio::sync::Semaphore;

use crate::rust_sdk::fixture::{Fixture, QUEUE, result};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(3600);

/// Registers `hold`, an activity that ends when its gate opens, and returns the gates of `left` and `right`.
fn register_hold(worker: &mut Worker) -> [Arc<Semaphore>; 2] {
    let gates = [Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0))];
    let [left, right] = gates.clone();
    worker.register_activity("hold", move |_, arguments: Value| {
        let gate = match arguments[0].as_str() {
            Some("left") => Arc::clone(&left),
            _ => Arc::clone(&right),
        };
        async move {
            gate.acquire().await.expect("gates stay").forget();
            Ok(arguments[0].clone())
        }
    });
    worker.register_activity("refuse", |_, _| async {
        Err(Error::WorkerLoop("no".to_owned()))
    });
    gates
}

fn hold(side: &str) -> ParallelOperation {
    ParallelOperation::activity("hold", json!([side]))
}

/// The winner's key and value, as a workflow's result.
fn chosen_json(chosen: &SelectionResult) -> Value {
    let value = match &chosen.value {
        Some(ParallelResult::Activity(value)) => value.clone(),
        Some(ParallelResult::ChildWorkflow(child)) => child.result.clone(),
        Some(ParallelResult::Signal(arguments)) => json!(arguments),
        Some(ParallelResult::Condition(outcome)) => json!(outcome),
        Some(ParallelResult::Timer) => json!("timer"),
        Some(ParallelResult::Group(members)) => json!(members.len()),
        None => json!(chosen.failure.as_ref().map(ToString::to_string)),
    };
    json!([chosen.key, value])
}

#[tokio::test]
async fn the_first_wins_and_the_other_is_awaited() {
    let fixture = Fixture::start().await;
    let mut gates = None;
    let _worker = fixture.worker(|worker| {
        gates = Some(register_hold(worker));
        worker.register_workflow("race", |context, _| async move {
            let chosen = context
                .select_keyed(vec![("left", hold("left")), ("right", hold("right"))])
                .await?;
            let loser = chosen.remaining()[0].clone();
            let ParallelResult::Activity(late) = loser.await_result().await? else {
                return Err(Error::WorkerLoop("not an activity".to_owned()));
            };
            Ok(json!([chosen_json(&chosen), late]))
        });
    });
    let [left, right] = gates.expect("gates");
    let handle = fixture.start_workflow("race", "race", json!([])).await;
    fixture.wait_for_events("race", "ActivityStarted", 2).await;
    right.add_permits(1);
    fixture
        .wait_for_events("race", "SelectionResolved", 1)
        .await;
    left.add_permits(1);
    assert_eq!(
        result(&handle).await.unwrap(),
        json!([["right", "right"], "left"])
    );
    let history = fixture.closed_history("race").await;
    let chosen = history.payloads("SelectionResolved");
    assert_eq!(chosen.len(), 1);
    assert_eq!(chosen[0]["member_key"], "right");
    assert_eq!(chosen[0]["outcome"], "completed");
}

#[tokio::test]
async fn the_loser_is_cancelled() {
    let fixture = Fixture::start().await;
    let mut gates = None;
    let _worker = fixture.worker(|worker| {
        gates = Some(register_hold(worker));
        worker.register_workflow("race", |context, _| async move {
            let chosen = context.select(vec![hold("left"), hold("right")]).await?;
            let loser = chosen.remaining()[0].clone();
            loser.cancel().await?;
            match loser.await_result().await {
                Err(Error::DurableOperationCancelled(given_up)) => {
                    Ok(json!([chosen_json(&chosen), given_up.member_index]))
                }
                other => Err(Error::WorkerLoop(format!("not given up: {other:?}"))),
            }
        });
    });
    let [left, right] = gates.expect("gates");
    let handle = fixture.start_workflow("race", "race", json!([])).await;
    fixture.wait_for_events("race", "ActivityStarted", 2).await;
    left.add_permits(1);
    assert_eq!(result(&handle).await.unwrap(), json!([[0, "left"], 1]));
    let history = fixture.closed_history("race").await;
    assert_eq!(history.count("SelectionOperationCancelled"), 1);
    assert_eq!(history.count("ActivityCancelled"), 1);
    right.add_permits(1);
}

#[tokio::test]
async fn a_timer_or_a_failure_can_win() {
    let fixture = Fixture::start().await;
    let mut gates = None;
    let _worker = fixture.worker(|worker| {
        gates = Some(register_hold(worker));
        worker.register_workflow("deadline", |context, _| async move {
            let timer = ParallelOperation::timer(Duration::from_secs(1));
            let chosen = context.select(vec![hold("left"), timer]).await?;
            Ok(chosen_json(&chosen))
        });
        worker.register_workflow("refused", |context, _| async move {
            let refuse = ParallelOperation::activity("refuse", json!([]));
            let chosen = context.select(vec![hold("left"), refuse]).await?;
            Ok(json!([chosen.index, chosen.succeeded()]))
        });
    });
    assert_eq!(
        fixture.run("deadline", json!([])).await,
        json!([1, "timer"])
    );
    assert_eq!(fixture.run("refused", json!([])).await, json!([1, false]));
    let history = fixture.closed_history("refused").await;
    assert_eq!(
        history.payloads("SelectionResolved")[0]["outcome"],
        "failed"
    );
    gates.expect("gates")[0].add_permits(2);
}

#[tokio::test]
async fn a_signal_wins() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("signalled", |context, _| async move {
            let chosen = context
                .select_keyed(vec![
                    ("signal", ParallelOperation::signal("go")),
                    ("timer", ParallelOperation::timer(NEVER)),
                ])
                .await?;
            Ok(chosen_json(&chosen))
        });
    });
    let handle = fixture
        .start_workflow("signalled", "signalled", json!([]))
        .await;
    fixture
        .wait_for_events("signalled", "TimerScheduled", 1)
        .await;
    fixture.signal("signalled", "go", json!(["now"])).await;
    assert_eq!(result(&handle).await.unwrap(), json!(["signal", ["now"]]));
    fixture.closed_history("signalled").await;
}

#[tokio::test]
async fn a_condition_wins() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("watch", |context, arguments| async move {
            let view = context.clone();
            let already = arguments[0] == true;
            let condition = ParallelOperation::condition(
                ConditionWaitOptions::new("signalled", "watch-v1"),
                move || Ok(already || !view.signals("tell")?.is_empty()),
            );
            let chosen = context
                .select_keyed(vec![
                    ("condition", condition),
                    ("timer", ParallelOperation::timer(NEVER)),
                ])
                .await?;
            Ok(chosen_json(&chosen))
        });
    });
    let expected = json!(["condition", "satisfied"]);
    let handle = fixture
        .start_workflow("watch", "later", json!([false]))
        .await;
    fixture
        .wait_for_events("later", "ConditionWaitOpened", 1)
        .await;
    fixture.signal("later", "tell", json!([])).await;
    assert_eq!(result(&handle).await.unwrap(), expected);
    let handle = fixture
        .start_workflow("watch", "already", json!([true]))
        .await;
    assert_eq!(result(&handle).await.unwrap(), expected);
    fixture.closed_history("already").await;
}

#[tokio::test]
async fn a_group_wins_when_all_of_it_is_done() {
    let fixture = Fixture::start().await;
    let mut gates = None;
    let _worker = fixture.worker(|worker| {
        gates = Some(register_hold(worker));
        worker.register_workflow("groups", |context, _| async move {
            let both = ParallelOperation::group(vec![hold("left"), hold("right")]);
            let chosen = context
                .select_keyed(vec![
                    ("never", ParallelOperation::timer(NEVER)),
                    ("both", both),
                ])
                .await?;
            Ok(chosen_json(&chosen))
        });
    });
    let [left, right] = gates.expect("gates");
    let handle = fixture.start_workflow("groups", "groups", json!([])).await;
    left.add_permits(1);
    fixture
        .wait_for_events("groups", "ActivityCompleted", 1)
        .await;
    right.add_permits(1);
    assert_eq!(result(&handle).await.unwrap(), json!(["both", 2]));
    let history = fixture.closed_history("groups").await;
    assert_eq!(
        history.payloads("SelectionResolved")[0]["operation_kind"],
        "group"
    );
}

#[tokio::test]
async fn a_child_that_loses_is_cancelled() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("patient", |context, _| async move {
            Ok(json!(context.wait_signal("go").await?))
        });
        worker.register_workflow("impatient", |context, _| async move {
            let child = ParallelOperation::child_workflow(
                "patient",
                ChildWorkflowOptions::new(QUEUE),
                json!([]),
            );
            let signal = ParallelOperation::signal("enough");
            let chosen = context
                .select_keyed(vec![("child", child), ("signal", signal)])
                .await?;
            let child = chosen
                .handle(&SelectionKey::from("child"))
                .expect("a handle");
            child.cancel().await?;
            Ok(chosen_json(&chosen))
        });
    });
    let handle = fixture
        .start_workflow("impatient", "impatient", json!([]))
        .await;
    let history = fixture
        .wait_for_events("impatient", "ChildRunStarted", 1)
        .await;
    let child = &history.payloads("ChildRunStarted")[0]["child_workflow_instance_id"];
    let child = child.as_str().expect("an id").to_owned();
    fixture.signal("impatient", "enough", json!([])).await;
    assert_eq!(result(&handle).await.unwrap(), json!(["signal", []]));
    fixture
        .wait_for_events(&child, "WorkflowCancelled", 1)
        .await;
}
