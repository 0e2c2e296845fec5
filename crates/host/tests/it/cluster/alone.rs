//! One server on a store that others could use. It keeps new tasks for a moment, because no other poll can be waiting for them.

use std::time::Duration;

use longhaul_host::clock::ManualClock;
use longhaul_host::{Config, Host};
use longhaul_store::memory::Cluster;

use super::{poll_now, server};
use crate::setup::{leased, register, start_of};

async fn start(host: &Host, workflow_id: &str) {
    host.workflows().start(start_of(workflow_id)).await.unwrap();
}

async fn polled(host: &Host) -> String {
    let task = leased(poll_now(host).await);
    task.claim.spec.workflow_id.to_string()
}

#[tokio::test(start_paused = true)]
async fn the_oldest_task_comes_first_and_polls_look_little() {
    let cluster = Cluster::default();
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let host = server(&cluster, &clock, Config::default()).await;
    register(&host, "w1").await;
    start(&host, "old").await;
    // The server keeps it no longer, and it is in the store alone.
    clock.advance_seconds(3);
    tokio::time::sleep(Duration::from_secs(3)).await;
    start(&host, "new").await;
    assert_eq!(polled(&host).await, "old");
    assert_eq!(polled(&host).await, "new");
    assert!(matches!(
        poll_now(&host).await,
        Ok(longhaul_host::Polled::Empty)
    ));
    // Nothing is in the store that is not here.
    let before = cluster.looks();
    for number in 0..50 {
        let workflow_id = format!("order-{number}");
        start(&host, &workflow_id).await;
        assert_eq!(polled(&host).await, workflow_id);
    }
    assert_eq!(cluster.looks(), before);
}
