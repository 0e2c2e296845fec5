//! The HTTP transport, against sockets with scripted responses.

use std::time::Duration;

use longhaul_sdk::Client;
use longhaul_sdk::client::Error;
use longhaul_sdk::transport::{
    HttpTransport, Method, Request, RequestError, Token, Transport, TransportError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::quick;

/// The requests, and the connections without a response.
type Asked = JoinHandle<(Vec<String>, Vec<TcpStream>)>;

/// Sends one of these responses on each connection and closes it. `None` sends nothing and keeps the connection open.
async fn answering(answers: &[Option<&'static str>]) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let local = listener.local_addr().expect("an address");
    let address = format!("http://{local}");
    let answers = answers.to_vec();
    let asked = tokio::spawn(async move {
        let mut asked = Vec::new();
        let mut silent = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !is_whole(&request) {
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).await.expect("a request");
                request.extend_from_slice(&buffer[..count]);
            }
            asked.push(String::from_utf8(request).expect("text"));
            match answer {
                Some(answer) => stream
                    .write_all(answer.as_bytes())
                    .await
                    .expect("a listener"),
                None => silent.push(stream),
            }
        }
        (asked, silent)
    });
    (address, asked)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

#[tokio::test]
async fn a_request_is_sent_as_it_is() {
    let (address, asked) = answering(&[Some(OK), Some(OK)]).await;
    let transport = HttpTransport::new(&format!("{address}/")).unwrap();
    let mut request = Request::new(Method::Post, "/api/workflows?a=b%20c")
        .header("X-Namespace", "orders")
        .header("Authorization", "Bearer secret");
    request.body = Some("{\"x\":1}".into());
    let response = transport.send(request).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (200, &b"{}"[..]));
    let poll = Request::new(Method::Get, "/api/worker/x");
    transport.send(poll).await.unwrap();
    let (asked, _) = asked.await.unwrap();
    let lower = asked[0].to_ascii_lowercase();
    assert!(
        asked[0].starts_with("POST /api/workflows?a=b%20c HTTP/1.1\r\n"),
        "{}",
        asked[0]
    );
    for header in [
        "x-namespace: orders",
        "authorization: bearer secret",
        "content-type: application/json",
    ] {
        assert!(
            lower.contains(&format!("\r\n{header}\r\n")),
            "{header}: {}",
            asked[0]
        );
    }
    assert!(asked[0].ends_with("{\"x\":1}"));
    let lower = asked[1].to_ascii_lowercase();
    assert!(
        !lower.contains("namespace") && !lower.contains("content-type"),
        "{lower}"
    );
    assert!(!format!("{:?}", Token::new("secret")).contains("secret"));
}

#[tokio::test]
async fn failures_are_distinguished() {
    // No server listens on a port that was just closed.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let request = || Request::new(Method::Get, "/api/health");
    let transport = HttpTransport::new(&address).unwrap();
    let error = transport.send(request()).await.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable(_)), "{error}");

    let torn = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"cut\":";
    let (address, _asked) = answering(&[Some(torn), Some(""), None]).await;
    let transport = HttpTransport::new(&address).unwrap();
    for what in ["cut in the middle", "closed at once"] {
        let error = transport.send(request()).await.unwrap_err();
        assert!(
            matches!(error, TransportError::Interrupted(_)),
            "{what}: {error}"
        );
    }
    let mut hasty = request();
    hasty.timeout = Duration::from_millis(50);
    let error = transport.send(hasty).await.unwrap_err();
    assert_eq!(error, TransportError::TimedOut(Duration::from_millis(50)));
}

#[tokio::test]
async fn a_server_that_starts_late_is_waited_for() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let hello = concat!(
        "HTTP/1.1 200 OK\r\ncontent-length: 74\r\nconnection: close\r\n\r\n",
        r#"{"control_plane":{"version":"2"},"worker_protocol":{"version":"1.20"}}    "#
    );
    let (address, asked) = answering(&[Some(""), Some(busy), Some(hello)]).await;
    let client = Client::builder(&address).retry(quick());
    let client = client.connect().await.unwrap();
    assert_eq!(client.info().worker_protocol_version(), "1.20");
    assert_eq!(asked.await.unwrap().0.len(), 3);
}

#[tokio::test]
async fn redirects_are_refusals() {
    let moved = "HTTP/1.1 301 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (address, asked) = answering(&[Some(moved)]).await;
    let error = Client::connect(&address).await.unwrap_err();
    assert_eq!(error.to_string(), "the server responded with status 301");
    assert!(!error.is_retryable());
    assert_eq!(asked.await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_server_of_another_protocol_is_refused() {
    let (address, _asked) = answering(&[Some(OK)]).await;
    let error = Client::connect(&address).await.unwrap_err();
    assert!(matches!(error, Error::Incompatible(_)), "{error}");
    let page = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
    let (address, _asked) = answering(&[Some(page)]).await;
    let error = Client::connect(&address).await.unwrap_err();
    assert!(
        matches!(error, Error::Request(RequestError::Malformed(_))),
        "{error}"
    );
    let error = Client::connect("127.0.0.1:8080").await.unwrap_err();
    assert!(matches!(
        error,
        Error::Request(RequestError::Transport(TransportError::Invalid(_)))
    ));
}
