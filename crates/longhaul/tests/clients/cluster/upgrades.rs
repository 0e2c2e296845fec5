//! A rolling upgrade under load, to a release with one more migration, and the way back. The servers of the later release are in the
//! process of the test; the built binary is the older release.

use std::sync::Arc;

use longhaul_host::clock::SystemClock;
use longhaul_store::postgres::{Options, Postgres};

use super::load::Load;
use super::probes::{expect_sound_store, wait_for_readiness};
use super::{SERVERS, servers};
use crate::binary::longhaul;
use crate::harness::{Caller, DEADLINE, InProcess, Server, ServerOptions};

const LEASE_SECONDS: u32 = 3;

/// A migration that the built binary does not know. It allows the newest release before it, which the built binary is.
const ALLOWED: (&str, &str) = (
    "V9000__allowed",
    "ALTER TABLE documents ADD COLUMN later text;
     CREATE TABLE later (id text PRIMARY KEY);
     INSERT INTO schema_compatibility SELECT 9000, max(version) FROM schema_migrations",
);

/// A migration that excludes all earlier releases, because it names none.
const EXCLUDING: (&str, &str) = (
    "V9000__excluding",
    "CREATE TABLE later (id text PRIMARY KEY)",
);

async fn later_release(url: &str, (name, sql): (&str, &str)) -> InProcess {
    let options = Options::parse(url).unwrap();
    let store = Postgres::open_as_later_release(options, name, sql);
    let store = store.await.unwrap();
    InProcess::start(Arc::new(store), Arc::new(SystemClock), LEASE_SECONDS.into()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_and_the_way_back_lose_nothing() {
    let database = longhaul_test_postgres::shared().database();
    let url = database.url();
    let options = ServerOptions::new().store(url).lease_seconds(LEASE_SECONDS);
    let mut older = servers(&options).await;
    let caller = Caller::new(older.iter().map(Server::url));
    let load = Load::start(&caller).await;
    load.go_on(SERVERS).await;

    // A server of the later release joins and migrates. Those of the older one go on.
    let mut later = vec![later_release(url, ALLOWED).await];
    let migrated = database.sql("SELECT name FROM schema_migrations WHERE version = 9000");
    assert_eq!(migrated, "allowed");
    use_both(&caller, &older, &later);
    for server in older.iter().map(Server::url).chain([later[0].url()]) {
        wait_for_readiness(server, 200).await;
        load.probe(&[server]).await;
    }
    // The others are replaced one after another.
    while let Some(mut server) = older.pop() {
        server.terminate().await;
        if later.len() < SERVERS {
            later.push(later_release(url, ALLOWED).await);
        }
        use_both(&caller, &older, &later);
        load.go_on(SERVERS).await;
    }
    // The way back, in the other order. The schema stays.
    while let Some(server) = later.pop() {
        older.push(options.clone().start().await);
        use_both(&caller, &older, &later);
        server.terminate().await;
        load.probe(&[older[older.len() - 1].url()]).await;
    }
    let newest = database.sql("SELECT max(version) FROM schema_migrations");
    assert_eq!(newest, "9000");
    load.judge(&older[0]).await;
    expect_sound_store(url).await;
}

/// Sends requests to the servers of both releases.
fn use_both(caller: &Caller, older: &[Server], later: &[InProcess]) {
    let older = older.iter().map(Server::url);
    caller.use_servers(older.chain(later.iter().map(InProcess::url)));
}

#[tokio::test]
async fn an_older_release_does_not_start_on_a_schema_that_excludes_it() {
    let database = longhaul_test_postgres::shared().database();
    let server = later_release(database.url(), EXCLUDING).await;
    wait_for_readiness(server.url(), 200).await;
    let mut command = tokio::process::Command::from(longhaul());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        database.url(),
    ]);
    command.kill_on_drop(true);
    let ended = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = ended.expect("the server does not start").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr);
    for part in [
        "was written by a newer release of longhaul (schema 9000;",
        "start that release or a later one, or restore a backup made before the upgrade",
    ] {
        assert!(complaint.contains(part), "{complaint}");
    }
    server.terminate().await;
}
