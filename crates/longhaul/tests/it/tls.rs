//! `longhaul serve --tls-cert FILE --tls-key FILE`, with certificates of the test's own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use longhaul_sdk::Client;
use longhaul_sdk::transport::{HttpOptions, HttpTransport, RequestRetry};
use reqwest::Version;
use tempfile::TempDir;

use crate::binary::longhaul;
use crate::serve::{Server, refused};
use crate::waiting::DEADLINE;

/// A directory for the data of a server and for the files of its certificate.
struct Home {
    directory: TempDir,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a new certificate for the loopback address, and its key. Returns the certificate.
    fn write_certificate(&self) -> String {
        self.write_certificate_until(4096)
    }

    /// Writes a certificate that is valid until this year begins.
    fn write_certificate_until(&self, year: i32) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&key).unwrap().pem();
        std::fs::write(self.path("cert.pem"), &certificate).unwrap();
        std::fs::write(self.path("key.pem"), key.serialize_pem()).unwrap();
        certificate
    }

    fn start(&self, more: &[&str]) -> Server {
        let (certificate, key) = (self.path("cert.pem"), self.path("key.pem"));
        let tls = ["--tls-cert", text(&certificate), "--tls-key", text(&key)];
        Server::start(&self.data(), &[&tls, more].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A client that trusts this certificate.
fn trusting(certificate: &str) -> reqwest::ClientBuilder {
    let root = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    reqwest::Client::builder()
        .tls_built_in_root_certs(false)
        .add_root_certificate(root)
}

async fn health(client: &reqwest::Client, server: &Server) -> reqwest::Result<Version> {
    let response = client.get(format!("{}/api/health", server.url)).send();
    let response = response.await?.error_for_status()?;
    Ok(response.version())
}

#[tokio::test]
async fn a_certificate_gives_https_with_http2_and_http1() {
    let home = Home::new();
    let certificate = home.write_certificate();
    let server = home.start(&[]);
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    let client = trusting(&certificate).build().unwrap();
    assert_eq!(health(&client, &server).await.unwrap(), Version::HTTP_2);
    let plain = trusting(&certificate).http1_only().build().unwrap();
    assert_eq!(health(&plain, &server).await.unwrap(), Version::HTTP_11);
    let log = server.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn without_a_certificate_http2_needs_prior_knowledge() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    assert!(server.url.starts_with("http://"), "{}", server.url);
    let plain = reqwest::Client::new();
    assert_eq!(health(&plain, &server).await.unwrap(), Version::HTTP_11);
    let knowing = reqwest::Client::builder().http2_prior_knowledge();
    let knowing = knowing.build().unwrap();
    assert_eq!(health(&knowing, &server).await.unwrap(), Version::HTTP_2);
}

#[tokio::test]
async fn a_hangup_reads_the_certificate_again() {
    let home = Home::new();
    let first = home.write_certificate();
    let mut server = home.start(&[]);
    let old = trusting(&first).build().unwrap();
    health(&old, &server).await.unwrap();

    let second = home.write_certificate();
    server.signal("-HUP");
    server.logged("the certificate was read again");
    let new = trusting(&second).build().unwrap();
    health(&new, &server).await.unwrap();
    // The open connection continues. A new one of the same client does not know the certificate.
    health(&old, &server).await.unwrap();
    let stranger = trusting(&first).build().unwrap();
    assert!(health(&stranger, &server).await.is_err());

    std::fs::write(home.path("cert.pem"), "nothing").unwrap();
    server.signal("-HUP");
    let line = server.logged("the old one stays in use");
    assert!(line.contains("ERROR"), "{line}");
    assert!(line.contains("--tls-cert"), "{line}");
    assert!(line.contains(text(&home.path("cert.pem"))), "{line}");
    let again = trusting(&second).build().unwrap();
    health(&again, &server).await.unwrap();

    std::fs::remove_file(home.path("key.pem")).unwrap();
    std::fs::write(home.path("cert.pem"), &second).unwrap();
    server.signal("-HUP");
    let line = server.logged("the old one stays in use");
    assert!(line.contains(text(&home.path("key.pem"))), "{line}");
}

#[test]
fn an_expired_certificate_is_worth_a_warning() {
    let home = Home::new();
    home.write_certificate_until(2021);
    let mut server = home.start(&[]);
    let line = server.logged("has expired");
    assert!(line.contains("WARN") && line.contains("SIGHUP"), "{line}");
    assert!(line.contains(text(&home.path("cert.pem"))), "{line}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let home = Home::new();
    home.write_certificate();
    let path = |name: &str| text(&home.path(name)).to_owned();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    std::fs::write(home.path("empty.pem"), "").unwrap();
    std::fs::write(home.path("text.pem"), "not a certificate").unwrap();
    let other = Home::new();
    other.write_certificate();
    let other_key = text(&other.path("key.pem")).to_owned();
    let said = |options: &[&str]| {
        let mut command = longhaul();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(home.data()).args(options);
        refused(&command.output().unwrap())
    };
    for (certificate, key, words) in [
        (&*certificate, None, &["--tls-key is not", "needs both"][..]),
        (
            &path("missing.pem"),
            Some(&*key),
            &["--tls-cert", "missing.pem", "No such file"],
        ),
        (
            &certificate,
            Some(&*path("missing.pem")),
            &["--tls-key", "missing.pem", "No such file"],
        ),
        (&path(""), Some(&*key), &["--tls-cert", "directory"]),
        (
            &path("empty.pem"),
            Some(&*key),
            &["--tls-cert", "empty.pem", "is empty"],
        ),
        (
            &certificate,
            Some(&*path("empty.pem")),
            &["--tls-key", "empty.pem", "is empty"],
        ),
        (
            &path("text.pem"),
            Some(&*key),
            &["--tls-cert", "text.pem", "no certificate in PEM"],
        ),
        (
            &certificate,
            Some(&*path("text.pem")),
            &["--tls-key", "text.pem", "no private key in PEM"],
        ),
        (
            &key,
            Some(&*certificate),
            &["--tls-cert", "key.pem", "a private key and no certificate"],
        ),
        (
            &certificate,
            Some(&*other_key),
            &["--tls-cert", "--tls-key", "does not belong"],
        ),
    ] {
        let mut options = vec!["--tls-cert", certificate];
        if let Some(key) = key {
            options.extend(["--tls-key", key]);
        }
        let said = said(&options);
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    let half = said(&["--tls-key", &key]);
    assert!(half.contains("--tls-cert is not"), "{half}");
    // Nothing was stored by a server that did not start.
    assert!(!home.data().exists());
}

#[test]
fn the_environment_and_the_file_name_the_certificate_too() {
    let home = Home::new();
    home.write_certificate();
    let output = longhaul()
        .args(["serve", "--data", text(&home.data())])
        .env("LONGHAUL_TLS_CERT", home.path("cert.pem"))
        .output()
        .unwrap();
    let said = refused(&output);
    assert!(said.contains("--tls-key is not"), "{said}");
    let settings = format!(
        "tls_cert = {:?}\ntls_key = {:?}\n",
        home.path("cert.pem"),
        home.path("key.pem")
    );
    std::fs::write(home.path("longhaul.toml"), settings).unwrap();
    let server = Server::start(
        &home.data(),
        &["--config", text(&home.path("longhaul.toml"))],
    );
    assert!(server.url.starts_with("https://"), "{}", server.url);
}

#[test]
fn clients_without_tls_are_closed() {
    let home = Home::new();
    home.write_certificate();
    let short = ["--header-timeout-seconds", "1", "--log", "debug"];
    let mut server = home.start(&short);
    let connect = || {
        let stream = TcpStream::connect(server.url.trim_start_matches("https://")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    };
    let mut silent = connect();
    let mut plain = connect();
    plain
        .write_all(b"GET /api/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut received = Vec::new();
    let _reset = plain.read_to_end(&mut received);
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
    let line = server.logged("its client does not use TLS");
    assert!(
        line.contains("DEBUG") && line.contains("https://"),
        "{line}"
    );
}

#[tokio::test]
async fn the_rust_sdk_connects_if_it_trusts_the_certificate() {
    let home = Home::new();
    let certificate = home.write_certificate();
    let server = home.start(&[]);
    let options = HttpOptions::default().root_certificates(certificate);
    let trusting = HttpTransport::with_options(&server.url, options).unwrap();
    let client = Client::over(trusting).connect().await.unwrap();
    assert_eq!(client.namespace(), "default");
    let wary = Client::builder(&server.url).retry(RequestRetry::new(100));
    let error = wary.connect().await.unwrap_err().to_string();
    assert!(
        error.contains("not signed by a trusted authority"),
        "{error}"
    );
    let plain = server.url.replace("https://", "http://");
    let plain = Client::builder(&plain).retry(RequestRetry::NEVER);
    assert!(plain.connect().await.is_err());
}
