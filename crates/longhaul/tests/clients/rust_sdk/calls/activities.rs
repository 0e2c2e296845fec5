//! Activities: one, many in a row, many at once, failing, retried, heartbeating, cancelled.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use durable_workflow::{
    ActivityError, ActivityOptions, ActivityRetryPolicy, Error, ParallelOperation, ParallelResult,
    Value, WorkflowCommandOptions, json,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::harness::DEADLINE;
use crate::rust_sdk::fixture::{Fixture, result};

#[tokio::test]
async fn hello() {
    let fixture = Fixture::start().await;
    let worker = fixture.worker(|worker| {
        worker.register_activity("greet", |_, arguments| async move {
            Ok(json!(format!("hello, {}", arguments[0].as_str().unwrap())))
        });
        worker.register_workflow("hello", |context, arguments| async move {
            context.activity("greet", arguments).await
        });
    });

    assert_eq!(
        fixture.run("hello", json!(["world"])).await,
        json!("hello, world")
    );

    assert_eq!(
        fixture.closed_history("hello").await.types(),
        [
            "StartAccepted",
            "WorkflowStarted",
            "ActivityScheduled",
            "ActivityStarted",
            "ActivityCompleted",
            "WorkflowCompleted"
        ]
    );
    worker.stop().await;
}

#[tokio::test]
async fn sequential_activities() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_activity("double", |_, arguments| async move {
            Ok(json!(arguments[0].as_i64().unwrap() * 2))
        });
        worker.register_workflow("sequential", |context, arguments| async move {
            let mut value = arguments[0].clone();
            for _ in 0..5 {
                value = context.activity("double", json!([value])).await?;
            }
            Ok(value)
        });
    });

    assert_eq!(fixture.run("sequential", json!([3])).await, json!(96));

    let history = fixture.closed_history("sequential").await;
    assert_eq!(
        history.command_sequences("ActivityScheduled"),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(
        history.command_sequences("ActivityCompleted"),
        [1, 2, 3, 4, 5]
    );
}

#[tokio::test]
async fn a_hundred_parallel_activities_answer_in_order() {
    let fixture = Fixture::start().await;
    let last_ran = Arc::new(Semaphore::new(0));
    let _worker = fixture.worker(|worker| {
        worker.register_activity("square", move |_, arguments| {
            let last_ran = Arc::clone(&last_ran);
            async move {
                let number = arguments[0].as_u64().unwrap();
                match number {
                    // The first waits for the last, so completion order differs from call order.
                    0 => last_ran.acquire().await.unwrap().forget(),
                    99 => last_ran.add_permits(1),
                    _ => {}
                }
                Ok(json!(number * number))
            }
        });
        worker.register_workflow("fan-out", |context, _| async move {
            let calls = (0..100)
                .map(|number| ParallelOperation::activity("square", json!([number])))
                .collect();
            Ok(json!(activity_results(context.parallel(calls).await?)))
        });
    });

    let squares: Vec<u64> = (0..100).map(|number| number * number).collect();
    assert_eq!(fixture.run("fan-out", json!([])).await, json!(squares));

    let history = fixture.closed_history("fan-out").await;
    assert_eq!(
        history.command_sequences("ActivityScheduled"),
        (1..=100).collect::<Vec<_>>()
    );
    let completed = history.command_sequences("ActivityCompleted");
    assert_eq!(completed.len(), 100);
    assert!(
        !completed.is_sorted(),
        "the activities were meant to complete out of order"
    );
}

#[tokio::test]
async fn a_failed_group_waits_for_all_members_and_names_the_failed_one() {
    let fixture = Fixture::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let _worker = fixture.worker(|worker| {
        worker.register_activity("member", move |_, arguments| {
            let gate = Arc::clone(&gate);
            async move {
                match arguments[0].as_u64() {
                    Some(1) => return Err(ActivityError::new("Odd", "1 is odd").into()),
                    Some(2) => gate.acquire().await.unwrap().forget(),
                    _ => {}
                }
                Ok(json!(null))
            }
        });
        worker.register_workflow("group", |context, _| async move {
            let calls =
                [0, 1, 2].map(|number| ParallelOperation::activity("member", json!([number])));
            match context.parallel(calls.into()).await {
                Err(Error::ParallelFailed(failure)) => {
                    let completed: Vec<_> = failure
                        .completed
                        .iter()
                        .map(|member| &member.member_path)
                        .collect();
                    Ok(json!({"failed": failure.member_path, "completed": completed}))
                }
                other => Err(Error::WorkerLoop(format!(
                    "expected a failed group, got {other:?}"
                ))),
            }
        });
    });
    let handle = fixture.start_workflow("group", "group", json!([])).await;

    fixture.wait_for_events("group", "ActivityFailed", 1).await;
    opened.add_permits(1);

    assert_eq!(
        result(&handle).await.unwrap(),
        json!({"failed": [1], "completed": [[0], [2]]})
    );
}

#[tokio::test]
async fn retry_with_back_off_then_success() {
    let fixture = Fixture::start().await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let _worker = fixture.worker(|worker| {
        worker.register_activity("flaky", move |context, _| {
            attempts
                .lock()
                .unwrap()
                .push((context.attempt_number, Instant::now()));
            async move {
                match context.attempt_number {
                    3 => Ok(json!("third time lucky")),
                    _ => Err(ActivityError::new("Flaky", "not yet").into()),
                }
            }
        });
        worker.register_workflow("retry", |context, _| async move {
            let back_off = [Duration::ZERO, Duration::from_secs(1)];
            let policy = ActivityRetryPolicy::new(3).backoff_intervals(back_off);
            context
                .activity_with_options(
                    "flaky",
                    ActivityOptions::new().retry_policy(policy),
                    json!([]),
                )
                .await
        });
    });

    assert_eq!(
        fixture.run("retry", json!([])).await,
        json!("third time lucky")
    );

    let seen = seen.lock().unwrap().clone();
    assert_eq!(
        seen.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(
        seen[2].1 - seen[1].1 >= Duration::from_secs(1),
        "the second back-off is one second"
    );
    let history = fixture.closed_history("retry").await;
    assert_eq!(history.count("ActivityRetryScheduled"), 2);
    assert_eq!(history.count("ActivityStarted"), 3);
    assert_eq!(history.count("ActivityFailed"), 0);
}

/// What workflow code learns about a failed activity.
fn activity_failure(outcome: durable_workflow::Result<Value>) -> durable_workflow::Result<Value> {
    match outcome {
        Err(Error::ActivityFailed(failure)) => Ok(json!({
            "type": failure.exception_type,
            "message": failure.message,
            "non_retryable": failure.non_retryable,
            "category": failure.failure_category,
            "attempt": failure.attempt_number,
        })),
        other => Err(Error::WorkerLoop(format!(
            "expected a failed activity, got {other:?}"
        ))),
    }
}

async fn check_single_attempt(error: ActivityError, policy: ActivityRetryPolicy) {
    let fixture = Fixture::start().await;
    let expected = json!({
        "type": error.exception_type,
        "message": error.message,
        "non_retryable": true,
        "category": "activity",
        "attempt": 1,
    });
    let _worker = fixture.worker(|worker| {
        worker.register_activity("decline", move |_, _| {
            let error = error.clone();
            async move { Err(error.into()) }
        });
        worker.register_workflow("pay", move |context, _| {
            let options = ActivityOptions::new().retry_policy(policy.clone());
            async move {
                activity_failure(
                    context
                        .activity_with_options("decline", options, json!([]))
                        .await,
                )
            }
        });
    });

    assert_eq!(fixture.run("pay", json!([])).await, expected);

    let history = fixture.closed_history("pay").await;
    assert_eq!(history.count("ActivityStarted"), 1);
    assert_eq!(history.count("ActivityFailed"), 1);
    assert_eq!(history.count("ActivityRetryScheduled"), 0);
}

#[tokio::test]
async fn a_non_retryable_failure_is_tried_once() {
    let error = ActivityError::new("CardDeclined", "no money").non_retryable(true);
    check_single_attempt(error, ActivityRetryPolicy::new(5)).await;
}

#[tokio::test]
async fn a_failure_type_listed_as_non_retryable_is_tried_once() {
    let policy = ActivityRetryPolicy::new(5).non_retryable_error_type("CardDeclined");
    check_single_attempt(ActivityError::new("CardDeclined", "no money"), policy).await;
}

#[tokio::test]
async fn exhausted_retries_surface_the_last_failure() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_activity("always-fails", |context, _| async move {
            Err(ActivityError::new("Broken", format!("attempt {}", context.attempt_number)).into())
        });
        worker.register_workflow("give-up", |context, _| async move {
            let options = ActivityOptions::new().retry_policy(ActivityRetryPolicy::new(2));
            activity_failure(
                context
                    .activity_with_options("always-fails", options, json!([]))
                    .await,
            )
        });
    });

    let failure = fixture.run("give-up", json!([])).await;

    assert_eq!(failure["message"], "attempt 2");
    assert_eq!(failure["non_retryable"], false);
    assert_eq!(failure["attempt"], 2);
}

#[tokio::test]
async fn heartbeats_carry_details_and_bring_back_the_cancellation() {
    let fixture = Fixture::start().await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    let _worker = fixture.worker(|worker| {
        worker.register_activity("long", move |context, _| {
            let sender = sender.clone();
            async move {
                for step in 0.. {
                    let answer = context.heartbeat(json!({"step": step})).await?;
                    if answer.should_stop() {
                        sender.send(answer).expect("the test listens");
                        break;
                    }
                    sleep(Duration::from_millis(50)).await;
                }
                Ok(json!("ignored"))
            }
        });
        worker.register_workflow("cancelled", |context, _| async move {
            context.activity("long", json!([])).await
        });
    });
    let handle = fixture
        .start_workflow("cancelled", "cancelled", json!([]))
        .await;
    let history = fixture
        .wait_for_events("cancelled", "ActivityHeartbeatRecorded", 1)
        .await;
    let heartbeats = history.payloads("ActivityHeartbeatRecorded");
    assert_eq!(heartbeats[0]["progress"]["details"], json!({"step": 0}));

    handle
        .cancel(WorkflowCommandOptions::new().reason("enough"))
        .await
        .unwrap();

    let answer = timeout(DEADLINE, answers.recv())
        .await
        .expect("the activity gets an answer")
        .unwrap();
    assert!(answer.cancel_requested);
    assert_eq!(answer.can_continue, Some(false));
    assert_eq!(answer.reason.as_deref(), Some("run_cancelled"));
    assert!(matches!(
        result(&handle).await,
        Err(Error::WorkflowCancelled(_))
    ));
    assert_eq!(
        fixture
            .closed_history("cancelled")
            .await
            .count("ActivityCancelled"),
        1
    );
}

/// Unwraps the members of a group of activities.
fn activity_results(results: Vec<ParallelResult>) -> Vec<Value> {
    let unwrap = |result| match result {
        ParallelResult::Activity(value) => value,
        other => panic!("not an activity: {other:?}"),
    };
    results.into_iter().map(unwrap).collect()
}
