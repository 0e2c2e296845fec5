//! Signals, queries, updates, conditions.

use std::time::Duration;

use longhaul_sdk::client::{QueryError, UpdateError};
use longhaul_sdk::{
    Failure, Query, Signal, State, Update, ValidatedUpdate, WorkflowContext, WorkflowResult,
    workflow,
};

use crate::scenarios;
use crate::stage::{Running, Stage, types};

const NOTE: Signal<String> = Signal::new("note");
const CLOSE: Signal<()> = Signal::new("close");
const TOTAL: Query<(), i64> = Query::new("total");
const BROKEN: Query<(), i64> = Query::new("broken");
const DEPOSIT: ValidatedUpdate<i64, i64> = Update::validated("deposit");
const RENAME: Update<(String, u32), String> = Update::new("rename");

#[workflow(signals(NOTE, CLOSE), queries(TOTAL, BROKEN), updates(DEPOSIT, RENAME))]
async fn account(ctx: WorkflowContext) -> WorkflowResult<(i64, Vec<String>)> {
    let balance = State::new(0_i64);
    ctx.on_query(&TOTAL, &balance, |balance, ()| *balance);
    ctx.on_query(&BROKEN, &balance, |_, ()| -> i64 { panic!("do not ask") });
    ctx.on_validated_update(
        &DEPOSIT,
        &balance,
        |_, amount| {
            if *amount > 0 {
                Ok(())
            } else {
                Err(Failure::of_type("NotADeposit", "must be positive"))
            }
        },
        |balance, amount| {
            *balance += amount;
            Ok(*balance)
        },
    );
    ctx.on_update(&RENAME, &balance, |_, (name, times): (String, u32)| {
        if times == 0 {
            return Err(Failure::of_type("NoName", "nothing is left of it"));
        }
        Ok(name.repeat(times as usize))
    });
    let notes = ctx.signals(&NOTE);
    let close = ctx.signals(&CLOSE);
    let mut kept = Vec::new();
    close.recv().await?;
    while let Some(note) = notes.try_recv() {
        kept.push(note);
    }
    Ok((balance.get(), kept))
}

async fn an_account_gets_messages_of_all_kinds(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<account>();
    let worker = Running::start(stage.worker().workflow::<account>()).await;
    let handle = stage.start(account()).await;
    for note in ["one", "two"] {
        handle.signal(&NOTE, note.to_owned()).await.unwrap();
    }
    assert_eq!(handle.update(&DEPOSIT, 40).await.unwrap(), 40);
    assert_eq!(handle.update(&DEPOSIT, 2).await.unwrap(), 42);
    assert_eq!(handle.query(&TOTAL, ()).await.unwrap(), 42);
    let refused = handle.update(&DEPOSIT, -1).await.unwrap_err();
    assert!(matches!(refused, UpdateError::Rejected(_)), "{refused}");
    let renamed = handle.update(&RENAME, ("ab".to_owned(), 2)).await;
    assert_eq!(renamed.unwrap(), "abab");
    let failed = handle
        .update(&RENAME, ("ab".to_owned(), 0))
        .await
        .unwrap_err();
    assert!(
        failed.to_string().contains("nothing is left of it"),
        "{failed}"
    );
    let broken = handle.query(&BROKEN, ()).await.unwrap_err();
    assert!(broken.to_string().contains("do not ask"), "{broken}");
    let unknown = handle
        .query(&Query::<(), i64>::new("nothing"), ())
        .await
        .unwrap_err();
    assert!(matches!(unknown, QueryError::Unknown(_)), "{unknown}");
    assert!(handle.signal(&Signal::new("unheard"), ()).await.is_err());
    handle.signal(&CLOSE, ()).await.unwrap();
    let expected = (42, vec!["one".to_owned(), "two".to_owned()]);
    assert_eq!(handle.result().await.unwrap(), expected);
    // A closed run still answers queries.
    assert_eq!(handle.query(&TOTAL, ()).await.unwrap(), 42);
    assert!(handle.update(&DEPOSIT, 1).await.is_err());
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow]
async fn collector(ctx: WorkflowContext, count: usize) -> WorkflowResult<Vec<String>> {
    let notes = ctx.signals(&NOTE);
    let mut kept = Vec::new();
    while kept.len() < count {
        kept.push(notes.recv().await?);
    }
    Ok(kept)
}

async fn signals_arrive_in_order_across_restarts_of_the_worker(mut stage: Stage) -> Stage {
    const COUNT: usize = 30;
    stage.replayer = stage.replayer.workflow::<collector>();
    let handle = stage.start(collector(COUNT)).await;
    let names: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    // Before the first worker starts, while it runs, and before the second one starts.
    for note in &names[..10] {
        handle.signal(&NOTE, note.clone()).await.unwrap();
    }
    let worker = Running::start(stage.worker().workflow::<collector>()).await;
    for note in &names[10..20] {
        handle.signal(&NOTE, note.clone()).await.unwrap();
    }
    worker.stop().await;
    for note in &names[20..] {
        handle.signal(&NOTE, note.clone()).await.unwrap();
    }
    let worker = Running::start(stage.worker().workflow::<collector>().cached_runs(0)).await;
    assert_eq!(handle.result().await.unwrap(), names);
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

#[workflow(updates(DEPOSIT))]
async fn thresholds(ctx: WorkflowContext) -> WorkflowResult<Vec<bool>> {
    let balance = State::new(0_i64);
    ctx.on_validated_update(
        &DEPOSIT,
        &balance,
        |_, _| Ok(()),
        |balance, amount| {
            *balance += amount;
            Ok(*balance)
        },
    );
    let never = ctx
        .wait_until(|| false)
        .named("never")
        .timeout(Duration::from_secs(1))
        .await?;
    let at_least = |least: i64| {
        let balance = balance.clone();
        move || balance.get() >= least
    };
    let both = ctx.spawn({
        let (ctx, rich) = (ctx.clone(), at_least(100));
        async move { ctx.wait_until(rich).named("rich").await }
    });
    let some = ctx
        .wait_until(at_least(10))
        .timeout(Duration::from_secs(600))
        .await?;
    both.await?;
    Ok(vec![never, some])
}

async fn conditions_hold_or_time_out(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow::<thresholds>();
    let worker = Running::start(stage.worker().workflow::<thresholds>()).await;
    let handle = stage.start(thresholds()).await;
    stage.until(&handle, "ConditionWaitOpened", 3).await;
    handle.update(&DEPOSIT, 20).await.unwrap();
    handle.update(&DEPOSIT, 80).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), [false, true]);
    let events = types(&handle).await;
    let opened = events
        .iter()
        .filter(|event| *event == "ConditionWaitOpened");
    assert_eq!(opened.count(), 3, "repeated waits are not opened again");
    assert!(events.iter().any(|event| event == "TimerCancelled"));
    stage.check(&handle).await;
    worker.stop().await;
    stage
}

scenarios!(
    an_account_gets_messages_of_all_kinds,
    signals_arrive_in_order_across_restarts_of_the_worker,
    conditions_hold_or_time_out,
);
