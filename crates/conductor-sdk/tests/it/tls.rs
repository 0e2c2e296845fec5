//! Addresses with `https://`: HTTP/2, certificates that are trusted, and those that are not.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use http::Version;
use longhaul_conductor_sdk::transport::{RequestError, RequestRetry, TransportError};
use longhaul_conductor_sdk::{Client, Configuration};
use longhaul_server::connections::{Limits, Tls, serve, serve_tls};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// An authority of the test's own.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self {
            certificate,
            issuer,
        }
    }

    /// Signs a certificate for `name`, changed as the test needs it.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Tls {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Tls::new(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

/// A server that answers everything with an empty list, and records the version of each request.
struct Recorded {
    port: u16,
    versions: Arc<Mutex<Vec<Version>>>,
}

impl Recorded {
    async fn start(tls: Option<Tls>) -> Self {
        let versions = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&versions);
        let router = Router::new().fallback(async move |version: Version| {
            seen.lock().push(version);
            "[]"
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let never = std::future::pending();
            match tls {
                Some(tls) => serve_tls(listener, tls, router, Limits::default(), never).await,
                None => serve(listener, router, Limits::default(), never).await,
            }
        });
        Self { port, versions }
    }

    fn configuration(&self, scheme: &str) -> Configuration {
        let url = format!("{scheme}://localhost:{}/api", self.port);
        // A certificate is not better at the next attempt, so it must not be tried again.
        Configuration::new(url).retry(RequestRetry::new(1_000))
    }
}

async fn call(configuration: &Configuration) -> Result<(), RequestError> {
    let client = Client::new(configuration)?;
    for _ in 0..2 {
        client.metadata().tasks().await?;
    }
    Ok(())
}

#[tokio::test]
async fn https_has_http2_and_http_stays_as_it_is() {
    let authority = Authority::new("ours");
    let secure = Recorded::start(Some(authority.sign("localhost", |_| {}))).await;
    let configuration = secure.configuration("https");
    call(&configuration.ssl_ca_cert(authority.certificate))
        .await
        .unwrap();
    assert_eq!(*secure.versions.lock(), [Version::HTTP_2; 2]);
    let plain = Recorded::start(None).await;
    call(&plain.configuration("http")).await.unwrap();
    assert_eq!(*plain.versions.lock(), [Version::HTTP_11; 2]);
}

/// Sends a request and returns why the connection is not secure. Nothing was sent.
async fn refused(server: &Recorded, configuration: &Configuration) -> String {
    let error = call(configuration).await.unwrap_err();
    assert!(
        !error.is_retryable() && error.is_without_effect(),
        "{error:?}"
    );
    let RequestError::Transport(TransportError::Insecure(why)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(*server.versions.lock(), []);
    why
}

#[tokio::test]
async fn certificates_that_cannot_be_trusted_are_refused_with_what_to_do() {
    let authority = Authority::new("ours");
    let expired = authority.sign("localhost", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let early = authority.sign("localhost", |params| {
        params.not_before = date_time_ymd(2999, 1, 1);
        params.not_after = date_time_ymd(3000, 1, 1);
    });
    let authority_itself = authority.sign("localhost", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    for (tls, words) in [
        (expired, "has expired; the server needs a new one"),
        (early, "is not valid yet; check the clocks"),
        (
            authority.sign("other.example", |_| {}),
            "is for another host name; use a name that it contains",
        ),
        (authority_itself, "the server needs one of its own"),
        (
            Authority::new("another").sign("localhost", |_| {}),
            "add its certificate as a root certificate",
        ),
        // An authority of the same name, with another key.
        (
            Authority::new("ours").sign("localhost", |_| {}),
            "add its certificate as a root certificate",
        ),
    ] {
        let server = Recorded::start(Some(tls)).await;
        let configuration = server.configuration("https");
        let configuration = configuration.ssl_ca_cert(authority.certificate.clone());
        let why = refused(&server, &configuration).await;
        assert!(why.contains(words), "{words}: {why}");
    }
}

/// A connection between a client and a server that can be cut without either of them noticing.
struct Wire {
    port: u16,
    accepted: Arc<AtomicUsize>,
    /// Connections up to this number carry nothing.
    cut: Arc<AtomicUsize>,
}

impl Wire {
    async fn to(server: &Recorded) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Self {
            port: listener.local_addr().unwrap().port(),
            accepted: Arc::default(),
            cut: Arc::default(),
        };
        let (accepted, cut) = (Arc::clone(&wire.accepted), Arc::clone(&wire.cut));
        let server = server.port;
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let number = accepted.fetch_add(1, Relaxed) + 1;
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let ((read, write), (back, forth)) = (client.into_split(), server.into_split());
                tokio::spawn(carry(read, forth, number, Arc::clone(&cut)));
                tokio::spawn(carry(back, write, number, Arc::clone(&cut)));
            }
        });
        wire
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: usize,
    cut: Arc<AtomicUsize>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if number > cut.load(Relaxed) {
            to.write_all(&bytes[..count]).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_server_is_gone_is_not_used_again() {
    let authority = Authority::new("ours");
    let server = Recorded::start(Some(authority.sign("127.0.0.1", |_| {}))).await;
    let wire = Wire::to(&server).await;
    let url = format!("https://127.0.0.1:{}/api", wire.port);
    let configuration = Configuration::new(url)
        .ssl_ca_cert(authority.certificate)
        .retry(RequestRetry::NEVER);
    let client = Client::new(&configuration).unwrap();
    client.metadata().tasks().await.unwrap();
    wire.cut.store(1, Relaxed);
    // The time-out of the request is 30 seconds; that of the ping comes first.
    let begun = tokio::time::Instant::now();
    let error = client.metadata().tasks().await.unwrap_err();
    let RequestError::Transport(TransportError::Interrupted(_)) = error else {
        panic!("{error:?}");
    };
    assert!(begun.elapsed() < Duration::from_secs(21));
    client.metadata().tasks().await.unwrap();
    assert_eq!(wire.accepted.load(Relaxed), 2);
}

#[tokio::test]
async fn only_known_authorities_are_trusted() {
    let authority = Authority::new("ours");
    let server = Recorded::start(Some(authority.sign("localhost", |_| {}))).await;
    let why = refused(&server, &server.configuration("https")).await;
    assert!(why.contains("not signed by a trusted authority"), "{why}");
}

#[tokio::test]
async fn a_server_without_tls_is_recognised() {
    let server = Recorded::start(None).await;
    let why = refused(&server, &server.configuration("https")).await;
    assert!(why.contains("does not use TLS at this address"), "{why}");
}

#[tokio::test]
async fn authorities_that_cannot_be_read_are_refused_at_once() {
    let configuration = Configuration::new("https://localhost/api").ssl_ca_cert("no PEM");
    let error = Client::new(&configuration).unwrap_err().to_string();
    assert!(error.contains("contain no certificate in PEM"), "{error}");
}
