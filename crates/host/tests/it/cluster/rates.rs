//! Rates count over all servers: no window has more than allowed, and almost all of it can be used, wherever the load is.

use longhaul_engine::queue::{Admission, Caps};
use longhaul_host::{Config, Host};
use longhaul_protocol::Timestamp;
use longhaul_store::memory::Delivery;
use longhaul_store::{DocumentKind, Registry as _};
use serde_json::json;

use super::{DELIVERIES, Servers, is_leased, poll_now, polling, servers, servers_with, settle};
use crate::setup::{batch_of, define, holder, leased, start_execution};

/// Dispatches per minute.
const CAP: usize = 20;

fn config() -> Config {
    Config {
        admission: Admission {
            workflow_tasks: Caps {
                max_dispatches_per_minute: Some(CAP as u64),
                ..Caps::default()
            },
            ..Admission::default()
        },
        ..Config::default()
    }
}

/// Checks that no window of these seconds has more than `max`.
fn expect_at_most(max: usize, seconds: u64, at: &[Timestamp]) {
    for (place, first) in at.iter().enumerate() {
        if let Some(later) = at.get(place + max) {
            assert!(
                first.plus_seconds(seconds) <= *later,
                "more than {max} in {seconds} s from {first} on"
            );
        }
    }
}

fn count(at: &[Timestamp], from: Timestamp, seconds: u64) -> usize {
    let to = from.plus_seconds(seconds);
    at.iter().filter(|at| **at >= from && **at < to).count()
}

/// Lets these servers give as many tasks as they may, for some minutes. Returns when they did.
async fn give_all(servers: &Servers, hosts: &[&Host], minutes: u64) -> Vec<Timestamp> {
    const STEP_SECONDS: u64 = 3;
    let mut given = Vec::new();
    for _ in 0..minutes * 60 / STEP_SECONDS {
        for host in hosts {
            while is_leased(&poll_now(host).await) {
                given.push(servers.first.now());
            }
        }
        servers.clock.advance_seconds(STEP_SECONDS);
        settle(servers).await;
    }
    given
}

async fn three(delivery: Delivery) -> (Servers, Host) {
    let servers = servers_with(delivery, config()).await;
    let third = servers.another(config()).await;
    for number in 0..4 * CAP {
        servers.start(&format!("order-{number}")).await;
    }
    (servers, third)
}

#[tokio::test(start_paused = true)]
async fn dispatches_are_capped_over_all_servers() {
    for delivery in DELIVERIES {
        let (servers, third) = three(delivery).await;
        let began = servers.first.now();
        let all = [&servers.first, &servers.second, &third];
        let given = give_all(&servers, &all, 3).await;
        expect_at_most(CAP, 60, &given);
        for minute in 0..3 {
            let from = began.plus_seconds(minute * 60);
            let given = count(&given, from, 60);
            assert!(given >= CAP * 9 / 10, "{delivery:?}: {given}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_server_can_use_the_whole_rate() {
    for delivery in DELIVERIES {
        let (servers, third) = three(delivery).await;
        let began = servers.first.now();
        // The others had a little work before, and have none from then on.
        let mut given = Vec::new();
        for host in [&servers.first, &servers.second] {
            leased(poll_now(host).await);
            given.push(began);
        }
        given.extend(give_all(&servers, &[&third], 3).await);
        expect_at_most(CAP, 60, &given);
        for minute in 0..3 {
            let from = began.plus_seconds(minute * 60);
            let given = count(&given, from, 60);
            assert!(given >= CAP * 9 / 10, "{delivery:?}: {given}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_server_takes_no_more_than_its_share_along() {
    let (servers, third) = three(Delivery::Never).await;
    let began = servers.first.now();
    leased(poll_now(&third).await);
    // Nothing of it runs any more.
    third.begin_stop();
    settle(&servers).await;
    let mut given = vec![began];
    given.extend(give_all(&servers, &[&servers.first, &servers.second], 3).await);
    expect_at_most(CAP, 60, &given);
    assert!(count(&given, began, 60) >= CAP * 9 / 10);
    assert!(count(&given, began.plus_seconds(120), 60) >= CAP * 9 / 10);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_poll_is_served_when_its_share_arrives() {
    for delivery in DELIVERIES {
        let servers = servers_with(delivery, config()).await;
        let waiting = polling(&servers.first, "w1", None, 60);
        settle(&servers).await;
        let before = tokio::time::Instant::now();
        servers.start("order-1").await;
        assert!(is_leased(&waiting.await.unwrap()));
        assert_eq!(
            before.elapsed(),
            std::time::Duration::ZERO,
            "{delivery:?}: no look was needed"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_at_another_server_is_no_dispatch() {
    let (servers, third) = three(Delivery::AtOnce).await;
    let task = leased(poll_now(&servers.first).await);
    for _ in 0..CAP {
        let heartbeat = third.workflow_tasks().heartbeat(&holder(&task)).await;
        heartbeat.unwrap();
        servers.clock.advance_seconds(1);
    }
    let began = servers.first.now();
    let given = give_all(&servers, &[&third], 1).await;
    assert_eq!(count(&given, began, 30), CAP - 1);
}

#[tokio::test(start_paused = true)]
async fn starts_of_a_task_definition_are_limited_over_all_servers() {
    const STARTS: usize = 10;
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let limit = json!({"rateLimitPerFrequency": STARTS, "rateLimitFrequencyInSeconds": 10});
        define(&servers.first, limit, &["t"]).await;
        for _ in 0..5 * STARTS {
            start_execution(&servers.first).await;
        }
        let began = servers.first.now();
        let mut started = Vec::new();
        for _ in 0..30 {
            for host in [&servers.first, &servers.second] {
                loop {
                    let tasks = host.execution_tasks().poll(&batch_of("t")).await.unwrap();
                    if tasks.is_empty() {
                        break;
                    }
                    started.extend(tasks.iter().map(|_| servers.first.now()));
                }
            }
            servers.clock.advance_seconds(1);
            settle(&servers).await;
        }
        expect_at_most(STARTS, 10, &started);
        // A second of this clock is a tenth of the window.
        let given = count(&started, began, 30);
        assert!(given >= 3 * STARTS * 9 / 10, "{delivery:?}: {given}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_gives_back_and_nothing_is_left_behind() {
    let servers = servers_with(Delivery::AtOnce, config()).await;
    servers.start("order-1").await;
    leased(poll_now(&servers.first).await);
    let store = servers.cluster.server();
    let records = async || {
        let documents = store.documents(DocumentKind::Rate, None).await.unwrap();
        let bodies = documents.into_iter().map(|document| document.body);
        bodies.collect::<Vec<String>>()
    };
    assert!(records().await[0].contains(servers.first.server_id()));
    servers.first.stop().await;
    assert!(!records().await[0].contains(servers.first.server_id()));
    // The audit of another server deletes the record.
    for _ in 0..45 {
        servers.clock.advance_seconds(3);
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    assert_eq!(records().await, Vec::<String>::new());
}
