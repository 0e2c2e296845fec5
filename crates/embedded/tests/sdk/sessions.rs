//! Worker sessions: activities that run on the same worker, and what happens when they cannot.

use std::sync::Arc;
use std::time::Duration;

use longhaul_sdk::{
    ActivityContext, ActivityResult, Failure, Signal, WorkerSessionOptions, WorkflowContext,
    WorkflowResult, activity, workflow,
};

use crate::scenarios;
use crate::stage::{Log, QUEUE, Running, Stage, eventually, heartbeats_until_stopped, until};

const GO: Signal<()> = Signal::new("go");

/// The name of the worker.
struct Name(&'static str);

/// Returns the worker on which it runs, and the generation of its session.
#[activity]
async fn whereabouts(ctx: ActivityContext) -> ActivityResult<(String, u64)> {
    let session = ctx.session().ok_or_else(|| Failure::new("no session"))?;
    assert!(session.is_active());
    Ok((ctx.data::<Name>().0.to_owned(), session.generation()))
}

fn gpu(id: &str) -> WorkerSessionOptions {
    WorkerSessionOptions::new(id)
        .requires("gpu")
        .lease(Duration::from_secs(30))
}

#[workflow]
async fn affinity(ctx: WorkflowContext, id: String) -> WorkflowResult<Vec<(String, u64)>> {
    let session = ctx.session(gpu(&id));
    assert_eq!(session.id(), id);
    let mut seen = vec![session.activity(whereabouts()).await?];
    // The same session by its id.
    let again = ctx.session(gpu(&id));
    seen.push(again.activity(whereabouts()).await?);
    ctx.signals(&GO).recv().await?;
    seen.push(session.activity(whereabouts()).queue(QUEUE).await?);
    Ok(seen)
}

fn worker(stage: &Stage, name: &'static str) -> longhaul_sdk::worker::WorkerBuilder {
    stage
        .worker()
        .activity::<whereabouts>()
        .activity::<patient>()
        .id(name)
        .data(Name(name))
        .data(Arc::new(Log::default()))
}

async fn activities_stay_with_the_worker_that_holds_their_session(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<affinity>();
    let plain = Running::start(worker(&stage, "plain").workflow::<affinity>()).await;
    let one = Running::start(worker(&stage, "one").capability("gpu")).await;
    let two = Running::start(worker(&stage, "two").capability("gpu")).await;
    let handle = stage.start(affinity("s".to_owned())).await;
    stage.until(&handle, "ConditionWaitOpened", 1).await;
    handle.signal(&GO, ()).await.unwrap();
    let seen = handle.result().await.unwrap();
    assert_eq!(seen, vec![seen[0].clone(); 3], "one place, one generation");
    assert_eq!(seen[0].1, 1);
    let (holder, other) = match seen[0].0.as_str() {
        "one" => (one, two),
        "two" => (two, one),
        elsewhere => panic!("{elsewhere} has no gpu"),
    };
    stage.check(&handle).await;
    holder.stop().await;

    // The worker has closed the session when it ended.
    let refused = other.handle.session(gpu("s")).create().await.unwrap_err();
    assert_eq!(refused.reason(), "session_closed");
    other.stop().await;
    plain.stop().await;
    stage
}

async fn a_session_is_opened_renewed_and_closed_explicitly(stage: Stage) -> Stage {
    let one = Running::start(worker(&stage, "one").capability("gpu")).await;
    let two = Running::start(worker(&stage, "two").capability("gpu")).await;
    let plain = Running::start(worker(&stage, "plain")).await;
    let refused = plain
        .handle
        .session(gpu("by-hand"))
        .create()
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "session_requirements_not_met");
    let session = one.handle.session(gpu("by-hand"));
    let held = session.create().await.unwrap();
    assert_eq!(
        (held.id(), held.generation(), held.is_active()),
        ("by-hand", 1, true)
    );
    assert_eq!(
        session.create().await.unwrap().generation(),
        1,
        "the worker continues to hold it"
    );
    session.renew().await.unwrap();
    let refused = two
        .handle
        .session(gpu("by-hand"))
        .create()
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "session_owned_by_another_worker");
    session.close("done").await.unwrap();
    assert!(!held.is_active());
    let refused = session.renew().await.unwrap_err();
    assert_eq!(refused.reason(), "session_not_active");
    for worker in [one, two, plain] {
        worker.stop().await;
    }
    stage
}

async fn a_session_that_comes_back_is_another_generation(stage: Stage) -> Stage {
    let one = Running::start(worker(&stage, "one").capability("gpu")).await;
    let two = Running::start(worker(&stage, "two").capability("gpu")).await;
    let mine = one
        .handle
        .session(gpu("moving").lease(Duration::from_secs(1)));
    let theirs = two
        .handle
        .session(gpu("moving").lease(Duration::from_secs(1)));
    let first = mine.create().await.unwrap();
    mine.renew_in_background(false);
    // Without renewal, the other worker gets the session when its lease expires; then the first worker gets it back.
    let taken = eventually("the other worker gets the session", async || {
        theirs.create().await.ok()
    })
    .await;
    theirs.renew_in_background(false);
    assert_eq!(
        taken.generation(),
        1,
        "the second worker holds it for the first time"
    );
    assert!(mine.renew().await.is_err());
    assert!(!first.is_active());
    let back = eventually("the first worker gets the session back", async || {
        mine.create().await.ok()
    })
    .await;
    assert_eq!((first.generation(), back.generation()), (1, 2));
    assert!(back.is_active());
    one.stop().await;
    two.stop().await;
    stage
}

async fn a_session_is_renewed_while_nothing_runs(stage: Stage) -> Stage {
    let one = Running::start(worker(&stage, "one").capability("gpu")).await;
    let two = Running::start(worker(&stage, "two").capability("gpu")).await;
    let short = || gpu("idle").lease(Duration::from_secs(2));
    one.handle.session(short()).create().await.unwrap();
    until("the session is renewed four times", || {
        one.handle.metrics().session_renewals >= 4
    })
    .await;
    // More than one lease has passed.
    let refused = two.handle.session(short()).create().await.unwrap_err();
    assert_eq!(refused.reason(), "session_owned_by_another_worker");
    one.stop().await;
    two.stop().await;
    stage
}

/// Runs in its session until the server asks it to stop.
#[activity]
async fn patient(ctx: ActivityContext) -> ActivityResult<()> {
    let log = ctx.data::<Arc<Log>>();
    log.add("began");
    let stopped = heartbeats_until_stopped(&ctx).await;
    log.add("stopped");
    Err(stopped.into())
}

#[workflow]
async fn long(ctx: WorkflowContext) -> WorkflowResult<()> {
    let session = ctx.session(gpu("long"));
    session.activity(patient()).await?;
    Ok(())
}

async fn a_session_does_not_hide_a_cancellation(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<long>();
    let log = Arc::new(Log::default());
    let running = worker(&stage, "one")
        .capability("gpu")
        .workflow::<long>()
        .data(log.clone());
    let running = Running::start(running).await;
    let handle = stage.start(long()).await;
    log.wait_for("began").await;
    handle.cancel(None).await.unwrap();
    log.wait_for("stopped").await;
    stage.check(&handle).await;
    running.stop().await;
    stage
}

scenarios!(
    activities_stay_with_the_worker_that_holds_their_session,
    a_session_is_opened_renewed_and_closed_explicitly,
    a_session_that_comes_back_is_another_generation,
    a_session_is_renewed_while_nothing_runs,
    a_session_does_not_hide_a_cancellation,
);
