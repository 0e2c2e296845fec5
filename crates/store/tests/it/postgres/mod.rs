//! The PostgreSQL store: the suite, several servers on one database, outages, and the layer below: connecting, TLS, what servers are
//! refused, migrations.

use std::sync::Arc;

use longhaul_store::postgres::connect::{Connected, Role, connect};
use longhaul_store::postgres::{Options, Postgres};
use longhaul_store::{Error, Store};
use longhaul_test_postgres::Database;
use proptest::prelude::{ProptestConfig, Strategy};
use proptest::test_runner::TestRunner;

mod connecting;
mod copies;
mod inspecting;
mod migrating;
mod outages;
mod plans;
mod servers;
mod tls;

longhaul_store::conformance_tests!(temporary().await);

mod sharing {
    longhaul_store::sharing_tests!({
        let (first, database) = super::temporary().await;
        let second = Box::new(super::open(&database).await);
        (first, second, database)
    });
}

/// Returns a store in a database of its own.
pub(crate) async fn temporary() -> (Arc<Postgres>, Database<'static>) {
    let database = longhaul_test_postgres::shared().database();
    (Arc::new(open(&database).await), database)
}

/// Opens a store in a database, as another server would.
async fn open(database: &Database<'_>) -> Postgres {
    let options = Options::parse(database.url()).unwrap();
    Postgres::open(options.with_connections_max(4))
        .await
        .unwrap()
}

/// Returns the statement that removes all rows.
pub(crate) fn truncate(database: &Database<'_>) -> String {
    let tables = "SELECT string_agg(tablename, ', ') FROM pg_tables
                  WHERE schemaname = 'public' AND tablename NOT IN ('schema_migrations', 'schema_compatibility', 'writers')";
    format!("TRUNCATE {}", database.sql(tables).trim())
}

/// Runs random cases on one database, because a new one takes longer than a case. The check gets the store and a function that removes
/// all rows.
pub(crate) fn check_random<S: Strategy>(
    cases: u32,
    strategy: &S,
    check: impl AsyncFn(&dyn Store, &dyn Fn(), S::Value),
) {
    // The thread ends the transactions of readers while this one waits for `psql`.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (store, database) = runtime.block_on(temporary());
    let truncate = truncate(&database);
    let clear = || drop(database.sql(&truncate));
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        // Regressions are kept beside the tests of SQLite, which run the same cases.
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(strategy, |case| {
        runtime.block_on(check(&*store, &clear, case));
        Ok(())
    });
    outcome.unwrap();
}

/// Returns a connection of a writer.
async fn writer(url: &str) -> Connected {
    connect(&Options::parse(url).unwrap(), Role::Writer)
        .await
        .unwrap()
}

/// Returns why there is no connection.
async fn refusal(url: &str) -> String {
    let options = Options::parse(url).unwrap();
    match connect(&options, Role::Writer).await {
        Err(Error::Unavailable(why)) => why,
        Err(other) => panic!("{url}: {other:?}"),
        Ok(_) => panic!("{url}: connected"),
    }
}

/// Returns the only value of a query.
async fn value(client: &Connected, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}
