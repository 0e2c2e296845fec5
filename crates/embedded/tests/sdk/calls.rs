//! Activities, timers and child workflows, one at a time and concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_sdk::workflow::{Either, join_all, select, select_all};
use longhaul_sdk::{
    ActivityContext, ActivityResult, Failure, FailureKind, ParentClosePolicy, RetryPolicy, Saga,
    TimeoutKind, WorkflowContext, WorkflowResult, activity, workflow,
};
use serde::{Deserialize, Serialize};

use crate::scenarios;
use crate::stage::{Running, Stage};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

#[activity]
async fn price(order: Order) -> ActivityResult<u32> {
    Ok(order.count * 10)
}

#[activity]
fn blocking_sum(numbers: Vec<u32>) -> ActivityResult<u32> {
    Ok(numbers.iter().sum())
}

#[derive(Default)]
struct Attempts(AtomicU32);

#[activity]
async fn flaky(ctx: ActivityContext, fails: u32) -> ActivityResult<(u32, String)> {
    let attempts = ctx.data::<Arc<Attempts>>();
    if attempts.0.fetch_add(1, Ordering::Relaxed) < fails {
        return Err(Failure::of_type("Wobble", "not yet"));
    }
    Ok((
        ctx.info().attempt_number as u32,
        ctx.idempotency_key().to_owned(),
    ))
}

#[activity]
async fn declined(amount: u32) -> ActivityResult<()> {
    let failure = Failure::of_type("CardDeclined", "no money").code(402);
    Err(failure.details(&(amount, "EUR"))?)
}

#[activity]
async fn slow() -> ActivityResult<()> {
    std::future::pending().await
}

#[activity]
async fn panics() -> ActivityResult<()> {
    panic!("out of cheese")
}

#[workflow]
async fn checkout(ctx: WorkflowContext, order: Order) -> WorkflowResult<(u32, u32)> {
    let price = ctx.activity(price(order)).await?;
    let sum = ctx.activity(blocking_sum(vec![price, 2, 3])).await?;
    Ok((price, sum))
}

async fn typed_arguments_and_results(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<checkout>();
    let worker = stage
        .worker()
        .workflow::<checkout>()
        .activity::<price>()
        .activity::<blocking_sum>();
    let worker = Running::start(worker).await;
    let order = Order {
        item: "tea".to_owned(),
        count: 3,
    };
    assert_eq!(stage.run(checkout(order)).await, (30, 35));
    worker.stop().await;
    stage
}

#[workflow]
async fn stubborn(ctx: WorkflowContext, fails: u32) -> WorkflowResult<(u32, String)> {
    let policy = RetryPolicy::attempts(5);
    Ok(ctx.activity(flaky(fails)).retry(policy).await?)
}

async fn failed_attempts_are_repeated_under_one_key(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<stubborn>();
    let worker = stage
        .worker()
        .workflow::<stubborn>()
        .activity::<flaky>()
        .data(Arc::new(Attempts::default()));
    let worker = Running::start(worker).await;
    let (attempt, key) = stage.run(stubborn(2)).await;
    assert_eq!(attempt, 3);
    assert!(!key.is_empty());
    assert_eq!(worker.handle.metrics().activities_failed, 2);
    worker.stop().await;
    stage
}

#[workflow]
async fn catches(ctx: WorkflowContext) -> WorkflowResult<Vec<String>> {
    let mut seen = Vec::new();
    let declined = ctx.activity(declined(7)).await.unwrap_err();
    assert_eq!(declined.kind, FailureKind::Failed);
    let (amount, currency): (u32, String) = declined.details().unwrap()?;
    seen.push(format!(
        "{} {} {:?} {amount} {currency}",
        declined.exception_type.as_deref().unwrap_or(""),
        declined.message,
        declined.code,
    ));
    let late = ctx
        .activity(slow())
        .start_to_close(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(late.kind, FailureKind::TimedOut(TimeoutKind::StartToClose));
    seen.push(late.failure_category.clone());
    let broken = ctx.activity(panics()).await.unwrap_err();
    seen.push(broken.message.clone());
    Ok(seen)
}

async fn failures_contain_what_happened(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<catches>();
    let worker = stage
        .worker()
        .workflow::<catches>()
        .activity::<declined>()
        .activity::<slow>()
        .activity::<panics>()
        .drain_timeout(Duration::ZERO);
    let worker = Running::start(worker).await;
    assert_eq!(
        stage.run(catches()).await,
        [
            "CardDeclined no money Some(402) 7 EUR",
            "timeout",
            "the activity panicked: out of cheese"
        ]
    );
    worker.stop().await;
    stage
}

#[workflow]
async fn uncaught(ctx: WorkflowContext) -> WorkflowResult<()> {
    ctx.activity(declined(1)).await?;
    Ok(())
}

async fn an_uncaught_failure_fails_the_workflow(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<uncaught>();
    let worker = stage.worker().workflow::<uncaught>().activity::<declined>();
    let worker = Running::start(worker).await;
    let handle = stage.start(uncaught()).await;
    let error = handle.result().await.unwrap_err();
    assert!(error.to_string().contains("no money"), "{error}");
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow]
async fn wide(ctx: WorkflowContext, width: u32) -> WorkflowResult<u32> {
    let calls = (0..width).map(|count| {
        let item = "tea".to_owned();
        ctx.activity(price(Order { item, count })).start()
    });
    let prices = join_all(calls).await;
    let mut sum = 0;
    for price in prices {
        sum += price?;
    }
    Ok(sum)
}

async fn a_hundred_activities_run_concurrently(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<wide>();
    let worker = stage.worker().workflow::<wide>().activity::<price>();
    let worker = Running::start(worker).await;
    assert_eq!(stage.run(wide(100)).await, 49_500);
    worker.stop().await;
    stage
}

#[workflow]
async fn races(ctx: WorkflowContext) -> WorkflowResult<Vec<String>> {
    let mut seen = Vec::new();
    match select(
        ctx.sleep(Duration::from_secs(600)),
        ctx.activity(blocking_sum(vec![1])).start(),
    )
    .await
    {
        Either::First(_) => seen.push("the timer".to_owned()),
        Either::Second(sum) => seen.push(format!("the activity: {}", sum?)),
    }
    let in_time = ctx
        .timeout(Duration::from_secs(1), ctx.activity(slow()).start())
        .await?;
    seen.push(format!("in time: {}", in_time.is_some()));
    let in_time = ctx
        .timeout(
            Duration::from_secs(600),
            ctx.activity(blocking_sum(vec![2])).start(),
        )
        .await?;
    seen.push(format!("in time: {}", in_time.is_some()));
    let (first, index, rest) = select_all([
        Box::pin(ctx.sleep(Duration::from_secs(600))),
        Box::pin(ctx.sleep(Duration::from_secs(1))),
    ])
    .await;
    first?;
    seen.push(format!("{index} of {}", rest.len() + 1));
    Ok(seen)
}

async fn the_first_of_several(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<races>();
    let worker = stage
        .worker()
        .workflow::<races>()
        .activity::<blocking_sum>()
        .activity::<slow>()
        .drain_timeout(Duration::ZERO);
    let worker = Running::start(worker).await;
    assert_eq!(
        stage.run(races()).await,
        [
            "the activity: 1",
            "in time: false",
            "in time: true",
            "1 of 2"
        ]
    );
    worker.stop().await;
    stage
}

#[workflow]
async fn leaf(ctx: WorkflowContext, depth: u32) -> WorkflowResult<String> {
    match depth {
        0 => Err(Failure::of_type("Bottom", "nothing below").into()),
        1 => Ok("leaf".to_owned()),
        _ => Ok(format!("{}+", ctx.child(leaf(depth - 1)).await?)),
    }
}

#[workflow]
async fn family(ctx: WorkflowContext) -> WorkflowResult<Vec<String>> {
    let child = ctx
        .child(leaf(3))
        .parent_close(ParentClosePolicy::Terminate)
        .start();
    let (child_id, _) = child.started().await.expect("the child starts");
    assert!(!child_id.is_empty());
    let error = ctx.child(leaf(0)).await.unwrap_err();
    assert_eq!(error.kind, FailureKind::Failed);
    Ok(vec![
        child.await?,
        format!(
            "{}: {}",
            error.exception_type.unwrap_or_default(),
            error.message
        ),
    ])
}

async fn children_and_their_failures(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<family>().workflow::<leaf>();
    let worker = stage.worker().workflow::<family>().workflow::<leaf>();
    let worker = Running::start(worker).await;
    assert_eq!(
        stage.run(family()).await,
        ["leaf++", "Bottom: nothing below"]
    );
    worker.stop().await;
    stage
}

#[derive(Default)]
struct Ledger(parking_lot::Mutex<Vec<String>>);

#[activity]
async fn book(ctx: ActivityContext, what: String) -> ActivityResult<()> {
    ctx.data::<Arc<Ledger>>().0.lock().push(what);
    Ok(())
}

#[workflow]
async fn journey(ctx: WorkflowContext) -> WorkflowResult<()> {
    let mut saga = Saga::new(&ctx);
    let steps = async {
        for step in ["flight", "hotel"] {
            ctx.activity(book(step.to_owned())).await?;
            saga.undo(
                move |ctx| async move { Ok(ctx.activity(book(format!("no {step}"))).await?) },
            );
        }
        ctx.activity(declined(1)).await?;
        Ok(())
    }
    .await;
    saga.finish(steps).await
}

async fn a_saga_undoes_newest_first(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<journey>();
    let ledger = Arc::new(Ledger::default());
    let worker = stage
        .worker()
        .workflow::<journey>()
        .activity::<book>()
        .activity::<declined>()
        .data(ledger.clone());
    let worker = Running::start(worker).await;
    let handle = stage.start(journey()).await;
    handle.result().await.unwrap_err();
    assert_eq!(
        *ledger.0.lock(),
        ["flight", "hotel", "no hotel", "no flight"]
    );
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow]
async fn spawns(ctx: WorkflowContext) -> WorkflowResult<u32> {
    let tasks: Vec<_> = (1..=3_u32)
        .map(|n| {
            let inner = ctx.clone();
            ctx.spawn(async move {
                inner.sleep(Duration::ZERO).await?;
                let sum = inner.activity(blocking_sum(vec![n, n])).await?;
                WorkflowResult::Ok(sum)
            })
        })
        .collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await?;
    }
    Ok(sum)
}

async fn spawned_futures_run_concurrently(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<spawns>();
    let worker = stage
        .worker()
        .workflow::<spawns>()
        .activity::<blocking_sum>();
    let worker = Running::start(worker).await;
    assert_eq!(stage.run(spawns()).await, 12);
    worker.stop().await;
    stage
}

scenarios!(
    typed_arguments_and_results,
    failed_attempts_are_repeated_under_one_key,
    failures_contain_what_happened,
    an_uncaught_failure_fails_the_workflow,
    a_hundred_activities_run_concurrently,
    the_first_of_several,
    children_and_their_failures,
    a_saga_undoes_newest_first,
    spawned_futures_run_concurrently,
);
