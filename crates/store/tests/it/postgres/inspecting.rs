use longhaul_store::Error;
use longhaul_store::postgres::inspect::inspect;
use longhaul_test_postgres::{Cluster, Setup, shared};

use super::writer;

#[tokio::test]
async fn a_good_server_has_no_warnings() {
    let database = shared().database();
    let facts = inspect(&*writer(database.url()).await).await.unwrap();
    assert!(facts.major >= 15, "{facts:?}");
    assert_eq!(facts.warnings, [""; 0]);
}

#[tokio::test]
async fn settings_that_lose_commits_are_warned_of() {
    let database = shared().database();
    database.sql(&format!(
        "ALTER DATABASE {} SET synchronous_commit = off",
        database.name()
    ));
    let facts = inspect(&*writer(database.url()).await).await.unwrap();
    assert_eq!(facts.warnings.len(), 1, "{facts:?}");
    assert!(facts.warnings[0].contains("synchronous_commit = off"));
}

#[tokio::test]
async fn a_read_only_default_is_refused() {
    let database = shared().database();
    database.sql(&format!(
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        database.name()
    ));
    let error = inspect(&*writer(database.url()).await).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("default_transaction_read_only = on"),
        "{error}"
    );
}

#[tokio::test]
async fn another_encoding_is_refused() {
    let database = shared().database();
    let name = format!("{}_latin", database.name());
    database.sql(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' LOCALE_PROVIDER libc"
    ));
    let client = writer(&database.url().replace(database.name(), &name)).await;
    let error = inspect(&client).await.unwrap_err();
    drop(client);
    database.sql(&format!("DROP DATABASE {name} WITH (FORCE)"));
    assert!(matches!(error, Error::Settings(_)), "{error:?}");
    assert!(error.to_string().contains("encoding LATIN1"), "{error}");
}

#[tokio::test]
async fn an_unsafe_server_is_warned_of_and_a_standby_refused() {
    let off = |name: &str| (name.to_owned(), "off".to_owned());
    let cluster = Cluster::start_with(Setup {
        settings: vec![off("fsync"), off("full_page_writes")],
        ..Setup::default()
    })
    .unwrap();
    let facts = inspect(&*writer(cluster.url()).await).await.unwrap();
    assert_eq!(facts.warnings.len(), 2, "{facts:?}");
    assert!(facts.warnings[0].contains("fsync = off"));
    assert!(facts.warnings[1].contains("full_page_writes = off"));
    cluster.demote();
    let error = inspect(&*writer(cluster.url()).await).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("is a standby"), "{error}");
}
