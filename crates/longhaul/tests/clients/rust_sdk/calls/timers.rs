//! Durable timers: alone, at zero, several at once.

use std::time::{Duration, Instant};

use durable_workflow::{ParallelOperation, json};

use crate::rust_sdk::fixture::Fixture;

#[tokio::test]
async fn sleep_lasts_at_least_its_time() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("nap", |context, _| async move {
            context.sleep(Duration::ZERO).await?;
            context.sleep(Duration::from_secs(1)).await?;
            Ok(json!("awake"))
        });
    });
    let started = Instant::now();

    assert_eq!(fixture.run("nap", json!([])).await, json!("awake"));

    assert!(started.elapsed() >= Duration::from_secs(1));
    let history = fixture.closed_history("nap").await;
    assert_eq!(history.command_sequences("TimerScheduled"), [1, 2]);
    assert_eq!(history.command_sequences("TimerFired"), [1, 2]);
}

#[tokio::test]
async fn parallel_timers_run_side_by_side() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("naps", |context, _| async move {
            let timers = [(); 10].map(|()| ParallelOperation::timer(Duration::from_secs(1)));
            Ok(json!(context.parallel(timers.into()).await?.len()))
        });
    });
    let started = Instant::now();

    assert_eq!(fixture.run("naps", json!([])).await, json!(10));

    assert!(
        (1..10).contains(&started.elapsed().as_secs()),
        "ten timers of a second took {:?}",
        started.elapsed()
    );
    assert_eq!(fixture.closed_history("naps").await.count("TimerFired"), 10);
}
