//! Servers whose clocks are three seconds wrong, one ahead and one behind, beside two with the right time. They warn and stay ready, and
//! nothing is lost or recorded twice.

use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_host::clock::{Clock, SystemClock};
use longhaul_protocol::Timestamp;
use longhaul_store::postgres::{Options, Postgres};
use serde_json::json;

use super::code_runs::CodeRuns;
use super::load::Load;
use super::probes::{expect_sound_store, wait_for_readiness};
use crate::harness::{Caller, InProcess, ServerOptions, eventually};

const WRONG_BY_MICROS: i64 = 3_000_000;

/// Longer than the clocks differ: a lease that one of them gives must not be over for another.
const LEASE_SECONDS: u32 = 8;

/// Runs under load.
const RUNS: usize = 24;

/// The clock of the machine, moved.
struct WrongClock {
    ahead_micros: i64,
}

impl WrongClock {
    fn moved(at: Timestamp, micros: i64) -> Timestamp {
        Timestamp::from_micros(at.as_micros().saturating_add(micros))
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        Self::moved(SystemClock.now(), self.ahead_micros)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        SystemClock.sleep_until(Self::moved(at, -self.ahead_micros))
    }
}

async fn server_ahead_by(micros: i64, url: &str) -> InProcess {
    let store = Postgres::open(Options::parse(url).unwrap()).await.unwrap();
    let clock = WrongClock {
        ahead_micros: micros,
    };
    InProcess::start(Arc::new(store), Arc::new(clock), LEASE_SECONDS.into()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_three_seconds_wrong_lose_nothing() {
    let database = longhaul_test_postgres::shared().database();
    let options = ServerOptions::new()
        .store(database.url())
        .lease_seconds(LEASE_SECONDS);
    let right = [options.clone().start().await, options.clone().start().await];
    let ahead = server_ahead_by(WRONG_BY_MICROS, database.url()).await;
    let behind = server_ahead_by(-WRONG_BY_MICROS, database.url()).await;
    let urls = [right[0].url(), right[1].url(), ahead.url(), behind.url()];
    let load = Load::start(&Caller::new(urls)).await;
    for url in urls {
        load.probe(&[url]).await;
    }
    // The task of a worker that is gone is given again, whichever server gave the lease.
    for (number, giver) in urls.into_iter().enumerate() {
        let queue = format!("held-{number}");
        let given = CodeRuns::new(Caller::new([giver]), &queue);
        let others = given.at(Caller::new(urls));
        given.register("gone").await;
        given.register("next").await;
        given.start(&queue).await;
        let lost = eventually("a lease", || given.poll("workflow", "gone")).await;
        let task = eventually("the lease ends", || others.poll("workflow", "next")).await;
        assert_eq!(task["task_id"], lost["task_id"]);
        let end = json!({"commands": [{"type": "complete_workflow"}]});
        assert!(others.report(&task, "workflow", end).await);
        others.ended(&queue).await;
    }
    load.go_on(RUNS).await;
    for server in &right {
        let ready = wait_for_readiness(server.url(), 200).await;
        assert_eq!(ready["checks"]["clock"]["status"], "ok", "{ready}");
    }
    for (server, is_ahead) in [(&ahead, true), (&behind, false)] {
        let ready = wait_for_readiness(server.url(), 200).await;
        let clock = &ready["checks"]["clock"];
        assert_eq!(clock["status"], "warning", "{ready}");
        let ahead_ms = clock["ahead_ms"].as_i64().expect("a distance");
        assert_eq!(ahead_ms > 0, is_ahead, "{ready}");
    }
    load.judge(&right[0]).await;
    ahead.terminate().await;
    behind.terminate().await;
    expect_sound_store(database.url()).await;
}
