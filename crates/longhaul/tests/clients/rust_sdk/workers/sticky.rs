//! Sticky execution: a worker that keeps histories in memory gets its runs back, and cold replay is always right.

use std::pin::Pin;
use std::time::Duration;

use durable_workflow::{StickyCacheMetrics, StickyCacheOptions, Worker, json};
use tokio::time::timeout;

use crate::harness::DEADLINE;
use crate::rust_sdk::fixture::{Fixture, new_worker, result};

/// A worker with a cache. `rounds` draws a value once and waits for a given number of `next` signals.
fn sticky_worker(fixture: &Fixture, id: &str) -> Worker {
    let mut worker = new_worker(fixture.client.clone(), id)
        .build_id("one")
        .sticky_cache(StickyCacheOptions::new(16).ttl(Duration::from_secs(60)))
        .expect("valid options");
    worker.register_workflow("rounds", |context, arguments| async move {
        let drawn = context.side_effect(|| "drawn once".to_owned())?;
        let mut values = Vec::new();
        for _ in 0..arguments[0].as_u64().unwrap_or(0) {
            values.push(context.wait_signal("next").await?[0].clone());
        }
        Ok(json!([drawn, values]))
    });
    worker
}

/// Runs the worker until `story` ends. Returns the statistics of its cache.
fn beside<'a>(
    worker: &'a Worker,
    story: impl Future<Output = ()> + 'a,
) -> Pin<Box<dyn Future<Output = StickyCacheMetrics> + 'a>> {
    Box::pin(async move {
        let (ended, over) = tokio::sync::oneshot::channel::<()>();
        let running = worker.run_until(async move {
            // A story that panics drops the sender; the worker ends either way.
            let _panicked = over.await;
        });
        let story = async move {
            story.await;
            let _worker_gone = ended.send(());
        };
        let (ended, ()) = timeout(2 * DEADLINE, async { tokio::join!(running, story) })
            .await
            .expect("the worker ends in time");
        ended.expect("the worker stops cleanly");
        worker.sticky_cache_metrics().expect("counters")
    })
}

#[tokio::test]
async fn a_run_is_served_from_memory() {
    const ROUNDS: usize = 5;
    let fixture = Fixture::start().await;
    let worker = sticky_worker(&fixture, "keeper");
    let counters = beside(&worker, async {
        let handle = fixture
            .start_workflow("rounds", "rounds", json!([ROUNDS]))
            .await;
        for number in 0..ROUNDS {
            fixture
                .wait_for_events("rounds", "SignalWaitOpened", number + 1)
                .await;
            fixture.signal("rounds", "next", json!([number])).await;
        }
        assert_eq!(
            result(&handle).await.unwrap(),
            json!(["drawn once", [0, 1, 2, 3, 4]])
        );
    })
    .await;
    // A poll that was already open when the history was put away does not know of it yet.
    assert!(counters.hit >= 1, "{counters:?}");
    let history = fixture.closed_history("rounds").await;
    assert_eq!(history.count("SideEffectRecorded"), 1);
}

#[tokio::test]
async fn another_worker_takes_over_from_history() {
    let fixture = Fixture::start().await;
    let handle = fixture.start_workflow("rounds", "rounds", json!([2])).await;
    let gone = sticky_worker(&fixture, "gone");
    beside(&gone, async {
        fixture
            .wait_for_events("rounds", "SignalWaitOpened", 1)
            .await;
    })
    .await;
    fixture.signal("rounds", "next", json!(["one"])).await;
    fixture.signal("rounds", "next", json!(["two"])).await;
    let heir = sticky_worker(&fixture, "heir");
    let counters = beside(&heir, async {
        assert_eq!(
            result(&handle).await.unwrap(),
            json!(["drawn once", ["one", "two"]])
        );
    })
    .await;
    assert!(counters.miss >= 1, "{counters:?}");
    let history = fixture.closed_history("rounds").await;
    assert_eq!(history.count("SideEffectRecorded"), 1);
}
