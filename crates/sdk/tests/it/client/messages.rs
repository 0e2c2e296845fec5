//! Signals, queries and updates, and their refusals.

use std::time::Duration;

use longhaul_sdk::client::{QueryError, UpdateError, WorkflowHandle};
use longhaul_sdk::{
    Failure, Query, Signal, State, Update, ValidatedUpdate, WorkflowCall, WorkflowContext,
    WorkflowDefinition, WorkflowResult, workflow,
};

use crate::support::{Bench, QUEUE, eventually};

const PUT: Signal<(String, u32)> = Signal::new("put");
const DONE: Signal<()> = Signal::new("done");
const STOCK: Query<String, Option<u32>> = Query::new("stock");
const TAKE: ValidatedUpdate<(String, u32), u32> = Update::validated("take");

#[workflow(signals(PUT, DONE), queries(STOCK), updates(TAKE))]
async fn store(ctx: WorkflowContext) -> WorkflowResult<u32> {
    let shelf = State::new(std::collections::BTreeMap::<String, u32>::new());
    ctx.on_query(&STOCK, &shelf, |shelf, name: String| {
        shelf.get(&name).copied()
    });
    ctx.on_validated_update(
        &TAKE,
        &shelf,
        |_, (name, _)| match name.as_str() {
            "" => Err(Failure::new("what?")),
            _ => Ok(()),
        },
        |shelf, (name, count)| {
            let there = shelf
                .get_mut(&name)
                .ok_or_else(|| Failure::new("none there"))?;
            *there = there
                .checked_sub(count)
                .ok_or_else(|| Failure::new("too few"))?;
            Ok(*there)
        },
    );
    let (puts, filled) = (ctx.signals(&PUT), shelf.clone());
    ctx.spawn(async move {
        while let Ok((name, count)) = puts.recv().await {
            filled.update(|shelf| *shelf.entry(name).or_default() += count);
        }
    });
    ctx.signals(&DONE).recv().await?;
    Ok(shelf.with(|shelf| shelf.values().sum()))
}

async fn opened() -> (Bench, WorkflowHandle<u32>) {
    let bench = Bench::staffed(|worker| worker.workflow::<store>()).await;
    let handle = bench
        .client
        .start(store())
        .queue(QUEUE)
        .await
        .expect("the server accepts it");
    (bench, handle)
}

async fn put(handle: &WorkflowHandle<u32>, name: &str, count: u32) {
    handle
        .signal(&PUT, (name.to_owned(), count))
        .await
        .expect("the server accepts it");
    eventually("the workflow reads the signal", async || {
        let stock = handle.query(&STOCK, name.to_owned()).await;
        stock.expect("an answer")
    })
    .await;
}

#[tokio::test]
async fn messages_of_all_kinds_reach_the_workflow() {
    let (_bench, handle) = opened().await;
    put(&handle, "pens", 5).await;
    assert_eq!(
        handle.update(&TAKE, ("pens".to_owned(), 2)).await.unwrap(),
        3
    );
    assert_eq!(
        handle.query(&STOCK, "pens".to_owned()).await.unwrap(),
        Some(3)
    );
    let accepted = handle
        .update(&TAKE, ("pens".to_owned(), 1))
        .send()
        .await
        .unwrap();
    assert!(!accepted.id().is_empty());
    assert_eq!(accepted.result().await.unwrap(), 2);
    handle.signal(&DONE, ()).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    // A closed workflow still answers queries.
    assert_eq!(
        handle.query(&STOCK, "pens".to_owned()).await.unwrap(),
        Some(2)
    );
    let error = handle.signal(&DONE, ()).await.unwrap_err();
    assert!(error.is_closed(), "{error}");
    let updates = handle.describe().await.unwrap().updates;
    let statuses: Vec<_> = updates
        .iter()
        .map(|update| update.status.as_str())
        .collect();
    assert_eq!(statuses, ["completed", "completed"]);
}

#[tokio::test]
async fn the_same_request_id_is_one_update() {
    let (_bench, handle) = opened().await;
    put(&handle, "pens", 5).await;
    let take = || {
        handle
            .update(&TAKE, ("pens".to_owned(), 2))
            .request_id("r-1")
    };
    assert_eq!(take().await.unwrap(), 3);
    assert_eq!(take().await.unwrap(), 3);
    let other = handle
        .update(&TAKE, ("pens".to_owned(), 1))
        .request_id("r-1");
    let UpdateError::Client(error) = other.await.unwrap_err() else {
        panic!("the server accepted the update");
    };
    assert_eq!(error.refusal().unwrap().reason(), "request_id_conflict");
    assert_eq!(
        handle.query(&STOCK, "pens".to_owned()).await.unwrap(),
        Some(3)
    );
}

#[tokio::test]
async fn an_update_is_rejected_before_or_fails_after_it_is_accepted() {
    let (_bench, handle) = opened().await;
    put(&handle, "pens", 5).await;
    let error = handle.update(&TAKE, (String::new(), 1)).await.unwrap_err();
    let UpdateError::Rejected(refusal) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(refusal.reason(), "update_validator_rejected");
    assert!(error.to_string().contains("what?"), "{error}");

    let error = handle
        .update(&TAKE, ("pens".to_owned(), 6))
        .await
        .unwrap_err();
    assert!(matches!(error, UpdateError::Failed { .. }), "{error:?}");
    assert_eq!(error.to_string(), "the update failed: too few");
    let accepted = handle
        .update(&TAKE, ("ink".to_owned(), 1))
        .send()
        .await
        .unwrap();
    let error = accepted.result().await.unwrap_err();
    assert_eq!(error.to_string(), "the update failed: none there");

    let error = handle.update_named::<_, ()>("give", ()).await.unwrap_err();
    let UpdateError::Rejected(refusal) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (refusal.status(), refusal.reason()),
        (404, "unknown_update")
    );
}

#[tokio::test]
async fn an_update_without_a_worker_times_out() {
    let bench = Bench::new().await;
    let start = bench.client.start(WorkflowCall::<()>::named("asleep"));
    let handle = start.queue(QUEUE).await.unwrap();
    let update = handle
        .update_named::<_, ()>("knock", ())
        .timeout(Duration::ZERO);
    let error = update.await.unwrap_err();
    assert!(matches!(error, UpdateError::TimedOut { .. }), "{error:?}");
}

#[tokio::test]
async fn queries_without_an_answer_return_the_reason() {
    let (bench, handle) = opened().await;
    let error = handle
        .query_named::<_, ()>("weather", ())
        .await
        .unwrap_err();
    assert!(matches!(error, QueryError::Unknown(_)), "{error:?}");
    let error = handle.query_named::<_, ()>("stock", 7).await.unwrap_err();
    let QueryError::Rejected(refusal) = &error else {
        panic!("{error:?}");
    };
    assert!(refusal.message().contains("expected a string"), "{refusal}");
    let unstaffed = bench
        .client
        .start(WorkflowCall::<()>::named("x"))
        .queue("empty");
    let unstaffed = unstaffed.await.unwrap();
    let error = unstaffed.query_named::<_, ()>("any", ()).await.unwrap_err();
    let QueryError::NoWorker(refusal) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(refusal.reason(), "query_worker_unavailable");
    let missing = bench.client.workflow::<()>("missing");
    let error = missing.query_named::<_, ()>("any", ()).await.unwrap_err();
    assert!(
        matches!(&error, QueryError::Client(error) if error.is_not_found()),
        "{error:?}"
    );
}

/// Lists no messages, so the server accepts every query and the worker decides.
fn quiet() -> WorkflowDefinition {
    WorkflowDefinition::new("quiet", |ctx: WorkflowContext, (): ()| async move {
        ctx.on_query(&STOCK, &State::new(()), |(), _| None);
        ctx.signals(&DONE).recv().await?;
        WorkflowResult::Ok(())
    })
}

#[tokio::test]
async fn a_worker_refuses_unknown_queries() {
    let bench = Bench::staffed(|worker| worker.workflow_definition(quiet())).await;
    let call = WorkflowCall::<()>::named("quiet");
    let handle = bench.client.start(call).queue(QUEUE).await.unwrap();
    let pens = "pens".to_owned();
    assert_eq!(handle.query(&STOCK, pens.clone()).await.unwrap(), None);
    let error = handle
        .query_named::<_, ()>("weather", ())
        .await
        .unwrap_err();
    let QueryError::Unknown(refusal) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(refusal.reason(), "rejected_unknown_query");
    handle.signal(&DONE, ()).await.unwrap();
    handle.result().await.unwrap();
    assert_eq!(handle.query(&STOCK, pens).await.unwrap(), None);
}

#[tokio::test]
async fn signals_that_no_workflow_takes_are_refused() {
    let (bench, handle) = opened().await;
    let error = handle.signal_named("weather", ()).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), "unknown_signal");
    let missing = bench.client.workflow::<()>("missing");
    let error = missing.signal(&DONE, ()).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), "instance_not_found");
    let error = handle.signal_named("put", f64::NAN).await.unwrap_err();
    assert_eq!(error.to_string(), "[0]: NaN and infinities cannot be sent");
}
