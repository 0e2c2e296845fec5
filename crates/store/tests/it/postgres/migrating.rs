use std::path::Path;

use futures::future::try_join_all;
use longhaul_store::Error;
use longhaul_store::conformance::fixture::create;
use longhaul_store::postgres::migrate::migrate;
use longhaul_test_postgres::{Database, shared};

use super::{open, writer};

/// How many servers start at once in a test.
const SERVERS: usize = 8;

async fn migrated(database: &Database<'_>) -> Result<(), Error> {
    migrate(&mut *writer(database.url()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_at_once_migrate_once() {
    let database = shared().database();
    let tasks = (0..SERVERS).map(|_| migrated(&database));
    try_join_all(tasks).await.unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/postgres");
    assert_eq!(
        database.sql("SELECT count(*) FROM schema_migrations"),
        files.read_dir().unwrap().count().to_string()
    );
    assert_eq!(database.sql("SELECT count(*) FROM documents"), "0");
    migrated(&database).await.unwrap();
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_refused() {
    let database = shared().database();
    migrated(&database).await.unwrap();
    database.sql("INSERT INTO schema_migrations VALUES (9999, 'future', '1')");
    let error = migrated(&database).await.unwrap_err();
    assert!(matches!(error, Error::NewerSchema(_)), "{error:?}");
    assert!(error.to_string().contains("start that release"), "{error}");
}

#[tokio::test]
async fn a_newer_schema_that_allows_this_release_is_used_as_it_is() {
    let database = shared().database();
    migrated(&database).await.unwrap();
    let newest = database.sql("SELECT max(version) FROM schema_migrations");
    database.sql("INSERT INTO schema_migrations VALUES (9999, 'future', '1')");
    database.sql("ALTER TABLE documents ADD COLUMN later int");
    let allow = format!("INSERT INTO schema_compatibility VALUES (9999, {newest})");
    database.sql(&allow);
    let store = open(&database).await;
    create(&store, "w").await;
    assert_eq!(
        database.sql("SELECT max(version) FROM schema_migrations"),
        "9999"
    );
    // The later release excludes this one.
    database.sql("UPDATE schema_compatibility SET oldest_program = 9999 WHERE version = 9999");
    let error = migrated(&database).await.unwrap_err();
    assert!(matches!(error, Error::NewerSchema(_)), "{error:?}");
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let database = shared().database();
    migrated(&database).await.unwrap();
    database.sql("UPDATE schema_migrations SET checksum = '1'");
    let error = migrated(&database).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing() {
    let database = shared().database();
    database.sql("CREATE TABLE documents (other int)");
    let error = migrated(&database).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert_eq!(
        database.sql("SELECT to_regclass('schema_migrations') IS NULL"),
        "t"
    );
}
