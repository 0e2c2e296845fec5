//! The four activity timeouts, and the late report of an activity that overran one.

use std::sync::Arc;
use std::time::Duration;

use durable_workflow::{
    ActivityFailureKind, ActivityOptions, ActivityRetryPolicy, Error, ParallelOperation, Worker,
    json,
};
use tokio::sync::{Barrier, Semaphore};
use tokio::time::sleep;

use crate::rust_sdk::fixture::{Fixture, RunningWorker, new_worker, result};

const ONE_SECOND: Duration = Duration::from_secs(1);

/// Registers `stuck`, an activity that ends when the test opens its gate.
fn register_stuck(worker: &mut Worker, gate: &Arc<Semaphore>) {
    let gate = Arc::clone(gate);
    worker.register_activity("stuck", move |context, _| {
        let gate = Arc::clone(&gate);
        async move {
            if context.attempt_number == 1 {
                gate.acquire().await.unwrap().forget();
            }
            Ok(json!(format!("attempt {}", context.attempt_number)))
        }
    });
}

async fn check_times_out(options: ActivityOptions, expected_kind: &str, attempts_started: usize) {
    let fixture = Fixture::start().await;
    let gate = Arc::new(Semaphore::new(0));
    // One slot: the second workflow's activity cannot run before the late report of the first is settled.
    let mut worker =
        new_worker(fixture.client.clone(), "worker-1").max_concurrent_activity_tasks(1);
    register_stuck(&mut worker, &gate);
    worker.register_activity("quick", |_, _| async { Ok(json!("still here")) });
    worker.register_workflow("overrun", move |context, _| {
        let options = options.clone();
        async move {
            match context
                .activity_with_options("stuck", options, json!([]))
                .await
            {
                Err(Error::ActivityFailed(failure)) => Ok(json!({
                    "timed_out": failure.kind == ActivityFailureKind::TimedOut,
                    "timeout_kind": failure.timeout_kind,
                    "category": failure.failure_category,
                })),
                other => Err(Error::WorkerLoop(format!(
                    "expected a timeout, got {other:?}"
                ))),
            }
        }
    });
    worker.register_workflow("afterwards", |context, _| async move {
        context.activity("quick", json!([])).await
    });
    let _worker = RunningWorker::start(worker);

    let outcome = fixture.run("overrun", json!([])).await;

    let expected = json!({"timed_out": true, "timeout_kind": expected_kind, "category": "timeout"});
    assert_eq!(outcome, expected);
    let history = fixture.closed_history("overrun").await;
    assert_eq!(history.count("ActivityStarted"), attempts_started);
    assert_eq!(
        history.payloads("ActivityTimedOut")[0]["timeout_kind"],
        expected_kind
    );
    gate.add_permits(1);
    assert_eq!(
        fixture.run("afterwards", json!([])).await,
        json!("still here")
    );
    assert_eq!(
        fixture.closed_history("overrun").await.len(),
        history.len(),
        "a late report adds no history"
    );
}

#[tokio::test]
async fn schedule_to_start() {
    let unserved = ActivityOptions::new()
        .task_queue("no-worker")
        .schedule_to_start_timeout(ONE_SECOND);
    check_times_out(unserved, "schedule_to_start", 0).await;
}

#[tokio::test]
async fn start_to_close() {
    check_times_out(
        ActivityOptions::new().start_to_close_timeout(ONE_SECOND),
        "start_to_close",
        1,
    )
    .await;
}

#[tokio::test]
async fn schedule_to_close() {
    // Attempts are left, but the whole activity's time is up.
    let options = ActivityOptions::new()
        .schedule_to_close_timeout(ONE_SECOND)
        .retry_policy(ActivityRetryPolicy::new(3));
    check_times_out(options, "schedule_to_close", 1).await;
}

#[tokio::test]
async fn heartbeat() {
    check_times_out(
        ActivityOptions::new().heartbeat_timeout(ONE_SECOND),
        "heartbeat",
        1,
    )
    .await;
}

#[tokio::test]
async fn a_timed_out_attempt_is_retried_and_its_late_report_ignored() {
    let fixture = Fixture::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let meeting = Arc::new(Barrier::new(2));
    let mut worker =
        new_worker(fixture.client.clone(), "worker-1").max_concurrent_activity_tasks(2);
    register_stuck(&mut worker, &gate);
    worker.register_activity("meet", move |_, _| {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait().await;
            Ok(json!(null))
        }
    });
    worker.register_workflow("second-try", |context, _| async move {
        let policy = ActivityRetryPolicy::new(2);
        let options = ActivityOptions::new()
            .start_to_close_timeout(ONE_SECOND)
            .retry_policy(policy);
        let answer = context
            .activity_with_options("stuck", options, json!([]))
            .await?;
        // Two that wait for each other need both slots, so the run stays open until the first attempt has reported.
        context
            .parallel(
                [(); 2]
                    .map(|()| ParallelOperation::activity("meet", json!([])))
                    .into(),
            )
            .await?;
        Ok(answer)
    });
    let _worker = RunningWorker::start(worker);
    let handle = fixture
        .start_workflow("second-try", "second-try", json!([]))
        .await;
    fixture
        .wait_for_events("second-try", "ActivityCompleted", 1)
        .await;

    gate.add_permits(1);

    assert_eq!(result(&handle).await.unwrap(), json!("attempt 2"));
    let history = fixture.closed_history("second-try").await;
    assert_eq!(
        history.payloads("ActivityRetryScheduled")[0]["timeout_kind"],
        "start_to_close"
    );
    let mut started = history.command_sequences("ActivityStarted");
    // Two polls take the two that meet, in either order.
    started[2..].sort_unstable();
    assert_eq!(started, [1, 1, 2, 3]);
}

#[tokio::test]
async fn heartbeats_keep_an_activity_alive() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_activity("slow", |context, _| async move {
            // Longer than the heartbeat timeout, in steps shorter than it.
            for step in 0..8 {
                sleep(Duration::from_millis(250)).await;
                context.heartbeat(json!({"step": step})).await?;
            }
            Ok(json!("done"))
        });
        worker.register_workflow("patient", |context, _| async move {
            let options = ActivityOptions::new().heartbeat_timeout(ONE_SECOND);
            context
                .activity_with_options("slow", options, json!([]))
                .await
        });
    });

    assert_eq!(fixture.run("patient", json!([])).await, json!("done"));

    assert_eq!(
        fixture
            .closed_history("patient")
            .await
            .count("ActivityStarted"),
        1
    );
}
