//! Cancellation of workflows: cooperative, scoped, shielded and immediate.

use std::sync::Arc;
use std::time::Duration;

use longhaul_sdk::client::Status;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Cancelled, Signal, WorkflowContext, WorkflowResult, activity,
    workflow,
};

use crate::scenarios;
use crate::stage::{Log, Running, Stage, heartbeats_until_stopped, until};

const GO: Signal<()> = Signal::new("go");

#[activity]
async fn note(ctx: ActivityContext, what: String) -> ActivityResult<()> {
    ctx.data::<Arc<Log>>().add(what);
    Ok(())
}

/// Runs until the server asks it to stop.
#[activity]
async fn endless(ctx: ActivityContext) -> ActivityResult<()> {
    let log = ctx.data::<Arc<Log>>();
    log.add("began");
    let cancelled = heartbeats_until_stopped(&ctx).await;
    log.add("stopped");
    Err(cancelled.into())
}

#[workflow]
async fn cleans_up(ctx: WorkflowContext) -> WorkflowResult<()> {
    let work = ctx.activity(endless()).await;
    assert!(ctx.is_cancelled());
    assert_eq!(ctx.cancellation_reason().as_deref(), Some("closing time"));
    // Calls after the cancellation work.
    ctx.activity(note("cleaned".to_owned())).await?;
    ctx.sleep(Duration::from_secs(1)).await?;
    Ok(work?)
}

async fn a_workflow_cleans_up_and_ends(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<cleans_up>();
    let log = Arc::new(Log::default());
    let worker = stage
        .worker()
        .workflow::<cleans_up>()
        .activity::<endless>()
        .activity::<note>()
        .data(log.clone());
    let worker = Running::start(worker).await;
    let handle = stage.start(cleans_up()).await;
    log.wait_for("began").await;
    handle
        .request_cancellation(Some("closing time"), Some(Duration::from_secs(60)))
        .await
        .unwrap();
    handle.result().await.unwrap_err();
    assert_eq!(handle.describe().await.unwrap().status, Status::Cancelled);
    log.wait_for("stopped").await;
    log.wait_for("cleaned").await;
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow]
async fn goes_on(ctx: WorkflowContext) -> WorkflowResult<String> {
    let scope = ctx.cancellation_scope();
    let inner = ctx.clone();
    let (work, ()) = longhaul_sdk::workflow::join!(
        scope.run(async move { inner.sleep(Duration::from_secs(600)).await }),
        async {
            ctx.sleep(Duration::from_secs(1)).await.ok();
            scope.cancel();
        }
    );
    assert_eq!(work, Err(Cancelled));
    let late = scope.run(ctx.sleep(Duration::ZERO)).await;
    assert_eq!(late, Err(Cancelled));
    assert!(!ctx.is_cancelled());
    Ok("done".to_owned())
}

async fn a_scope_ends_without_its_workflow(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<goes_on>();
    let worker = Running::start(stage.worker().workflow::<goes_on>()).await;
    assert_eq!(stage.run(goes_on()).await, "done");
    worker.stop().await;
    stage
}

#[workflow]
async fn careful(ctx: WorkflowContext) -> WorkflowResult<()> {
    let go = ctx.signals(&GO);
    let inner = ctx.clone();
    // Work that a cancellation must not interrupt.
    ctx.shielded(async move {
        inner.signals(&GO).recv().await?;
        inner.activity(note("finished".to_owned())).await?;
        WorkflowResult::Ok(())
    })
    .await?;
    assert!(ctx.is_cancelled());
    // The first call after the shield is cancelled.
    assert_eq!(go.recv().await, Err(Cancelled));
    Err(Cancelled.into())
}

async fn shielded_work_is_finished_first(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<careful>();
    let log = Arc::new(Log::default());
    let worker = stage
        .worker()
        .workflow::<careful>()
        .activity::<note>()
        .data(log.clone());
    let worker = Running::start(worker).await;
    let handle = stage.start(careful()).await;
    stage.until(&handle, "ConditionWaitOpened", 2).await;
    handle
        .request_cancellation(None, Some(Duration::from_secs(60)))
        .await
        .unwrap();
    stage
        .until(&handle, "CooperativeCancellationDelivered", 1)
        .await;
    assert!(log.lines().is_empty());
    handle.signal(&GO, ()).await.unwrap();
    handle.result().await.unwrap_err();
    assert_eq!(log.lines(), ["finished"]);
    assert_eq!(handle.describe().await.unwrap().status, Status::Cancelled);
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow]
async fn waits(ctx: WorkflowContext) -> WorkflowResult<()> {
    ctx.activity(endless()).await?;
    Ok(())
}

async fn a_cancelled_run_stops_its_activities(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<waits>();
    let log = Arc::new(Log::default());
    let worker = stage
        .worker()
        .workflow::<waits>()
        .activity::<endless>()
        .data(log.clone());
    let worker = Running::start(worker).await;
    for (number, terminate) in [false, true].into_iter().enumerate() {
        log.clear();
        let handle = stage.start(waits()).await;
        log.wait_for("began").await;
        if terminate {
            handle.terminate(Some("enough")).await.unwrap();
        } else {
            handle.cancel(Some("enough")).await.unwrap();
        }
        log.wait_for("stopped").await;
        handle.result().await.unwrap_err();
        let expected = if terminate {
            Status::Terminated
        } else {
            Status::Cancelled
        };
        assert_eq!(handle.describe().await.unwrap().status, expected);
        stage.check(&handle).await;
        // The outcome of a stopped attempt counts as cancelled, not as a lost lease.
        until("the cancelled run is counted", || {
            worker.handle.metrics().runs_cancelled > number as u64
        })
        .await;
    }
    assert_eq!(worker.handle.metrics().leases_lost, 0);
    worker.stop().await;
    stage
}

scenarios!(
    a_workflow_cleans_up_and_ends,
    a_scope_ends_without_its_workflow,
    shielded_work_is_finished_first,
    a_cancelled_run_stops_its_activities,
);
