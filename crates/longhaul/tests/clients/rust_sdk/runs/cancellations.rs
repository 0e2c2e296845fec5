//! Cooperative cancellation: the workflow gets a request, cleans up before the deadline, and ends as cancelled.

use std::sync::Arc;
use std::time::Duration;

use durable_workflow::{
    ActivityOptions, CancellationPolicy, ChildWorkflowOptions, CooperativeCancellationOptions,
    Error, ParentClosePolicy, Worker, WorkflowCommandOptions, WorkflowHandle, json,
};
use tokio::sync::Semaphore;

use crate::harness::{History, eventually};
use crate::rust_sdk::fixture::{Fixture, QUEUE, RunningWorker, new_worker, result};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(3600);

/// A worker that takes part in cancellation. `careful` waits as its argument says and cleans up when asked to end.
fn cooperative_worker(fixture: &Fixture) -> (RunningWorker, Arc<Semaphore>) {
    let mut worker =
        new_worker(fixture.client.clone(), "cooperative").cooperative_cancellation(true);
    let started = Arc::new(Semaphore::new(0));
    register(&mut worker, &started);
    (RunningWorker::start(worker), started)
}

fn register(worker: &mut Worker, started: &Arc<Semaphore>) {
    let started = Arc::clone(started);
    worker.register_activity("linger", move |_, _| {
        started.add_permits(1);
        std::future::pending()
    });
    worker.register_activity("clean", |_, _| async { Ok(json!("clean")) });
    worker.register_workflow("careful", |context, arguments| async move {
        let policy = match arguments[1].as_str() {
            Some("wait") => CancellationPolicy::WaitCancellationCompleted,
            Some("abandon") => CancellationPolicy::Abandon,
            _ => CancellationPolicy::TryCancel,
        };
        let waited = match arguments[0].as_str() {
            Some("activity") => {
                let options = ActivityOptions::new()
                    .cancellation_policy(policy)
                    .schedule_to_close_timeout(Duration::from_secs(600));
                let linger = context.activity_with_options("linger", options, json!([]));
                linger.await.map(|_| ())
            }
            Some("child") => {
                let options = ChildWorkflowOptions::new(QUEUE).cancellation_policy(policy);
                let child = context.start_child_workflow("careful", options, json!(["timer"]));
                child.await.map(|_| ())
            }
            Some("signal") => context.wait_signal("go").await.map(|_| ()),
            _ => context.sleep(NEVER).await,
        };
        let Err(asked) = waited else {
            return Ok(json!("never asked"));
        };
        let Error::CooperativeCancellationRequested(_) = &asked else {
            return Err(asked);
        };
        let shield = context.cancellation_shield()?;
        context.activity("clean", json!([])).await?;
        drop(shield);
        match arguments[0].as_str() {
            Some("signal") => Ok(json!("ended well")),
            _ => Err(asked),
        }
    });
    worker.register_workflow("guardian", |context, _| async move {
        let options = ChildWorkflowOptions::new(QUEUE)
            .parent_close_policy(ParentClosePolicy::RequestCancellation);
        let child = context.start_child_workflow("careful", options, json!(["timer"]));
        Ok(child.await?.result)
    });
    worker.register_workflow("stubborn", |context, _| async move {
        let asked = context.sleep(NEVER).await;
        let _shield = context.cancellation_shield()?;
        context.sleep(NEVER).await?;
        asked.map(|()| json!("never asked"))
    });
}

/// Waits until the workflow has closed with a status, and returns its history.
async fn closed(fixture: &Fixture, workflow_id: &str, status: &str) -> History {
    eventually(&format!("{workflow_id} is {status}"), || async {
        let described = fixture.describe(workflow_id).await;
        (described.status.as_deref() == Some(status)).then_some(())
    })
    .await;
    fixture.closed_history(workflow_id).await
}

async fn ask(handle: &WorkflowHandle) {
    handle
        .request_cancellation(CooperativeCancellationOptions::default())
        .await
        .expect("the request is taken");
}

#[tokio::test]
async fn a_timer_is_interrupted_and_cleanup_runs() {
    let fixture = Fixture::start().await;
    let _worker = cooperative_worker(&fixture);
    let handle = fixture
        .start_workflow("careful", "timer", json!(["timer"]))
        .await;
    fixture.wait_for_events("timer", "TimerScheduled", 1).await;
    let options = CooperativeCancellationOptions {
        reason: Some("maintenance".to_owned()),
        cleanup_timeout_seconds: Some(60),
    };
    let asked = handle.request_cancellation(options.clone()).await.unwrap();
    let again = handle.request_cancellation(options).await;
    if let Ok(again) = again {
        // The run may have ended meanwhile; while it is open a repeat is the same request.
        assert!(again.duplicate);
        assert_eq!(again.cancellation_request, asked.cancellation_request);
    }
    let history = closed(&fixture, "timer", "cancelled").await;
    for event in [
        "CooperativeCancellationRequested",
        "CooperativeCancellationDelivered",
        "TimerCancelled",
        "ActivityCompleted",
    ] {
        assert_eq!(history.count(event), 1, "{event}");
    }
    assert!(matches!(
        result(&handle).await,
        Err(Error::WorkflowCancelled(_))
    ));
}

#[tokio::test]
async fn a_workflow_may_end_well_after_cleanup() {
    let fixture = Fixture::start().await;
    let _worker = cooperative_worker(&fixture);
    let handle = fixture
        .start_workflow("careful", "signal", json!(["signal"]))
        .await;
    fixture
        .wait_for_events("signal", "SignalWaitOpened", 1)
        .await;
    ask(&handle).await;
    assert_eq!(result(&handle).await.unwrap(), json!("ended well"));
}

#[tokio::test]
async fn a_running_activity_is_stopped() {
    let fixture = Fixture::start().await;
    let (_worker, started) = cooperative_worker(&fixture);
    for policy in ["try", "wait"] {
        let handle = fixture
            .start_workflow("careful", policy, json!(["activity", policy]))
            .await;
        started.acquire().await.expect("open").forget();
        ask(&handle).await;
        let history = closed(&fixture, policy, "cancelled").await;
        assert_eq!(history.count("ActivityCancelled"), 1, "{policy}");
        assert_eq!(history.count("ActivityCompleted"), 1, "{policy}");
    }
}

#[tokio::test]
async fn a_child_is_cancelled_before_its_parent_cleans_up() {
    let fixture = Fixture::start().await;
    let _worker = cooperative_worker(&fixture);
    let handle = fixture
        .start_workflow("careful", "parent", json!(["child", "wait"]))
        .await;
    let history = fixture
        .wait_for_events("parent", "ChildRunStarted", 1)
        .await;
    let child = &history.payloads("ChildRunStarted")[0]["child_workflow_instance_id"];
    let child = child.as_str().expect("an id").to_owned();
    fixture.wait_for_events(&child, "TimerScheduled", 1).await;
    ask(&handle).await;
    let history = closed(&fixture, "parent", "cancelled").await;
    assert_eq!(history.count("ChildRunCancelled"), 1);
    let child = closed(&fixture, &child, "cancelled").await;
    assert_eq!(child.count("ActivityCompleted"), 1);
}

#[tokio::test]
async fn an_abandoned_activity_is_not_stopped_first() {
    let fixture = Fixture::start().await;
    let (_worker, started) = cooperative_worker(&fixture);
    let handle = fixture
        .start_workflow("careful", "abandon", json!(["activity", "abandon"]))
        .await;
    started.acquire().await.expect("open").forget();
    ask(&handle).await;
    let history = closed(&fixture, "abandon", "cancelled").await;
    let types = history.types();
    let place = |event: &str| types.iter().position(|found| *found == event);
    let delivered = place("CooperativeCancellationDelivered").expect("delivered");
    assert!(place("ActivityCancelled").is_none_or(|place| place > delivered));
}

#[tokio::test]
async fn a_child_cleans_up_when_its_parent_is_closed() {
    let fixture = Fixture::start().await;
    let _worker = cooperative_worker(&fixture);
    let parent = fixture
        .start_workflow("guardian", "guardian", json!([]))
        .await;
    let history = fixture
        .wait_for_events("guardian", "ChildRunStarted", 1)
        .await;
    let child = &history.payloads("ChildRunStarted")[0]["child_workflow_instance_id"];
    let child = child.as_str().expect("an id").to_owned();
    fixture.wait_for_events(&child, "TimerScheduled", 1).await;
    parent
        .terminate(WorkflowCommandOptions::new())
        .await
        .expect("the parent is terminated");
    let child = closed(&fixture, &child, "cancelled").await;
    assert_eq!(child.count("CooperativeCancellationDelivered"), 1);
    assert_eq!(child.count("ActivityCompleted"), 1);
}

#[tokio::test]
async fn cleanup_is_bounded() {
    let fixture = Fixture::start().await;
    let _worker = cooperative_worker(&fixture);
    let handle = fixture
        .start_workflow("stubborn", "stubborn", json!([]))
        .await;
    fixture
        .wait_for_events("stubborn", "TimerScheduled", 1)
        .await;
    let brief = CooperativeCancellationOptions {
        reason: None,
        cleanup_timeout_seconds: Some(1),
    };
    handle.request_cancellation(brief).await.unwrap();
    let history = closed(&fixture, "stubborn", "cancelled").await;
    assert_eq!(history.count("CooperativeCancellationDelivered"), 1);
}

#[tokio::test]
async fn without_a_capable_worker_the_request_is_refused() {
    let fixture = Fixture::start().await;
    let handle = fixture
        .start_workflow("careful", "no-worker", json!(["timer"]))
        .await;
    let refused = handle
        .request_cancellation(CooperativeCancellationOptions::default())
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("cooperative_cancellation_not_supported"),
        "{refused}"
    );
}
