//! Workflows that are asked to end, and what they do about it.

use std::sync::Arc;
use std::time::Duration;

use longhaul_sdk::client::Status;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Cancelled, Signal, WorkflowContext, WorkflowResult, activity,
    workflow,
};
use parking_lot::Mutex;

use crate::scenarios;
use crate::stage::{Running, Stage};

const GO: Signal<()> = Signal::new("go");

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }
}

#[activity]
async fn note(ctx: ActivityContext, what: String) -> ActivityResult<()> {
    ctx.data::<Arc<Seen>>().note(what);
    Ok(())
}

/// Runs until it is told to stop.
#[activity]
async fn endless(ctx: ActivityContext) -> ActivityResult<()> {
    ctx.data::<Arc<Seen>>().note("began");
    loop {
        if let Err(cancelled) = ctx.heartbeat().await {
            ctx.data::<Arc<Seen>>().note("stopped");
            return Err(cancelled.into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn noted(seen: &Seen, what: &str) {
    let looking = async {
        while !seen.0.lock().iter().any(|found| found == what) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::stage::DEADLINE, looking)
        .await
        .unwrap_or_else(|_| panic!("{what} was never noted"));
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
    let seen = Arc::new(Seen::default());
    let worker = stage
        .worker()
        .workflow::<cleans_up>()
        .activity::<endless>()
        .activity::<note>()
        .data(seen.clone());
    let worker = Running::start(worker).await;
    let handle = stage.start(cleans_up()).await;
    noted(&seen, "began").await;
    handle
        .request_cancellation(Some("closing time"), Some(Duration::from_secs(60)))
        .await
        .unwrap();
    handle.result().await.unwrap_err();
    assert_eq!(handle.describe().await.unwrap().status, Status::Cancelled);
    noted(&seen, "stopped").await;
    noted(&seen, "cleaned").await;
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
    // What must not be cut short.
    ctx.shielded(async move {
        inner.signals(&GO).recv().await?;
        inner.activity(note("finished".to_owned())).await?;
        WorkflowResult::Ok(())
    })
    .await?;
    assert!(ctx.is_cancelled());
    // The cancellation meets the first call after the shield.
    assert_eq!(go.recv().await, Err(Cancelled));
    Err(Cancelled.into())
}

async fn shielded_work_is_finished_first(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<careful>();
    let seen = Arc::new(Seen::default());
    let worker = stage
        .worker()
        .workflow::<careful>()
        .activity::<note>()
        .data(seen.clone());
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
    assert!(seen.0.lock().is_empty());
    handle.signal(&GO, ()).await.unwrap();
    handle.result().await.unwrap_err();
    assert_eq!(*seen.0.lock(), ["finished"]);
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
    let seen = Arc::new(Seen::default());
    let worker = stage
        .worker()
        .workflow::<waits>()
        .activity::<endless>()
        .data(seen.clone());
    let worker = Running::start(worker).await;
    for (number, terminate) in [false, true].into_iter().enumerate() {
        seen.0.lock().clear();
        let handle = stage.start(waits()).await;
        noted(&seen, "began").await;
        if terminate {
            handle.terminate(Some("enough")).await.unwrap();
        } else {
            handle.cancel(Some("enough")).await.unwrap();
        }
        noted(&seen, "stopped").await;
        handle.result().await.unwrap_err();
        let expected = if terminate {
            Status::Terminated
        } else {
            Status::Cancelled
        };
        assert_eq!(handle.describe().await.unwrap().status, expected);
        stage.check(&handle).await;
        // The outcome of a stopped attempt counts as cancelled, not as a lost lease.
        let counted = async {
            while worker.handle.metrics().runs_cancelled < number as u64 + 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(crate::stage::DEADLINE, counted)
            .await
            .expect("it is counted");
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
