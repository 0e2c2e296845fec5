//! Local activities of the Rust SDK: retried, failing, with bytes, and replayed by another worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use durable_workflow::{
    ActivityRetryPolicy, AvroValue, Error, LocalActivityOptions, Value, Worker, json,
};

use crate::rust_sdk::fixture::{Fixture, RunningWorker, new_worker, result};

fn start(fixture: &Fixture, id: &str, register: impl FnOnce(&mut Worker)) -> RunningWorker {
    let mut worker = new_worker(fixture.client.clone(), id).local_activities(true);
    register(&mut worker);
    RunningWorker::start(worker)
}

#[tokio::test]
async fn a_failure_is_retried_with_heartbeats_and_without_a_task() {
    let fixture = Fixture::start().await;
    let _worker = start(&fixture, "worker-1", |worker| {
        worker.register_activity("flaky", |context, _| async move {
            context
                .heartbeat(json!({"attempt": context.attempt_number}))
                .await?;
            if context.attempt_number < 3 {
                return Err(Error::WorkerLoop("not yet".into()));
            }
            Ok(json!(context.attempt_number))
        });
        worker.register_workflow("retried", |context, _| async move {
            let policy =
                ActivityRetryPolicy::new(3).backoff_intervals([Duration::ZERO, Duration::ZERO]);
            let options = LocalActivityOptions::new()
                .retry_policy(policy)
                .start_to_close_timeout(Duration::from_secs(30));
            context
                .local_activity_with_options("flaky", options, json!([]))
                .await
        });
    });
    assert_eq!(fixture.run("retried", json!([])).await, json!(3));
    let history = fixture.closed_history("retried").await;
    assert_eq!(
        history.types()[2..],
        [
            "ActivityScheduled",
            "ActivityStarted",
            "ActivityHeartbeatRecorded",
            "ActivityRetryScheduled",
            "ActivityStarted",
            "ActivityHeartbeatRecorded",
            "ActivityRetryScheduled",
            "ActivityStarted",
            "ActivityHeartbeatRecorded",
            "ActivityCompleted",
            "WorkflowCompleted",
        ]
    );
    let heartbeats = history.payloads("ActivityHeartbeatRecorded");
    assert_eq!(heartbeats[0]["progress"]["codec"], "avro", "an envelope");
}

#[tokio::test]
async fn bytes_come_back_as_bytes() {
    let fixture = Fixture::start().await;
    let _worker = start(&fixture, "worker-1", |worker| {
        worker.register_activity_avro_value("echo", |_, arguments| async move { Ok(arguments) });
        worker.register_workflow_avro_value("bytes", |context, _| async move {
            let bytes = AvroValue::Bytes((0..=255).collect());
            context.local_activity_avro_value("echo", bytes).await
        });
    });
    fixture.run("bytes", json!([])).await;
    let history = fixture.closed_history("bytes").await;
    let scheduled = &history.payloads("ActivityScheduled")[0]["activity"];
    let completed = &history.payloads("ActivityCompleted")[0];
    assert_eq!(scheduled["arguments"], completed["result"]);
}

#[tokio::test]
async fn a_failure_reaches_the_workflow_and_is_the_same_on_replay() {
    let fixture = Fixture::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let register = |worker: &mut Worker| {
        let calls = Arc::clone(&calls);
        worker.register_activity("decline", move |_, _| {
            calls.fetch_add(1, Ordering::SeqCst);
            async { Err::<Value, _>(Error::WorkerLoop("no funds".into())) }
        });
        worker.register_workflow("declined", |context, _| async move {
            let failed = context.local_activity("decline", json!([])).await;
            let message = failed.expect_err("it fails").to_string();
            context.wait_signal("go").await?;
            Ok(json!(message))
        });
    };
    let handle = fixture
        .start_workflow("declined", "declined", json!([]))
        .await;
    let first = start(&fixture, "worker-1", register);
    fixture
        .wait_for_events("declined", "SignalWaitOpened", 1)
        .await;
    first.stop().await;
    let _second = start(&fixture, "worker-2", register);
    fixture.signal("declined", "go", json!([])).await;
    let message = result(&handle).await.expect("a result");
    assert!(
        message
            .as_str()
            .is_some_and(|text| text.contains("no funds")),
        "{message}"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1, "replay does not call it");
    let history = fixture.closed_history("declined").await;
    assert_eq!(history.count("ActivityFailed"), 1);
}
