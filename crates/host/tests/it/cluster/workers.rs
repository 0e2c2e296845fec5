//! Workers and servers: signs of life, registrations, the list of servers.

use std::time::Duration;

use longhaul_host::Config;
use longhaul_protocol::id::WorkerId;
use longhaul_store::memory::Delivery;

use super::{DELIVERIES, poll_now, servers, settle};
use crate::setup::{namespace, register, registration};

#[tokio::test(start_paused = true)]
async fn a_worker_that_polls_at_one_server_is_alive_for_all() {
    let servers = servers(Delivery::Never).await;
    for _ in 0..8 {
        servers.clock.advance_seconds(20);
        let _ = poll_now(&servers.first).await;
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
    let (of, id) = (namespace(), WorkerId::from("w1"));
    let view = servers.second.workers().get(&of, &id).await.unwrap();
    assert_eq!(view.status(), "active");
    // Without a sign of life it is stale for both.
    servers.clock.advance_seconds(100);
    tokio::time::sleep(Duration::from_secs(11)).await;
    for host in [&servers.first, &servers.second] {
        let view = host
            .workers()
            .get(&namespace(), &WorkerId::from("w1"))
            .await;
        assert_eq!(view.unwrap().status(), "stale");
    }
}

#[tokio::test(start_paused = true)]
async fn a_registration_at_one_server_holds_at_the_other() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        poll_now(&servers.second).await.unwrap();
        let mut changed = registration("w1");
        changed.task_queue = "other".into();
        servers.first.workers().register(changed).await.unwrap();
        settle(&servers).await;
        let listed = servers.second.workers().all(&namespace()).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].row.task_queue.as_str(), "other", "{delivery:?}");
        let left = servers.first.workers();
        left.deregister(&namespace(), &WorkerId::from("w1"))
            .await
            .unwrap();
        settle(&servers).await;
        assert!(
            servers
                .second
                .workers()
                .all(&namespace())
                .await
                .unwrap()
                .is_empty()
        );
        let refused = poll_now(&servers.second).await;
        assert!(refused.is_err(), "{delivery:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn servers_are_listed_while_they_live() {
    let servers = servers(Delivery::AtOnce).await;
    let listed = servers.first.servers().await.unwrap();
    let ids: Vec<&str> = listed.iter().map(|row| row.server_id.as_str()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.contains(&servers.first.server_id()));
    assert!(ids.contains(&servers.second.server_id()));
    servers.second.stop().await;
    assert_eq!(servers.first.servers().await.unwrap().len(), 1);
    // One that is lost is listed until it was silent for long.
    let third = servers.another(Config::default()).await;
    settle(&servers).await;
    third.begin_stop();
    assert_eq!(servers.first.servers().await.unwrap().len(), 2);
    servers.clock.advance_seconds(120);
    assert_eq!(servers.first.servers().await.unwrap().len(), 0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let listed = servers.first.servers().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].server_id, servers.first.server_id());
}

#[tokio::test(start_paused = true)]
async fn a_new_server_does_not_revive_a_silent_worker() {
    let servers = servers(Delivery::AtOnce).await;
    register(&servers.first, "w2").await;
    servers.clock.advance_seconds(100);
    let _ = poll_now(&servers.first).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    let third = servers.another(Config::default()).await;
    let status = async |id: &str| {
        let view = third.workers().get(&namespace(), &WorkerId::from(id)).await;
        view.unwrap().status()
    };
    assert_eq!(status("w1").await, "active");
    assert_eq!(status("w2").await, "stale");
}
