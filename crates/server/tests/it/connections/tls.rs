//! TLS: what is negotiated, a certificate that is replaced, and clients that do not shake hands.

use std::sync::Arc;

use longhaul_server::connections::{Limits, Tls};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Http2, SHORT, Serving, http1_get, short, soon, text};

/// A certificate for `localhost` that is its own authority.
struct Made {
    certificate: rcgen::Certificate,
    key: String,
}

impl Made {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self {
            certificate: made.cert,
            key: made.signing_key.serialize_pem(),
        }
    }

    fn tls(&self) -> Tls {
        Tls::new(self.certificate.pem().as_bytes(), self.key.as_bytes()).unwrap()
    }

    /// A client that trusts this certificate and offers these protocols.
    fn client(&self, protocols: &[&str]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        TlsConnector::from(Arc::new(config))
    }
}

async fn shake_hands(
    server: &Serving,
    client: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    soon(client.connect(name, server.connect().await)).await
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].clone().into_owned()
}

#[tokio::test]
async fn the_client_chooses_between_http2_and_http1() {
    let made = Made::new();
    let server = Serving::start(Limits::default(), Some(made.tls())).await;
    for (offered, chosen, version) in [
        (&["h2", "http/1.1"][..], Some("h2"), "HTTP/2.0"),
        (&["http/1.1", "h2"], Some("h2"), "HTTP/2.0"),
        (&["http/1.1"], Some("http/1.1"), "HTTP/1.1"),
        (&[], None, "HTTP/1.1"),
    ] {
        let stream = shake_hands(&server, &made.client(offered)).await.unwrap();
        let negotiated = stream.get_ref().1.alpn_protocol();
        assert_eq!(negotiated, chosen.map(str::as_bytes), "{offered:?}");
        let response = if chosen == Some("h2") {
            Http2::over(stream).await.get("/version").await
        } else {
            http1_get(stream, "/version").await
        };
        assert_eq!(text(response).await, version, "{offered:?}");
    }
    let other = shake_hands(&server, &made.client(&["smtp"])).await;
    let error = other.unwrap_err().to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
}

#[tokio::test]
async fn new_connections_get_a_replaced_certificate_and_old_ones_stay() {
    let (first, second) = (Made::new(), Made::new());
    let tls = first.tls();
    let server = Serving::start(Limits::default(), Some(tls.clone())).await;
    // One client for both handshakes: it would resume its session if it could.
    let client = first.client(&["h2"]);
    let stream = shake_hands(&server, &client).await.unwrap();
    assert_eq!(shown(&stream), *first.certificate.der());
    let old = Http2::over(stream).await;
    assert_eq!(text(old.get("/version").await).await, "HTTP/2.0");
    let refused = tls.replace(b"", second.key.as_bytes());
    assert!(refused.is_err());
    assert!(shake_hands(&server, &client).await.is_ok());
    tls.replace(second.certificate.pem().as_bytes(), second.key.as_bytes())
        .unwrap();
    let stream = shake_hands(&server, &second.client(&["h2"])).await.unwrap();
    assert_eq!(shown(&stream), *second.certificate.der());
    assert!(shake_hands(&server, &client).await.is_err());
    assert_eq!(text(old.get("/version").await).await, "HTTP/2.0");
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_closed_and_delays_no_other() {
    let made = Made::new();
    let server = Serving::start(short(), Some(made.tls())).await;
    let mut silent = server.connect().await;
    let mut half = server.connect().await;
    // The beginning of a record: a handshake of 512 bytes.
    half.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let stream = shake_hands(&server, &made.client(&["h2"])).await.unwrap();
    let connection = Http2::over(stream).await;
    assert_eq!(text(connection.get("/version").await).await, "HTTP/2.0");
    let mut rest = Vec::new();
    soon(silent.read_to_end(&mut rest)).await.unwrap();
    soon(half.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    // After a handshake the request must come.
    let stream = shake_hands(&server, &made.client(&["http/1.1"])).await;
    let closed = soon(stream.unwrap().read_to_end(&mut rest)).await;
    assert!(closed.is_err() || rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn silent_clients_make_room_for_others() {
    let made = Made::new();
    let limits = Limits {
        connections_max: 4,
        ..Limits::default()
    };
    let server = Serving::start(limits, Some(made.tls())).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(server.connect().await);
    }
    let client = made.client(&["h2"]);
    let stream = shake_hands(&server, &client).await.unwrap();
    let connection = Http2::over(stream).await;
    assert_eq!(text(connection.get("/version").await).await, "HTTP/2.0");
    drop(silent);
}

#[tokio::test]
async fn a_plain_request_is_closed_without_a_response() {
    let made = Made::new();
    let server = Serving::start(Limits::default(), Some(made.tls())).await;
    let mut plain = server.connect().await;
    plain
        .write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _reset = soon(plain.read_to_end(&mut rest)).await;
    // At most the alert of TLS.
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
}

#[tokio::test]
async fn the_time_outs_hold_under_tls() {
    let made = Made::new();
    let server = Serving::start(short(), Some(made.tls())).await;
    let client = made.client(&["h2"]);
    let stream = shake_hands(&server, &client).await.unwrap();
    let waiting = Http2::over(stream).await;
    let response = async {
        let response = waiting.get("/wait").await;
        text(response).await
    };
    let others = async {
        server.arrived(1).await;
        for protocol in ["h2", "http/1.1"] {
            let stream = shake_hands(&server, &made.client(&[protocol])).await;
            let stream = stream.unwrap();
            if protocol == "h2" {
                let idle = Http2::over(stream).await;
                assert_eq!(text(idle.get("/version").await).await, "HTTP/2.0");
                idle.closed().await;
            } else {
                let mut stream = stream;
                let request = b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let mut answer = Vec::new();
                let _cut = soon(stream.read_to_end(&mut answer)).await;
                assert!(answer.ends_with(b"HTTP/1.1"), "{answer:?}");
            }
        }
        server.permits.add_permits(1);
    };
    let (answered, ()) = futures::join!(response, others);
    assert_eq!(answered, "done");
    assert!(SHORT < Limits::default().idle_timeout);
}

#[tokio::test]
async fn a_stop_finishes_requests_under_tls() {
    let made = Made::new();
    let server = Serving::start(Limits::default(), Some(made.tls())).await;
    let client = made.client(&["h2"]);
    let connection = Http2::over(shake_hands(&server, &client).await.unwrap()).await;
    let _without_handshake = server.connect().await;
    let waiting = async { text(connection.get("/wait").await).await };
    let (permits, arrivals) = (server.permits.clone(), server.arrivals.clone());
    let stopping = async {
        soon(arrivals.acquire()).await.unwrap().forget();
        server.stop.send(()).unwrap();
        permits.add_permits(1);
        soon(server.serving).await.unwrap();
    };
    let (answered, ()) = futures::join!(waiting, stopping);
    assert_eq!(answered, "done");
}
