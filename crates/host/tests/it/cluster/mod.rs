//! Two servers on one store. Each case holds whatever becomes of the hints between them: delivered, repeated, late in the wrong order,
//! or lost. Time is the runtime's and does not pass by itself, so waiting for the net costs nothing.

use std::sync::Arc;

use longhaul_host::clock::ManualClock;
use longhaul_host::{Config, Host, Polled, Result};
use longhaul_store::memory::{Cluster, Delivery};

mod caps;
mod copies;
mod polling;
mod questions;
mod time;
mod workers;

use crate::setup::register;

/// What may become of hints.
const DELIVERIES: [Delivery; 4] = [
    Delivery::AtOnce,
    Delivery::Twice,
    Delivery::Held,
    Delivery::Never,
];

/// Two servers, with worker `w1` registered at the first.
struct Servers {
    cluster: Cluster,
    clock: ManualClock,
    first: Host,
    second: Host,
}

async fn servers(delivery: Delivery) -> Servers {
    servers_with(delivery, Config::default()).await
}

async fn servers_with(delivery: Delivery, config: Config) -> Servers {
    let cluster = Cluster::default();
    cluster.deliver(delivery);
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let first = server(&cluster, &clock, config.clone()).await;
    let second = server(&cluster, &clock, config).await;
    register(&first, "w1").await;
    Servers {
        cluster,
        clock,
        first,
        second,
    }
}

async fn server(cluster: &Cluster, clock: &ManualClock, config: Config) -> Host {
    Host::start_with_clock(Arc::new(cluster.server()), config, Arc::new(clock.clone()))
        .await
        .unwrap()
}

/// Lets everything happen that needs no time, and delivers late hints.
async fn settle(servers: &Servers) {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    servers.cluster.release();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn is_leased<T>(polled: &Result<Polled<T>>) -> bool {
    matches!(polled, Ok(Polled::Leased(_)))
}
