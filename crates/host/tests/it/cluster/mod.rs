//! Two servers on one store. Each case holds whatever becomes of the hints between them: delivered, repeated, late in the wrong order,
//! or lost. Time is the runtime's and does not pass by itself, so waiting for the net costs nothing.

use std::sync::Arc;

use longhaul_host::clock::ManualClock;
use longhaul_host::{Config, Host, LeasedWorkflowTask, Polled, Result};
use longhaul_protocol::id::RunId;
use longhaul_store::memory::{Cluster, Delivery};
use serde_json::Value;
use tokio::task::JoinHandle;

mod alone;
mod audit;
mod caps;
mod copies;
mod polling;
mod questions;
mod rates;
mod sessions;
mod time;
mod workers;

use crate::setup::{commands, holder, poll_of, register, start_of};

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

impl Servers {
    /// Returns one more server.
    async fn another(&self, config: Config) -> Host {
        server(&self.cluster, &self.clock, config).await
    }

    /// Starts a run at the first server.
    async fn start(&self, workflow_id: &str) -> RunId {
        let started = self.first.workflows().start(start_of(workflow_id));
        started.await.unwrap().run_id
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

/// Polls for a workflow task without waiting.
async fn poll_now(host: &Host) -> Result<Polled<LeasedWorkflowTask>> {
    host.workflow_tasks()
        .poll(&poll_of("w1", None, 0), 500)
        .await
}

/// Polls for a workflow task in the background.
fn polling(
    host: &Host,
    worker: &'static str,
    request_id: Option<&'static str>,
    seconds: u64,
) -> JoinHandle<Result<Polled<LeasedWorkflowTask>>> {
    let host = host.clone();
    tokio::spawn(async move {
        let poll = poll_of(worker, request_id, seconds);
        host.workflow_tasks().poll(&poll, 500).await
    })
}

async fn complete(host: &Host, task: &LeasedWorkflowTask, json: Value) {
    let held = holder(task);
    let completed = host.workflow_tasks().complete(&held, commands(json));
    completed.await.unwrap();
}

fn is_leased<T>(polled: &Result<Polled<T>>) -> bool {
    matches!(polled, Ok(Polled::Leased(_)))
}
