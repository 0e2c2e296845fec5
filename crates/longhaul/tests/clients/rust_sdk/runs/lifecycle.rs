//! How runs begin and end: failures, duplicates, deadlines, cancel and terminate.

use std::time::Duration;

use durable_workflow::{
    ActivityError, ActivityOptions, Error, ParallelOperation, Worker, WorkflowCommandOptions,
    WorkflowStartOptions, WorkflowTerminalOutcome, json,
};

use crate::rust_sdk::fixture::{Fixture, QUEUE, result};

/// Registers `wait`, which waits for a signal that is never sent.
fn register_wait(worker: &mut Worker) {
    worker.register_workflow("wait", |context, _| async move {
        context.wait_signal("never").await?;
        Ok(json!(null))
    });
}

#[tokio::test]
async fn a_failed_workflow_returns_type_and_message() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("broken", |_, _| async {
            Err(Error::WorkerLoop("out of luck".to_owned()))
        });
    });
    let handle = fixture.start_workflow("broken", "broken", json!([])).await;

    let Err(Error::WorkflowFailed(failure)) = result(&handle).await else {
        panic!("expected a failure")
    };

    assert_eq!(failure.exception_type.as_deref(), Some("RustWorkflowError"));
    assert_eq!(
        failure.exception_class.as_deref(),
        Some("durable_workflow::Error")
    );
    assert_eq!(
        failure.message.as_deref(),
        Some("worker loop error: out of luck")
    );
    assert_eq!(failure.failure_category.as_deref(), Some("application"));
    assert_eq!(failure.non_retryable, Some(false));
    assert_eq!(
        fixture
            .closed_history("broken")
            .await
            .count("WorkflowFailed"),
        1
    );
}

#[tokio::test]
async fn an_uncaught_activity_failure_fails_the_workflow() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_activity("charge", |_, _| async {
            Err(ActivityError::new("CardDeclined", "no money").into())
        });
        worker.register_workflow("pay", |context, _| async move {
            context.activity("charge", json!([])).await
        });
    });
    let handle = fixture.start_workflow("pay", "pay", json!([])).await;

    let Err(Error::WorkflowFailed(failure)) = result(&handle).await else {
        panic!("expected a failure")
    };

    assert_eq!(failure.exception_type.as_deref(), Some("ActivityFailed"));
    let message = failure.message.unwrap_or_default();
    assert!(message.contains("no money"), "{message}");
}

#[tokio::test]
async fn an_id_can_be_started_once() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("once", |context, _| async move {
            Ok(json!(context.wait_signal("finish").await?))
        });
    });
    let handle = fixture.start_workflow("once", "once", json!([])).await;

    let while_open = fixture
        .client
        .start_workflow("once", QUEUE, "once", json!([]))
        .await;
    fixture.signal("once", "finish", json!(["the first"])).await;
    let outcome = result(&handle).await.unwrap();
    let after_close = fixture
        .client
        .start_workflow("once", QUEUE, "once", json!([]))
        .await;

    assert_eq!(outcome, json!(["the first"]));
    for refused in [while_open, after_close] {
        let Err(Error::Http { status, body }) = refused else {
            panic!("expected a refusal")
        };
        assert_eq!(status.as_u16(), 409, "{body}");
        assert!(body.contains("instance_already_started"), "{body}");
    }
    assert_eq!(fixture.server.control().run_ids("once").await.len(), 1);
}

#[tokio::test]
async fn a_run_ends_at_its_run_timeout() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_wait);
    let options = WorkflowStartOptions::new().run_timeout_seconds(1);
    let handle = fixture
        .start_workflow_with("wait", "overdue", options, json!([]))
        .await;

    let Err(Error::WorkflowTimedOut(outcome)) = result(&handle).await else {
        panic!("expected a timeout")
    };

    assert_eq!(outcome.reason, "run_timeout");
    assert_eq!(
        fixture
            .closed_history("overdue")
            .await
            .payloads("WorkflowTimedOut")[0]["timeout_kind"],
        "run_timeout"
    );
}

#[tokio::test]
async fn a_chain_of_runs_ends_at_its_execution_timeout() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        // Each run stays well within its own timeout; only the chain grows too long.
        worker.register_workflow("endless", |context, _| async move {
            context.sleep(Duration::from_secs(1)).await?;
            context.continue_as_new(json!([]))
        });
    });
    let options = WorkflowStartOptions::new()
        .run_timeout_seconds(3)
        .execution_timeout_seconds(3);
    let handle = fixture
        .start_workflow_with("endless", "endless", options, json!([]))
        .await;

    let Err(Error::WorkflowTimedOut(outcome)) = result(&handle).await else {
        panic!("expected a timeout")
    };

    assert_eq!(outcome.reason, "execution_timeout");
    assert!(fixture.server.control().run_ids("endless").await.len() >= 2);
    fixture.closed_history("endless").await;
}

/// Registers `busy`, which waits for an activity that no worker runs, a timer and a signal.
fn register_busy(worker: &mut Worker) {
    worker.register_workflow("busy", |context, _| async move {
        let unserved = ActivityOptions::new().task_queue("no-worker");
        let waits = vec![
            ParallelOperation::activity_with_options("anything", unserved, json!([])),
            ParallelOperation::timer(Duration::from_secs(600)),
            ParallelOperation::signal("never"),
        ];
        context.parallel(waits).await?;
        Ok(json!(null))
    });
}

fn check_closed_by_command(outcome: &WorkflowTerminalOutcome, reason: &str) {
    assert_eq!(outcome.reason, reason);
    assert_eq!(outcome.workflow_id, "busy");
}

#[tokio::test]
async fn cancel_closes_everything_the_run_waits_for() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_busy);
    let handle = fixture.start_workflow("busy", "busy", json!([])).await;
    fixture.wait_for_events("busy", "SignalWaitOpened", 1).await;

    let options = WorkflowCommandOptions::new()
        .reason("changed my mind")
        .request_id("cancel-1");
    let answer = handle.cancel(options.clone()).await.unwrap();
    handle
        .cancel(options)
        .await
        .expect("a repeated request gets the same answer");

    assert_eq!(answer.outcome.as_deref(), Some("cancelled"));
    let Err(Error::WorkflowCancelled(outcome)) = result(&handle).await else {
        panic!("expected a cancellation")
    };
    check_closed_by_command(&outcome, "changed my mind");
    let history = fixture.closed_history("busy").await;
    for event in [
        "CancelRequested",
        "ActivityCancelled",
        "TimerCancelled",
        "WorkflowCancelled",
    ] {
        assert_eq!(history.count(event), 1, "{event} in {:?}", history.types());
    }
    check_refuses_commands(&fixture).await;
}

#[tokio::test]
async fn terminate_closes_everything_the_run_waits_for() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_busy);
    let handle = fixture.start_workflow("busy", "busy", json!([])).await;
    fixture.wait_for_events("busy", "SignalWaitOpened", 1).await;

    let answer = handle
        .terminate(WorkflowCommandOptions::new().reason("operator"))
        .await
        .unwrap();

    assert_eq!(answer.outcome.as_deref(), Some("terminated"));
    let Err(Error::WorkflowTerminated(outcome)) = result(&handle).await else {
        panic!("expected a termination")
    };
    check_closed_by_command(&outcome, "operator");
    let history = fixture.closed_history("busy").await;
    for event in [
        "TerminateRequested",
        "ActivityCancelled",
        "TimerCancelled",
        "WorkflowTerminated",
    ] {
        assert_eq!(history.count(event), 1, "{event} in {:?}", history.types());
    }
    check_refuses_commands(&fixture).await;
}

/// Checks that a closed run accepts no further command and returns a reason that clients can use.
async fn check_refuses_commands(fixture: &Fixture) {
    let before = fixture.closed_history("busy").await.len();
    let cancelled = fixture
        .client
        .cancel_workflow("busy", WorkflowCommandOptions::new())
        .await;
    let Err(Error::WorkflowCommandRejected(rejection)) = cancelled else {
        panic!("expected a rejection")
    };
    assert_eq!(
        (rejection.status, rejection.reason.as_str()),
        (409, "run_not_active")
    );
    let signalled = fixture
        .client
        .signal_workflow("busy", "never", json!([]))
        .await;
    let Err(Error::Http { status, body }) = signalled else {
        panic!("expected a refusal")
    };
    assert_eq!(status.as_u16(), 409);
    assert!(body.contains("run_not_active"), "{body}");
    assert_eq!(fixture.closed_history("busy").await.len(), before);
}
