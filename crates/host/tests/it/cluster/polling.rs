//! Which server's poll gets which task.

use std::time::Duration;

use longhaul_engine::change::TaskKind;
use longhaul_engine::queue::PollFilter;
use longhaul_host::Polled;
use longhaul_host::api::RolloutChange;
use longhaul_store::memory::Delivery;
use longhaul_store::{Look, QueueKey, Store as _, Wanted};

use super::{DELIVERIES, is_leased, poll_now, polling, servers, settle};
use crate::setup::{leased, namespace, poll_of, register};

#[tokio::test(start_paused = true)]
async fn a_task_made_at_one_server_reaches_a_poll_at_another() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let waiting = polling(&servers.second, "w1", None, 60);
        settle(&servers).await;
        servers.start("order-1").await;
        settle(&servers).await;
        let task = leased(waiting.await.unwrap());
        assert_eq!(
            task.claim.spec.workflow_id.as_str(),
            "order-1",
            "{delivery:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_does_not_wait_finds_the_task_of_another_server() {
    let servers = servers(Delivery::Never).await;
    servers.start("order-1").await;
    assert!(is_leased(&poll_now(&servers.second).await));
    let again = poll_now(&servers.second).await;
    assert!(!is_leased(&again), "there was one task");
}

#[tokio::test(start_paused = true)]
async fn polls_that_find_nothing_share_a_look_until_a_hint_comes() {
    let servers = servers(Delivery::AtOnce).await;
    let poll = poll_of("w1", None, 0);
    let before = servers.cluster.looks();
    for _ in 0..100 {
        let polled = servers.second.workflow_tasks().poll(&poll, 500).await;
        assert!(!is_leased(&polled));
    }
    assert_eq!(servers.cluster.looks() - before, 1);
    servers.start("order-1").await;
    settle(&servers).await;
    let polled = servers.second.workflow_tasks().poll(&poll, 500).await;
    assert!(is_leased(&polled), "the hint said that there is something");
}

#[tokio::test(start_paused = true)]
async fn polls_that_find_nothing_look_again_although_hints_are_lost() {
    let servers = servers(Delivery::Never).await;
    let poll = poll_of("w1", None, 0);
    let polled = servers.second.workflow_tasks().poll(&poll, 500).await;
    assert!(!is_leased(&polled));
    servers.start("order-1").await;
    tokio::time::advance(Duration::from_secs(3)).await;
    let polled = servers.second.workflow_tasks().poll(&poll, 500).await;
    assert!(is_leased(&polled));
}

/// The poll has an id, so another server may have given it a task.
#[tokio::test(start_paused = true)]
async fn a_repeated_poll_gets_its_lease_although_the_queue_was_quiet() {
    let servers = servers(Delivery::Never).await;
    let quiet = poll_of("w1", None, 0);
    let polled = servers.second.workflow_tasks().poll(&quiet, 500).await;
    assert!(!is_leased(&polled));
    servers.start("order-1").await;
    for wait_seconds in [0, 30] {
        let poll = poll_of("w1", Some("p1"), wait_seconds);
        let first = leased(servers.first.workflow_tasks().poll(&poll, 500).await);
        let again = leased(servers.second.workflow_tasks().poll(&poll, 500).await);
        assert_eq!(first.claim.task_id, again.claim.task_id);
        assert_eq!(first.claim.attempt, again.claim.attempt);
    }
}

#[tokio::test(start_paused = true)]
async fn each_task_goes_to_one_poll_of_all_servers() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let mut polls = Vec::new();
        for host in [&servers.first, &servers.second] {
            polls.extend((0..10).map(|_| polling(host, "w1", None, 60)));
        }
        settle(&servers).await;
        for number in 0..20 {
            servers.start(&format!("order-{number}")).await;
        }
        settle(&servers).await;
        let mut seen = std::collections::BTreeSet::new();
        for poll in polls {
            let task = leased(poll.await.unwrap());
            assert_eq!(task.claim.attempt, 1);
            assert!(seen.insert(task.claim.task_id), "{delivery:?}");
        }
        assert_eq!(seen.len(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_is_repeated_at_another_server_gets_the_same_lease() {
    let servers = servers(Delivery::Never).await;
    servers.start("order-1").await;
    servers.start("order-2").await;
    let poll = poll_of("w1", Some("p1"), 30);
    let first = leased(servers.first.workflow_tasks().poll(&poll, 500).await);
    let again = leased(servers.second.workflow_tasks().poll(&poll, 500).await);
    assert_eq!(first.claim.task_id, again.claim.task_id);
    assert_eq!(first.claim.attempt, again.claim.attempt);
    assert_eq!(first.claim.lease_expires_at, again.claim.lease_expires_at);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_waits_at_two_servers_gets_one_task() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let one = polling(&servers.first, "w1", Some("p1"), 60);
        let other = polling(&servers.second, "w1", Some("p1"), 60);
        settle(&servers).await;
        servers.start("order-1").await;
        settle(&servers).await;
        let (one, other) = (leased(one.await.unwrap()), leased(other.await.unwrap()));
        assert_eq!(one.claim.task_id, other.claim.task_id, "{delivery:?}");
        assert_eq!(one.claim.attempt, other.claim.attempt);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_stopped_server_took_goes_to_another_after_a_moment() {
    let servers = servers(Delivery::Never).await;
    servers.start("order-1").await;
    let lost = servers.cluster.server();
    let now = servers.first.now();
    let look = Look {
        now,
        reserved_until: now.plus_seconds(2),
        queues: vec![Wanted {
            queue: QueueKey {
                namespace: namespace(),
                kind: TaskKind::Workflow,
                queue: "q".into(),
            },
            polls: vec![(PollFilter::any("w1".into()), 1)],
        }],
        ..Look::default()
    };
    let taken = lost.shared().unwrap().look(&look).await.unwrap();
    assert_eq!(taken.tasks.len(), 1);
    let other = poll_now(&servers.second).await;
    assert!(!is_leased(&other), "it is left to the server that took it");
    let waiting = polling(&servers.second, "w1", None, 600);
    for _ in 0..10 {
        settle(&servers).await;
        servers.clock.advance_seconds(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(is_leased(&waiting.await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_drain_reaches_the_polls_of_every_server() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        register(&servers.second, "w2").await;
        let waiting = polling(&servers.second, "w2", None, 60);
        settle(&servers).await;
        let drained = servers
            .first
            .rollouts()
            .change(&namespace(), &"q".into(), None, RolloutChange::Drain)
            .await
            .unwrap();
        assert!(drained.is_ok());
        settle(&servers).await;
        let refused = waiting.await.unwrap();
        let reason = refused.err().map(|error| error.reason());
        assert_eq!(
            reason,
            Some(longhaul_protocol::Reason::WorkerDraining),
            "{delivery:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_poll_reads_nothing_of_its_own() {
    // Many polls wait; the looks of their server do not become more for it.
    let servers = servers(Delivery::AtOnce).await;
    let looks = |host: &longhaul_host::Host| {
        let mut registry = prometheus_client::registry::Registry::default();
        host.metrics().register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("longhaul_looks_total"));
        line.and_then(|line| line.split(' ').nth(1))
            .and_then(|count| count.parse::<u64>().ok())
            .unwrap()
    };
    let polls: Vec<_> = (0..200)
        .map(|_| polling(&servers.second, "w1", None, 10))
        .collect();
    settle(&servers).await;
    let before = looks(&servers.second);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let during = looks(&servers.second) - before;
    assert!((4..=6).contains(&during), "{during} looks in five seconds");
    for poll in polls {
        assert!(matches!(poll.await.unwrap(), Ok(Polled::Empty)));
    }
}
