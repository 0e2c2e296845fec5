//! Time: due work is done once, by the server that takes it, also if a server is lost.

use std::time::Duration;

use longhaul_host::HistoryRequest;
use longhaul_protocol::id::RunId;
use longhaul_protocol::sequence::HistorySeq;
use longhaul_store::memory::Delivery;
use serde_json::json;

use super::{DELIVERIES, Servers, complete, poll_now, servers, settle};
use crate::setup::{leased, namespace};

const TIMERS: usize = 30;

/// Starts workflows that wait for a timer. Returns their runs.
async fn wait_for_timers(servers: &Servers) -> Vec<RunId> {
    let mut runs = Vec::new();
    for number in 0..TIMERS {
        runs.push(servers.start(&format!("order-{number}")).await);
        let task = leased(poll_now(&servers.first).await);
        let sleep = json!([{"type": "start_timer", "delay_seconds": 60}]);
        complete(&servers.first, &task, sleep).await;
    }
    runs
}

async fn expect_fired_once(servers: &Servers, runs: &[RunId]) {
    for (number, run_id) in runs.iter().enumerate() {
        let request = HistoryRequest {
            namespace: namespace(),
            workflow_id: format!("order-{number}").as_str().into(),
            run_id: run_id.clone(),
            after: HistorySeq::ZERO,
            page_size: 100,
            wait: Duration::ZERO,
            until_closed: false,
        };
        let page = servers.second.workflows().history(&request).await.unwrap();
        let fired = page
            .events
            .iter()
            .filter(|event| event.event_type == "TimerFired");
        assert_eq!(fired.count(), 1, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn timers_fire_once_with_several_servers() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        let runs = wait_for_timers(&servers).await;
        servers.clock.advance_seconds(61);
        tokio::time::sleep(Duration::from_secs(12)).await;
        expect_fired_once(&servers, &runs).await;
    }
}

#[tokio::test(start_paused = true)]
async fn timers_of_a_lost_server_fire_at_another() {
    let servers = servers(Delivery::Never).await;
    let runs = wait_for_timers(&servers).await;
    // It stops without a word: nothing of it runs any more.
    servers.first.begin_stop();
    settle(&servers).await;
    servers.clock.advance_seconds(61);
    tokio::time::sleep(Duration::from_secs(12)).await;
    expect_fired_once(&servers, &runs).await;
}
