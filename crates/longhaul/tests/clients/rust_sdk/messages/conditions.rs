//! `wait_condition`: satisfied at once, by a signal, by the second signal, never.

use std::time::{Duration, Instant};

use durable_workflow::{Worker, json, wait_condition};
use tokio::time::{sleep, timeout};

use crate::harness::DEADLINE;
use crate::rust_sdk::fixture::{Fixture, result};

/// Registers `approval`: true once an `approve` signal carries `true`; its argument is the timeout in seconds, or null.
fn register_approval(worker: &mut Worker) {
    worker.register_workflow("approval", |context, arguments| async move {
        let view = context.clone();
        let approved = move || {
            Ok(view
                .signals("approve")?
                .iter()
                .any(|arguments| arguments[0] == true))
        };
        let outcome = match arguments[0].as_u64() {
            Some(seconds) => {
                wait_condition!(context, "approved", timeout: Duration::from_secs(seconds), approved).await?
            }
            None => wait_condition!(context, "approved", approved).await?,
        };
        Ok(json!(outcome))
    });
}

#[tokio::test]
async fn satisfied_by_a_signal() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_approval);
    let handle = fixture
        .start_workflow("approval", "simple", json!([null]))
        .await;
    fixture
        .wait_for_events("simple", "ConditionWaitOpened", 1)
        .await;

    fixture.signal("simple", "approve", json!([true])).await;

    assert_eq!(result(&handle).await.unwrap(), json!("satisfied"));
    let history = fixture.closed_history("simple").await;
    assert_eq!(history.count("ConditionWaitSatisfied"), 1);
    assert_eq!(history.count("TimerScheduled"), 0);
}

#[tokio::test]
async fn satisfied_before_its_timeout() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_approval);
    let handle = fixture
        .start_workflow("approval", "in-time", json!([60]))
        .await;
    fixture
        .wait_for_events("in-time", "ConditionWaitOpened", 1)
        .await;

    fixture.signal("in-time", "approve", json!([true])).await;

    assert_eq!(result(&handle).await.unwrap(), json!("satisfied"));
    let history = fixture.closed_history("in-time").await;
    assert_eq!(history.count("ConditionWaitSatisfied"), 1);
    assert_eq!(history.count("TimerCancelled"), 1);
    assert_eq!(history.count("TimerFired"), 0);
}

#[tokio::test]
async fn already_true_needs_no_wait() {
    let fixture = Fixture::start().await;
    let handle = fixture
        .start_workflow("approval", "at-once", json!([60]))
        .await;
    fixture.signal("at-once", "approve", json!([true])).await;

    let _worker = fixture.worker(register_approval);

    assert_eq!(result(&handle).await.unwrap(), json!("satisfied"));
    assert_eq!(
        fixture
            .closed_history("at-once")
            .await
            .count("ConditionWaitOpened"),
        0
    );
}

#[tokio::test]
async fn a_false_signal_wakes_but_does_not_satisfy() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_approval);
    let handle = fixture
        .start_workflow("approval", "second", json!([null]))
        .await;
    fixture
        .wait_for_events("second", "ConditionWaitOpened", 1)
        .await;

    fixture.signal("second", "approve", json!([false])).await;
    fixture.wait_for_events("second", "SignalReceived", 1).await;
    assert!(!fixture.describe("second").await.is_terminal());
    fixture.signal("second", "approve", json!([true])).await;

    assert_eq!(result(&handle).await.unwrap(), json!("satisfied"));
    let history = fixture.closed_history("second").await;
    assert_eq!(
        history.count("ConditionWaitOpened"),
        1,
        "a re-evaluated wait is the same wait"
    );
    assert_eq!(history.count("ConditionWaitSatisfied"), 1);
}

#[tokio::test]
async fn times_out() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_approval);
    let started = Instant::now();

    assert_eq!(
        fixture.run("approval", json!([1])).await,
        json!("timed_out")
    );

    assert!(started.elapsed() >= Duration::from_secs(1));
    let history = fixture.closed_history("approval").await;
    assert_eq!(
        history.payloads("TimerFired")[0]["timer_kind"],
        "condition_timeout"
    );
    assert_eq!(history.count("ConditionWaitSatisfied"), 0);
}

#[tokio::test]
async fn false_signals_do_not_extend_the_timeout() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_approval);
    let handle = fixture
        .start_workflow("approval", "pestered", json!([1]))
        .await;

    let pester = async {
        // Ends when the run is closed and refuses the signal.
        while fixture
            .client
            .signal_workflow("pestered", "approve", json!([false]))
            .await
            .is_ok()
        {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, pester)
        .await
        .expect("the timeout comes in spite of the signals");

    assert_eq!(result(&handle).await.unwrap(), json!("timed_out"));
}
