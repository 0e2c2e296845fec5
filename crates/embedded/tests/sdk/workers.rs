//! Workers: their cache, restarts, shutdown and drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_sdk::worker::Ended;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Signal, WorkflowContext, WorkflowResult, activity, workflow,
};
use tokio::sync::Notify;

use crate::scenarios;
use crate::stage::{Running, Stage};

const GO: Signal<u32> = Signal::new("go");

#[activity]
async fn step(number: u32) -> ActivityResult<u32> {
    Ok(number + 1)
}

#[workflow]
async fn rounds(ctx: WorkflowContext, count: u32) -> WorkflowResult<u32> {
    let go = ctx.signals(&GO);
    let mut sum = 0;
    for _ in 0..count {
        sum += go.recv().await?;
        sum = ctx.activity(step(sum)).await?;
    }
    Ok(sum)
}

async fn runs_stay_in_memory_between_tasks(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<rounds>();
    let worker = stage
        .worker()
        .workflow::<rounds>()
        .activity::<step>()
        .cached_runs(2);
    let worker = Running::start(worker).await;
    let mut handles = Vec::new();
    for _ in 0..3 {
        handles.push(stage.start(rounds(2)).await);
    }
    for round in 1..=2 {
        for handle in &handles {
            handle.signal(&GO, round).await.unwrap();
            if round == 1 {
                stage.until(handle, "ActivityCompleted", 1).await;
            }
        }
    }
    for handle in &handles {
        assert_eq!(handle.result().await.unwrap(), 5);
        stage.check(handle).await;
    }
    let metrics = worker.handle.metrics();
    assert!(metrics.cache_hits > 0, "{metrics:?}");
    assert!(metrics.cache_evictions > 0, "{metrics:?}");
    worker.stop().await;
    stage
}

async fn every_round_may_have_another_worker(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<rounds>();
    let handle = stage.start(rounds(4)).await;
    for round in 0..4 {
        let worker = stage.worker().workflow::<rounds>().activity::<step>();
        let worker = Running::start(worker).await;
        handle.signal(&GO, 1).await.unwrap();
        stage.until(&handle, "ActivityCompleted", round + 1).await;
        worker.stop().await;
    }
    let worker = Running::start(stage.worker().workflow::<rounds>().activity::<step>()).await;
    assert_eq!(handle.result().await.unwrap(), 8);
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[derive(Default)]
struct Gate {
    began: Notify,
    open: Notify,
    done: AtomicU32,
}

#[activity]
async fn gated(ctx: ActivityContext) -> ActivityResult<u32> {
    let gate = ctx.data::<Arc<Gate>>();
    gate.began.notify_one();
    gate.open.notified().await;
    Ok(gate.done.fetch_add(1, Ordering::Relaxed))
}

#[workflow]
async fn one_gate(ctx: WorkflowContext) -> WorkflowResult<u32> {
    Ok(ctx.activity(gated()).await?)
}

async fn a_stopping_worker_finishes_its_tasks(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<one_gate>();
    let gate = Arc::new(Gate::default());
    let worker = stage
        .worker()
        .workflow::<one_gate>()
        .activity::<gated>()
        .data(gate.clone());
    let worker = Running::start(worker).await;
    let handle = stage.start(one_gate()).await;
    gate.began.notified().await;
    worker.handle.shut_down();
    // No worker takes another run. The activity continues only now.
    let orphan = stage.start(one_gate()).await;
    gate.open.notify_one();
    assert_eq!(worker.ended().await, Ended::ShutDown);
    stage.until(&handle, "ActivityCompleted", 1).await;
    assert_eq!(gate.done.load(Ordering::Relaxed), 1);

    gate.open.notify_one();
    let worker = stage
        .worker()
        .workflow::<one_gate>()
        .activity::<gated>()
        .data(gate.clone());
    let worker = Running::start(worker).await;
    assert_eq!(handle.result().await.unwrap(), 0);
    assert_eq!(orphan.result().await.unwrap(), 1);
    worker.stop().await;
    stage
}

async fn a_drained_build_ends_its_workers(stage: Stage) -> Stage {
    let worker = stage
        .worker()
        .workflow::<rounds>()
        .activity::<step>()
        .build_id("old");
    let worker = Running::start(worker).await;
    let (client, queue) = (&stage.client, crate::stage::QUEUE);
    client.drain_build(queue, Some("old")).await.unwrap();
    assert_eq!(worker.ended().await, Ended::Drained);
    client.resume_build(queue, Some("old")).await.unwrap();
    let worker = stage
        .worker()
        .workflow::<rounds>()
        .activity::<step>()
        .build_id("old");
    let worker = Running::start(worker).await;
    let handle = stage.start(rounds(1)).await;
    handle.signal(&GO, 1).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    worker.stop().await;
    stage
}

async fn more_runs_than_slots(stage: Stage) -> Stage {
    const RUNS: u32 = 50;
    let worker = stage
        .worker()
        .workflow::<rounds>()
        .activity::<step>()
        .max_concurrent_workflow_tasks(3)
        .max_concurrent_activities(2)
        .cached_runs(5);
    let worker = Running::start(worker).await;
    let mut handles = Vec::new();
    for _ in 0..RUNS {
        let handle = stage.start(rounds(1)).await;
        handle.signal(&GO, 1).await.unwrap();
        handles.push(handle);
    }
    for handle in handles {
        assert_eq!(handle.result().await.unwrap(), 2);
    }
    tokio::time::timeout(Duration::from_secs(60), worker.stop())
        .await
        .expect("the worker ends");
    stage
}

scenarios!(
    runs_stay_in_memory_between_tasks,
    every_round_may_have_another_worker,
    a_stopping_worker_finishes_its_tasks,
    a_drained_build_ends_its_workers,
    more_runs_than_slots,
);
