//! Side effects, versions, memo, search attributes, continue-as-new, time and random numbers.

use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_sdk::{
    ActivityResult, Signal, WorkflowContext, WorkflowDefinition, WorkflowResult, activity, workflow,
};
use rand::Rng as _;
use serde_json::json;

use crate::scenarios;
use crate::stage::{Running, Stage};

const GO: Signal<()> = Signal::new("go");

static DRAWN: AtomicU32 = AtomicU32::new(0);

#[activity]
async fn step(number: u32) -> ActivityResult<u32> {
    Ok(number + 1)
}

#[workflow]
async fn drawing(ctx: WorkflowContext) -> WorkflowResult<(u32, bool, bool)> {
    let drawn = ctx.side_effect(|| DRAWN.fetch_add(1, Ordering::Relaxed))?;
    let before = (ctx.now(), ctx.random().random::<u64>());
    ctx.signals(&GO).recv().await?;
    let later = ctx.now() > before.0;
    let other = ctx.random().random::<u64>() != before.1;
    Ok((drawn, later, other))
}

async fn a_value_is_drawn_once(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<drawing>();
    let worker = Running::start(stage.worker().workflow::<drawing>().cached_runs(0)).await;
    let handle = stage.start(drawing()).await;
    stage.until(&handle, "ConditionWaitOpened", 1).await;
    let drawn = DRAWN.load(Ordering::Relaxed) - 1;
    handle.signal(&GO, ()).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), (drawn, true, true));
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow]
async fn countdown(ctx: WorkflowContext, left: u32, sum: u32) -> WorkflowResult<u32> {
    let sum = sum + ctx.activity(step(left)).await?;
    if left == 0 {
        return Ok(sum);
    }
    ctx.continue_as_new(countdown(left - 1, sum))
}

async fn a_run_continues_as_new(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<countdown>();
    let worker = stage.worker().workflow::<countdown>().activity::<step>();
    let worker = Running::start(worker).await;
    assert_eq!(stage.run(countdown(3, 0)).await, 10);
    let handle = stage.client.workflow::<u32>("w-0");
    assert_eq!(handle.runs().await.unwrap().len(), 4);
    for run in handle.runs().await.unwrap() {
        stage.check(&handle.of_run(run.run_id)).await;
    }
    worker.stop().await;
    stage
}

#[workflow]
async fn described(ctx: WorkflowContext) -> WorkflowResult<()> {
    ctx.upsert_memo(&json!({"stage": "packing", "boxes": 3}))?;
    let attributes = json!({"Priority": "high"});
    ctx.upsert_search_attributes(attributes.as_object().cloned().unwrap_or_default());
    ctx.signals(&GO).recv().await?;
    ctx.upsert_memo(&json!({"stage": "sent", "boxes": null}))?;
    Ok(())
}

async fn memo_and_attributes_are_shown(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<described>();
    let worker = Running::start(stage.worker().workflow::<described>()).await;
    let handle = stage.start(described()).await;
    stage.until(&handle, "ConditionWaitOpened", 1).await;
    let shown = handle.describe().await.unwrap();
    assert_eq!(shown.memo["stage"], "packing");
    assert_eq!(shown.search_attributes["Priority"], "high");
    handle.signal(&GO, ()).await.unwrap();
    handle.result().await.unwrap();
    let shown = handle.describe().await.unwrap();
    assert_eq!(shown.memo["stage"], "sent");
    assert!(shown.memo.get("boxes").is_none());
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

/// `pay` before and after a change in its middle.
fn pay(patched: bool) -> WorkflowDefinition {
    WorkflowDefinition::new("pay", move |ctx: WorkflowContext, (): ()| async move {
        let mut done = ctx.activity(step(1)).await?;
        ctx.signals(&GO).recv().await?;
        if patched && ctx.patched("tax") {
            done += ctx.activity(step(100)).await?;
        }
        done += ctx.activity(step(10)).await?;
        ctx.signals(&GO).recv().await?;
        if patched {
            // A second call returns the same.
            done += u32::from(ctx.patched("tax")) * 1000;
        }
        WorkflowResult::Ok(done)
    })
}

async fn old_runs_keep_the_old_path_of_changed_code(mut stage: Stage) -> Stage {
    let call = longhaul_sdk::WorkflowCall::<u32>::named("pay");
    let old_code = stage
        .worker()
        .workflow_definition(pay(false))
        .activity::<step>();
    let old_code = Running::start(old_code).await;
    // One run is past the change, the other is before it.
    let past = stage.start(call.clone()).await;
    past.signal(&GO, ()).await.unwrap();
    stage.until(&past, "ActivityCompleted", 2).await;
    let before = stage.start(call).await;
    stage.until(&before, "ConditionWaitOpened", 1).await;
    old_code.stop().await;

    stage.replayer = stage.replayer.workflow_definition(pay(true));
    let new_code = stage
        .worker()
        .workflow_definition(pay(true))
        .activity::<step>();
    let new_code = Running::start(new_code).await;
    past.signal(&GO, ()).await.unwrap();
    assert_eq!(past.result().await.unwrap(), 2 + 11);
    before.signal(&GO, ()).await.unwrap();
    before.signal(&GO, ()).await.unwrap();
    assert_eq!(before.result().await.unwrap(), 2 + 101 + 11 + 1000);
    for handle in [past, before] {
        stage.check(&handle).await;
    }
    new_code.stop().await;
    stage
}

scenarios!(
    a_value_is_drawn_once,
    a_run_continues_as_new,
    memo_and_attributes_are_shown,
    old_runs_keep_the_old_path_of_changed_code,
);
