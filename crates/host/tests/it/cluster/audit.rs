//! The audit of open runs: one server makes each pass, and another one takes the turn of a lost server.

use std::time::Duration;

use longhaul_store::memory::Delivery;
use longhaul_store::{DocumentKind, Registry as _};
use serde_json::Value;

use super::{DELIVERIES, Servers, servers};

/// Returns whose turn the last one was, and where the audit continues.
async fn turn(servers: &Servers) -> Option<(String, Value)> {
    let store = servers.cluster.server();
    let turns = store.documents(DocumentKind::Turn, None).await.unwrap();
    let turn: Value = serde_json::from_str(&turns.first()?.body).unwrap();
    let server = turn["server_id"].as_str().unwrap().to_owned();
    Some((server, turn["place"].clone()))
}

async fn pass_a_minute(servers: &Servers) {
    servers.clock.advance_seconds(61);
    tokio::time::sleep(Duration::from_secs(61)).await;
}

#[tokio::test(start_paused = true)]
async fn one_server_makes_each_pass() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        // A pass reads 200 of them.
        for number in 0..250 {
            servers.start(&format!("order-{number}")).await;
        }
        assert_eq!(turn(&servers).await, None);
        pass_a_minute(&servers).await;
        let (_, place) = turn(&servers).await.unwrap();
        assert_eq!(
            place["namespace"], "default",
            "{delivery:?}: a part is left"
        );
        pass_a_minute(&servers).await;
        let (_, place) = turn(&servers).await.unwrap();
        assert_eq!(
            place["namespace"],
            Value::Null,
            "{delivery:?}: all were read"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn another_server_takes_the_turn_of_a_lost_one() {
    let servers = servers(Delivery::Never).await;
    servers.start("order-1").await;
    pass_a_minute(&servers).await;
    let (of, _) = turn(&servers).await.unwrap();
    let (lost, other) = if of == servers.first.server_id() {
        (&servers.first, &servers.second)
    } else {
        (&servers.second, &servers.first)
    };
    lost.begin_stop();
    pass_a_minute(&servers).await;
    pass_a_minute(&servers).await;
    let (of, _) = turn(&servers).await.unwrap();
    assert_eq!(of, other.server_id());
}
