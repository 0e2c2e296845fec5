use std::net::TcpListener;
use std::time::Duration;

use longhaul_store::Error;
use longhaul_store::postgres::connect::{Role, connect};
use longhaul_store::postgres::pool::pool;
use longhaul_store::postgres::{Options, is_lost};
use longhaul_test_postgres::{Cluster, shared};

use super::{refusal, value, writer};

/// Returns an address of the same server with another user and database.
fn other(url: &str, user: &str, database: &str) -> String {
    let place = url.split('@').nth(1).unwrap().split('/').next().unwrap();
    format!("postgres://{user}@{place}/{database}")
}

/// Returns a port at which no server listens.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_session_has_the_settings_of_the_store() {
    let database = shared().database();
    database.sql(&format!(
        "ALTER DATABASE {0} SET synchronous_commit = off; ALTER DATABASE {0} SET default_transaction_isolation = 'serializable'",
        database.name()
    ));
    let options = Options::parse(database.url())
        .unwrap()
        .with_statement_timeout(Duration::from_millis(1234))
        .with_lock_timeout(Duration::from_millis(567));
    let client = connect(&options, Role::Writer).await.unwrap();
    for (name, expected) in [
        ("statement_timeout", "1234ms"),
        ("lock_timeout", "567ms"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("client_encoding", "UTF8"),
        ("default_transaction_isolation", "read committed"),
        ("synchronous_commit", "on"),
        ("application_name", "longhaul"),
    ] {
        assert_eq!(value(&client, &format!("SHOW {name}")).await, expected);
    }
    let reader = connect(&options, Role::Reader).await.unwrap();
    assert_eq!(value(&reader, "SHOW synchronous_commit").await, "off");
    assert_eq!(value(&reader, "SHOW lock_timeout").await, "567ms");
}

#[tokio::test]
async fn a_stronger_synchronous_commit_stays() {
    let database = shared().database();
    let name = database.name();
    for (default, expected) in [("local", "on"), ("remote_apply", "remote_apply")] {
        database.sql(&format!(
            "ALTER DATABASE {name} SET synchronous_commit = {default}"
        ));
        let client = writer(database.url()).await;
        assert_eq!(value(&client, "SHOW synchronous_commit").await, expected);
    }
}

#[tokio::test]
async fn refusals_name_the_cause() {
    let database = shared().database();
    let why = refusal(&other(database.url(), "postgres", "missing")).await;
    assert!(why.contains("has no database \"missing\""), "{why}");
    let why = refusal(&other(database.url(), "stranger", "postgres")).await;
    assert!(why.contains("does not let user \"stranger\" in"), "{why}");
    let why = refusal(&format!(
        "postgres://a:hunter2@127.0.0.1:{}/b",
        closed_port()
    ))
    .await;
    assert!(why.contains("no server listens at 127.0.0.1:"), "{why}");
    assert!(!why.contains("hunter2"), "{why}");
    let why = refusal("postgres:///b?host=/missing/folder").await;
    assert!(why.contains("no server listens at /missing"), "{why}");
    let why = refusal(&format!("{}?sslmode=require", database.url())).await;
    assert!(why.contains("offers no TLS"), "{why}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    // It accepts connections in the backlog and never sends a byte.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://a@{}/b", listener.local_addr().unwrap());
    let options = Options::parse(&url)
        .unwrap()
        .with_connect_timeout(Duration::from_millis(50));
    let why = connect(&options, Role::Writer).await.unwrap_err();
    assert!(why.to_string().contains("did not answer within"), "{why}");
}

#[tokio::test]
async fn sockets_and_several_hosts_work() {
    let cluster = Cluster::start();
    let (folder, port) = cluster.socket();
    let folder = folder.display();
    // A socket needs no TLS, whatever the mode.
    let url =
        format!("postgres://postgres@/postgres?host={folder}&port={port}&sslmode=verify-full");
    let client = writer(&url).await;
    assert_eq!(
        value(
            &client,
            "SELECT coalesce(inet_server_addr()::text, 'socket')"
        )
        .await,
        "socket"
    );
    let url_of_two = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{port}/postgres?load_balance_hosts=random",
        closed_port()
    );
    writer(&url_of_two).await;
    cluster.demote();
    let url = format!("{}?target_session_attrs=read-write", cluster.url());
    let why = refusal(&url).await;
    assert!(why.contains("is read-only"), "{why}");
    let why = refusal(&url_of_two).await;
    assert!(why.contains("is read-only"), "{why}");
    writer(cluster.url()).await;
}

#[tokio::test]
async fn a_pool_is_bounded_and_replaces_broken_connections() {
    let database = shared().database();
    let options = Options::parse(database.url())
        .unwrap()
        .with_connections_max(2);
    let pool = pool(&options).unwrap();
    assert_eq!(pool.status().max_size, 2);
    let client = pool.get().await.unwrap();
    let statement = client.prepare_cached("SELECT 1").await.unwrap();
    client.query_one(&statement, &[]).await.unwrap();
    assert_eq!(value(&client, "SHOW lock_timeout").await, "5s");
    database.terminate_backends();
    let error = client.query_one(&statement, &[]).await.unwrap_err();
    assert!(is_lost(&error), "{error:?}");
    assert!(matches!(error.into(), Error::Unavailable(_)));
    drop(client);
    let client = pool.get().await.unwrap();
    assert_eq!(value(&client, "SELECT 'again'").await, "again");
}

#[tokio::test]
async fn errors_become_variants() {
    let database = shared().database();
    database.sql("CREATE TABLE t (a int PRIMARY KEY)");
    let options = Options::parse(database.url())
        .unwrap()
        .with_statement_timeout(Duration::from_millis(20))
        .with_lock_timeout(Duration::from_millis(5));
    let client = connect(&options, Role::Writer).await.unwrap();
    let failed = async |sql: &str| {
        let error = client.batch_execute(sql).await.unwrap_err();
        assert!(!is_lost(&error), "{sql}");
        Error::from(error)
    };
    let twice = failed("INSERT INTO t VALUES (71), (71)").await;
    assert!(matches!(twice, Error::Corrupt(_)), "{twice:?}");
    // The detail has the value; the caller gets the name of the constraint.
    assert!(twice.to_string().contains("t_pkey"), "{twice}");
    assert!(!twice.to_string().contains("71"), "{twice}");
    let unknown = failed("SELECT missing").await;
    assert!(matches!(unknown, Error::Corrupt(_)), "{unknown:?}");
    let slow = failed("SELECT pg_sleep(10)").await;
    assert!(matches!(slow, Error::Unavailable(_)), "{slow:?}");
    let mut holder = writer(database.url()).await;
    let transaction = holder.transaction().await.unwrap();
    transaction.batch_execute("LOCK TABLE t").await.unwrap();
    let locked = failed("INSERT INTO t VALUES (1)").await;
    assert!(matches!(locked, Error::Conflict), "{locked:?}");
}
