//! Local activities: the worker of the workflow runs them, and every attempt is recorded.

use std::sync::Arc;
use std::time::Duration;

use longhaul_sdk::workflow::join;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Failure, FailureKind, RetryPolicy, Signal, State, TimeoutKind,
    WorkflowContext, WorkflowResult, activity, workflow,
};

use crate::scenarios;
use crate::stage::{Log, Running, Stage, heartbeats_until_stopped, types};

const GO: Signal<()> = Signal::new("go");

#[activity]
async fn write(ctx: ActivityContext, what: String) -> ActivityResult<u32> {
    let log = ctx.data::<Arc<Log>>();
    assert!(ctx.info().local);
    log.add(what);
    Ok(std::process::id())
}

#[activity]
async fn third_time(ctx: ActivityContext) -> ActivityResult<u64> {
    let attempt = ctx.info().attempt_number;
    ctx.data::<Arc<Log>>().add(format!("attempt {attempt}"));
    ctx.heartbeat_with(&serde_json::json!({"attempt": attempt}))
        .await?;
    if attempt < 3 {
        return Err(Failure::of_type("Wobble", "not yet"));
    }
    Ok(attempt)
}

#[activity]
async fn declined() -> ActivityResult<()> {
    Err(Failure::of_type("CardDeclined", "no money"))
}

#[activity]
async fn hangs() -> ActivityResult<()> {
    std::future::pending().await
}

#[activity]
async fn panics() -> ActivityResult<()> {
    panic!("out of cheese")
}

#[activity]
fn blocks(milliseconds: u64) -> ActivityResult<String> {
    // This is the work itself: it blocks its thread.
    std::thread::sleep(Duration::from_millis(milliseconds));
    Ok("awake".to_owned())
}

fn worker(stage: &Stage, log: &Arc<Log>) -> longhaul_sdk::worker::WorkerBuilder {
    stage
        .worker()
        .local_activity::<write>()
        .local_activity::<third_time>()
        .local_activity::<declined>()
        .local_activity::<hangs>()
        .local_activity::<panics>()
        .local_activity::<blocks>()
        .data(log.clone())
}

#[workflow]
async fn steps(ctx: WorkflowContext) -> WorkflowResult<Vec<u32>> {
    let first = ctx.local_activity(write("one".to_owned())).await?;
    let drawn = ctx.side_effect(|| 7_u32)?;
    let second = ctx.local_activity(write("two".to_owned())).await?;
    ctx.signals(&GO).recv().await?;
    let third = ctx.local_activity(write("three".to_owned())).await?;
    Ok(vec![first, drawn, second, third])
}

async fn steps_run_once_in_the_workers_process(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<steps>();
    let log = Arc::new(Log::default());
    let running = Running::start(worker(&stage, &log).workflow::<steps>()).await;
    let handle = stage.start(steps()).await;
    stage.until(&handle, "ConditionWaitOpened", 1).await;
    running.stop().await;
    // Another worker replays the recorded steps and runs only the new one.
    let running = Running::start(worker(&stage, &log).workflow::<steps>()).await;
    handle.signal(&GO, ()).await.unwrap();
    let pid = std::process::id();
    assert_eq!(handle.result().await.unwrap(), [pid, 7, pid, pid]);
    assert_eq!(log.lines(), ["one", "two", "three"]);
    assert_eq!(running.handle.metrics().local_activities, 1);
    let events = types(&handle).await;
    let scheduled = events.iter().filter(|event| *event == "ActivityScheduled");
    assert_eq!(scheduled.count(), 3);
    stage.check(&handle).await;
    running.stop().await;
    stage
}

#[workflow]
async fn tried(ctx: WorkflowContext) -> WorkflowResult<u64> {
    let policy = RetryPolicy::attempts(3).backoff([Duration::from_secs(1)]);
    let attempt = ctx.local_activity(third_time()).retry(policy).await?;
    Ok(attempt)
}

async fn failed_attempts_are_repeated_after_a_pause(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<tried>();
    let log = Arc::new(Log::default());
    let running = Running::start(worker(&stage, &log).workflow::<tried>()).await;
    let handle = stage.start(tried()).await;
    assert_eq!(handle.result().await.unwrap(), 3);
    assert_eq!(log.lines(), ["attempt 1", "attempt 2", "attempt 3"]);
    let events = types(&handle).await;
    let count = |event: &str| events.iter().filter(|found| *found == event).count();
    assert_eq!(count("ActivityRetryScheduled"), 2);
    assert_eq!(count("ActivityHeartbeatRecorded"), 3);
    stage.check(&handle).await;
    running.stop().await;
    stage
}

#[workflow]
async fn fails(ctx: WorkflowContext) -> WorkflowResult<Vec<String>> {
    let mut seen = Vec::new();
    let policy = RetryPolicy::attempts(5).give_up_on("CardDeclined");
    let error = ctx
        .local_activity(declined())
        .retry(policy)
        .await
        .unwrap_err();
    assert_eq!(error.attempt, Some(1));
    seen.push(format!("{:?} {}", error.kind, error.message));
    let error = ctx
        .local_activity(hangs())
        .start_to_close(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind, FailureKind::TimedOut(TimeoutKind::StartToClose));
    let error = ctx.local_activity(panics()).await.unwrap_err();
    seen.push(error.message.clone());
    let error = ctx
        .local_activity(longhaul_sdk::ActivityCall::<()>::named("elsewhere"))
        .await
        .unwrap_err();
    assert!(error.non_retryable);
    seen.push(error.exception_type.clone().unwrap_or_default());
    let refused = ctx
        .local_activity(hangs())
        .start_to_close(Duration::from_secs(2))
        .schedule_to_close(Duration::from_secs(1))
        .await
        .unwrap_err();
    seen.push(refused.message.clone());
    Ok(seen)
}

async fn failures_contain_what_happened(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<fails>();
    let log = Arc::new(Log::default());
    let running = Running::start(worker(&stage, &log).workflow::<fails>()).await;
    assert_eq!(
        stage.run(fails()).await,
        [
            "Failed no money",
            "the activity panicked: out of cheese",
            "UnknownActivityType",
            "the heartbeat timeout must not be longer than start_to_close, and start_to_close not longer than schedule_to_close"
        ]
    );
    running.stop().await;
    stage
}

#[workflow]
async fn concurrent(ctx: WorkflowContext) -> WorkflowResult<String> {
    let inner = ctx.clone();
    let signals = async move {
        let go = inner.signals(&GO);
        go.recv().await?;
        let name = "after the signal".to_owned();
        inner.local_activity(write(name)).await?;
        WorkflowResult::Ok(())
    };
    let (slept, first, second, signalled) = join!(
        ctx.sleep(Duration::ZERO),
        ctx.local_activity(blocks(200)).start(),
        ctx.local_activity(write("beside".to_owned())).start(),
        signals,
    );
    slept?;
    second?;
    signalled?;
    Ok(first?)
}

async fn local_activities_run_concurrently_with_other_calls(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<concurrent>();
    let log = Arc::new(Log::default());
    let running = Running::start(worker(&stage, &log).workflow::<concurrent>()).await;
    let handle = stage.start(concurrent()).await;
    handle.signal(&GO, ()).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), "awake");
    assert_eq!(log.count("beside"), 1);
    assert_eq!(log.count("after the signal"), 1);
    stage.check(&handle).await;
    running.stop().await;
    stage
}

#[workflow]
async fn tried_beside_signals(ctx: WorkflowContext) -> WorkflowResult<(u64, u32)> {
    let counted = State::new(0_u32);
    let counting = ctx.spawn({
        let (go, counted) = (ctx.signals(&GO), counted.clone());
        async move {
            while go.recv().await.is_ok() {
                counted.update(|count| *count += 1);
            }
        }
    });
    let policy = RetryPolicy::attempts(3).backoff([Duration::from_secs(2), Duration::ZERO]);
    let attempt = ctx.local_activity(third_time()).retry(policy).await?;
    drop(counting);
    Ok((attempt, counted.get()))
}

async fn a_signal_does_not_end_a_pause(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<tried_beside_signals>();
    let log = Arc::new(Log::default());
    let running = worker(&stage, &log).workflow::<tried_beside_signals>();
    let running = Running::start(running).await;
    let handle = stage.start(tried_beside_signals()).await;
    stage.until(&handle, "ActivityRetryScheduled", 1).await;
    for _ in 0..5 {
        handle.signal(&GO, ()).await.unwrap();
    }
    assert_eq!(handle.result().await.unwrap(), (3, 5));
    assert_eq!(log.lines(), ["attempt 1", "attempt 2", "attempt 3"]);
    // The second attempt began after its pause, by the clock of the server.
    let events = handle.history().all().await.unwrap();
    let of = |kind: &str, number: usize| {
        let mut found = events.iter().filter(|event| event.event_type == kind);
        found.nth(number).expect("the event exists").timestamp
    };
    let pause = of("ActivityRetryScheduled", 0).micros_until(of("ActivityStarted", 1));
    assert!(pause >= 2_000_000, "{pause} µs");
    stage.check(&handle).await;
    running.stop().await;
    stage
}

/// Runs until the server asks it to stop.
#[activity]
async fn endless(ctx: ActivityContext) -> ActivityResult<()> {
    let log = ctx.data::<Arc<Log>>();
    log.add("began");
    heartbeats_until_stopped(&ctx).await;
    log.add("stopped");
    Ok(())
}

#[workflow]
async fn cleans_up(ctx: WorkflowContext) -> WorkflowResult<()> {
    let work = ctx.local_activity(endless()).await;
    assert!(work.as_ref().is_err_and(|error| error.is_cancelled()));
    ctx.local_activity(write("cleaned".to_owned())).await?;
    Ok(work?)
}

async fn a_cancelled_workflow_cleans_up_locally(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<cleans_up>();
    let log = Arc::new(Log::default());
    let running = worker(&stage, &log)
        .local_activity::<endless>()
        .workflow::<cleans_up>();
    let running = Running::start(running).await;
    let handle = stage.start(cleans_up()).await;
    log.wait_for("began").await;
    handle
        .request_cancellation(None, Some(Duration::from_secs(60)))
        .await
        .unwrap();
    handle.result().await.unwrap_err();
    assert_eq!(log.lines(), ["began", "stopped", "cleaned"]);
    stage.check(&handle).await;
    running.stop().await;
    stage
}

scenarios!(
    steps_run_once_in_the_workers_process,
    failed_attempts_are_repeated_after_a_pause,
    failures_contain_what_happened,
    local_activities_run_concurrently_with_other_calls,
    a_signal_does_not_end_a_pause,
    a_cancelled_workflow_cleans_up_locally,
);
