use std::sync::OnceLock;

use longhaul_store::Error;
use longhaul_store::postgres::Options;
use longhaul_store::postgres::connect::{Role, connect};
use longhaul_test_postgres::{Cluster, Setup};

use super::{refusal, value, writer};

/// Needs no encoding in an address.
const PASSWORD: &str = "hunter2";

/// Returns a cluster with TLS and a password.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        Cluster::start_with(Setup {
            tls: true,
            password: Some(PASSWORD.to_owned()),
            ..Setup::default()
        })
        .unwrap()
    })
}

fn url(host: &str, parameters: &str) -> String {
    let port = cluster().port();
    format!("postgres://postgres:{PASSWORD}@{host}:{port}/postgres?{parameters}")
}

/// Returns the parameter that trusts the cluster.
fn root() -> String {
    format!("sslrootcert={}", cluster().root_certificate().display())
}

/// Returns whether the connection is encrypted.
async fn encrypted(url: &str) -> bool {
    let client = writer(url).await;
    let sql = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    value(&client, sql).await == "true"
}

#[tokio::test]
async fn modes_without_a_check_accept_any_certificate() {
    assert!(!encrypted(&url("127.0.0.1", "sslmode=disable")).await);
    assert!(encrypted(&url("127.0.0.1", "sslmode=prefer")).await);
    assert!(encrypted(&url("127.0.0.1", "sslmode=allow")).await);
    assert!(encrypted(&url("127.0.0.1", "sslmode=require")).await);
    // The login is bound to the certificate, so that nothing between can pass it on.
    assert!(encrypted(&url("127.0.0.1", "sslmode=require&channel_binding=require")).await);
}

#[tokio::test]
async fn a_trusted_certificate_is_accepted() {
    let root = root();
    assert!(encrypted(&url("127.0.0.1", &format!("sslmode=require&{root}"))).await);
    assert!(encrypted(&url("127.0.0.1", &format!("sslmode=verify-ca&{root}"))).await);
    assert!(encrypted(&url("localhost", &format!("sslmode=verify-full&{root}"))).await);
    let address = format!("sslmode=verify-full&hostaddr=127.0.0.1&{root}");
    assert!(encrypted(&url("localhost", &address)).await);
}

#[tokio::test]
async fn a_wrong_name_is_refused_in_full() {
    let why = refusal(&url(
        "127.0.0.1",
        &format!("sslmode=verify-full&{}", root()),
    ))
    .await;
    assert!(why.contains("is for another name"), "{why}");
}

#[tokio::test]
async fn an_unknown_issuer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = Cluster::start_with(Setup {
        tls: true,
        ..Setup::default()
    })
    .unwrap();
    let file = folder.path().join("root.crt");
    std::fs::copy(other.root_certificate(), &file).unwrap();
    for mode in ["require", "verify-ca", "verify-full"] {
        let parameters = format!("sslmode={mode}&sslrootcert={}", file.display());
        let why = refusal(&url("localhost", &parameters)).await;
        assert!(why.contains("is not trusted"), "{mode}: {why}");
    }
}

#[tokio::test]
async fn a_missing_root_certificate_is_a_wrong_setting() {
    let options = Options::parse(&url(
        "localhost",
        "sslmode=verify-ca&sslrootcert=/missing.pem",
    ));
    let error = connect(&options.unwrap(), Role::Reader).await.unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error:?}");
    assert!(error.to_string().contains("/missing.pem"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let url = url("127.0.0.1", "sslmode=require");
    let why = refusal(&url.replace(PASSWORD, "swordfish")).await;
    assert!(
        why.contains("refused the password of user \"postgres\""),
        "{why}"
    );
    assert!(!why.contains("swordfish"), "{why}");
    let why = refusal(&url.replace(&format!(":{PASSWORD}"), "")).await;
    assert!(why.contains("asks for a password"), "{why}");
}
