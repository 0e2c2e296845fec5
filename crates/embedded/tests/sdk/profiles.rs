//! The two ways to record local activities, which the protocol calls profiles: with the completion of the workflow task (Profile I,
//! "inline", for older servers), and as they happen (Profile D, "durable"), so that a lost worker leaves a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_embedded::Embedded;
use longhaul_host::Config;
use longhaul_sdk::testing::Replayer;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, FailureKind, RetryPolicy, Signal,
    TimeoutKind, Worker, WorkflowContext, WorkflowResult, activity, workflow,
};

use crate::recording::{Recording, Tape};
use crate::stage::{DEADLINE, QUEUE, Running, types, until, until_events};

const GO: Signal<()> = Signal::new("go");

/// A server that cannot record attempts of local activities as they happen.
fn older(server: &Embedded) -> (Recording, Tape) {
    let (recording, tape) = Recording::new(server.transport());
    let recording = recording.replacing(
        "\"durable_local_activities\":true",
        "\"durable_local_activities\":false",
    );
    (recording, tape)
}

#[derive(Default)]
struct Calls(AtomicU32);

#[activity]
async fn third_time(ctx: ActivityContext) -> ActivityResult<u64> {
    let attempt = ctx.info().attempt_number;
    ctx.data::<Arc<Calls>>().0.fetch_add(1, Ordering::Relaxed);
    ctx.heartbeat_with(&serde_json::json!({"attempt": attempt}))
        .await?;
    if attempt < 3 {
        return Err(Failure::of_type("Wobble", "not yet"));
    }
    Ok(attempt)
}

#[activity]
async fn hangs() -> ActivityResult<()> {
    std::future::pending().await
}

/// Takes this long, without a heartbeat.
#[activity]
async fn quiet(milliseconds: u64) -> ActivityResult<()> {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    Ok(())
}

#[workflow]
async fn reported_at_the_end(ctx: WorkflowContext) -> WorkflowResult<Vec<String>> {
    let policy = RetryPolicy::attempts(3).backoff([Duration::from_secs(1), Duration::ZERO]);
    let attempt = ctx.local_activity(third_time()).retry(policy).await?;
    let late = ctx
        .local_activity(hangs())
        .start_to_close(Duration::from_secs(1))
        .await
        .unwrap_err();
    let silent = ctx
        .local_activity(quiet(1200))
        .heartbeat(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(silent.kind, FailureKind::TimedOut(TimeoutKind::Heartbeat));
    let whole = ctx
        .local_activity(hangs())
        .retry(RetryPolicy::attempts(5))
        .schedule_to_close(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(
        whole.kind,
        FailureKind::TimedOut(TimeoutKind::ScheduleToClose)
    );
    ctx.signals(&GO).recv().await?;
    Ok(vec![attempt.to_string(), format!("{:?}", late.kind)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_server_gets_local_activities_with_the_completion() {
    let server = Embedded::in_memory().await.unwrap();
    let (transport, tape) = older(&server);
    let client = Client::over(transport).connect().await.unwrap();
    let calls = Arc::new(Calls::default());
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<reported_at_the_end>()
        .local_activity::<third_time>()
        .local_activity::<hangs>()
        .local_activity::<quiet>()
        .data(calls.clone())
        .cached_runs(0);
    let worker = Running::start(worker).await;
    let handle = client
        .start(reported_at_the_end())
        .id("w")
        .queue(QUEUE)
        .await
        .unwrap();
    until_events(&handle, "ConditionWaitOpened", 1).await;
    handle.signal(&GO, ()).await.unwrap();
    // The second task replays the local activities and runs none of them again.
    assert_eq!(
        handle.result().await.unwrap(),
        ["3", "TimedOut(StartToClose)"]
    );
    assert_eq!(calls.0.load(Ordering::Relaxed), 3);
    let export = handle.export().await.unwrap().to_string();
    Replayer::new()
        .workflow::<reported_at_the_end>()
        .replay(&export)
        .unwrap();
    let sent = tape.all();
    assert!(
        sent.iter()
            .all(|sent| !sent.path.contains("local-activities"))
    );
    assert_eq!(tape.commands("record_local_activity").len(), 4);
    // The lease is confirmed before each of the six attempts and after each of the three heartbeats.
    let beats = sent
        .iter()
        .filter(|sent| sent.path.contains("workflow-tasks") && sent.path.ends_with("/heartbeat"));
    assert!(beats.count() >= 9);
    worker.stop().await;
    server.stop().await;
}

#[workflow]
async fn concurrent_with_others(ctx: WorkflowContext) -> WorkflowResult<()> {
    let timer = ctx.spawn({
        let ctx = ctx.clone();
        async move { ctx.sleep(Duration::from_secs(600)).await }
    });
    ctx.sleep(Duration::ZERO).await?;
    ctx.local_activity(quiet(0)).await?;
    timer.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_activity_beside_other_calls_fails_on_an_older_server() {
    let server = Embedded::in_memory().await.unwrap();
    let (transport, _tape) = older(&server);
    let client = Client::over(transport).connect().await.unwrap();
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<concurrent_with_others>()
        .local_activity::<quiet>();
    let worker = Running::start(worker).await;
    let handle = client
        .start(concurrent_with_others())
        .id("w")
        .queue(QUEUE)
        .await
        .unwrap();
    until("the workflow task fails", || {
        worker.handle.metrics().workflow_tasks_failed > 0
    })
    .await;
    assert!(
        !types(&handle)
            .await
            .contains(&"ActivityScheduled".to_owned())
    );
    worker.stop().await;
    server.stop().await;
}

/// Counts the attempts, and their side effects.
#[derive(Default)]
struct Effects {
    begun: AtomicU32,
    done: AtomicU32,
}

#[activity]
async fn effect(ctx: ActivityContext) -> ActivityResult<u64> {
    let effects = ctx.data::<Arc<Effects>>();
    effects.begun.fetch_add(1, Ordering::Relaxed);
    if ctx.info().attempt_number == 1 {
        // The side effect has happened; its outcome is never reported.
        effects.done.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>().await;
    }
    Ok(ctx.info().attempt_number)
}

#[workflow]
async fn interrupted(ctx: WorkflowContext, attempts: u32) -> WorkflowResult<String> {
    let policy = RetryPolicy::attempts(attempts);
    match ctx.local_activity(effect()).retry(policy).await {
        Ok(attempt) => Ok(format!("attempt {attempt}")),
        Err(error) => Ok(format!(
            "{:?}: {}",
            error.kind,
            error.exception_type.clone().unwrap_or_default()
        )),
    }
}

/// A worker is lost after the side effect of a local activity and before its outcome is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_attempt_is_followed_by_another_or_by_a_failure() {
    let mut config = Config::default();
    config.limits.workflow_task_lease_seconds = 2;
    let server = Embedded::builder().config(config).open().await.unwrap();
    let client = server.client();
    for (attempts, expected) in [(2, "attempt 2"), (1, "Failed: LocalActivityInterrupted")] {
        let effects = Arc::new(Effects::default());
        let worker = || {
            Worker::builder(&client, QUEUE)
                .workflow::<interrupted>()
                .local_activity::<effect>()
                .data(effects.clone())
                .drain_timeout(Duration::ZERO)
                .build()
        };
        let lost = tokio::spawn(worker().run());
        let handle = client
            .start(interrupted(attempts))
            .id(format!("w-{attempts}"))
            .queue(QUEUE)
            .await
            .unwrap();
        until("the attempt begins", || {
            effects.done.load(Ordering::Relaxed) > 0
        })
        .await;
        // As in a crash, the worker reports nothing.
        lost.abort();
        let _cancelled = lost.await;

        let next = worker();
        let stop = next.handle();
        let next = tokio::spawn(next.run());
        let result = tokio::time::timeout(DEADLINE, handle.result()).await;
        assert_eq!(result.expect("the workflow ends").unwrap(), expected);
        assert_eq!(effects.begun.load(Ordering::Relaxed), attempts);
        let export = handle.export().await.unwrap().to_string();
        Replayer::new()
            .workflow::<interrupted>()
            .replay(&export)
            .unwrap();
        assert_eq!(export.contains("cold_replay"), attempts > 1);
        stop.shut_down();
        next.await.unwrap().unwrap();
    }
    server.stop().await;
}
