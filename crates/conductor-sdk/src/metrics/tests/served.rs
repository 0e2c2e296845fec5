//! Metrics of a handler whose workers share this process: over HTTP, and in a file.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::server::CONNECTIONS_MAX;
use super::exposition::Exposition;
use crate::configuration::Configuration;
use crate::events::{PollStarted, TaskRunnerEventsListener};
use crate::handler::{HandlerError, Isolation, TaskHandler};
use crate::metrics::{CONTENT_TYPE, MetricsSettings, Surface};
use crate::worker::function;

/// A listener of the user beside the metrics.
#[derive(Default)]
struct Polls(AtomicU64);

impl TaskRunnerEventsListener for Polls {
    fn on_poll_started(&self, _: &PollStarted, _: SystemTime) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn handler(settings: MetricsSettings) -> Result<TaskHandler, HandlerError> {
    handler_with(settings, Arc::default())
}

fn handler_with(
    settings: MetricsSettings,
    listener: Arc<Polls>,
) -> Result<TaskHandler, HandlerError> {
    // No server listens there: polls fail.
    TaskHandler::builder(Configuration::new("http://127.0.0.1:9/api"))
        .listener(listener)
        .isolation(Isolation::InProcess)
        .worker(function("a", |input: Value| Ok(input)))
        .worker(function("b", |input: Value| Ok(input)))
        .metrics(settings)
        .build()
}

fn served() -> MetricsSettings {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    MetricsSettings::new().http_port(0).http_host(here)
}

/// Sends a request and returns the response with its headers.
async fn send(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

async fn get(address: SocketAddr, path: &str) -> String {
    send(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await
}

/// Reads the metrics until they are as wanted.
async fn read_until(address: SocketAddr, wanted: impl Fn(&Exposition) -> bool) -> Exposition {
    loop {
        let response = get(address, "/metrics").await;
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let content_type = format!("content-type: {CONTENT_TYPE}");
        assert!(head.contains(&content_type), "{head}");
        let read = Exposition::parse(body).unwrap();
        if wanted(&read) {
            return read;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn all_workers_are_on_one_page_until_the_end() {
    let polls = Arc::new(Polls::default());
    let mut handler = handler_with(served(), Arc::clone(&polls)).unwrap();
    let address = handler.metrics_address().unwrap();
    assert_ne!(address.port(), 0);
    handler.start_processes().await;
    let read = read_until(address, |read| {
        let failed = |task_type| {
            let labels = [("taskType", task_type), ("exception", "Unreachable")];
            read.value("task_poll_error_total", labels) >= Some(1.0)
        };
        failed("a") && failed("b")
    })
    .await;
    let restarts = read.value("worker_restart_total", [("taskType", "a")]);
    assert_eq!(restarts, Some(0.0));
    let health = get(address, "/health").await;
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    assert!(health.contains(r#""status":"UP""#), "{health}");
    handler.stop_processes();
    handler.join_processes().await;
    let closed = TcpStream::connect(address).await;
    assert!(closed.is_err(), "the port is closed");
    assert!(polls.0.load(Ordering::Relaxed) >= 2);

    // A second start serves at the same address, and the counts go on.
    let before = read.value("task_poll_total", [("taskType", "a")]);
    handler.start_processes().await;
    read_until(address, |read| {
        read.value("task_poll_total", [("taskType", "a")]) > before
    })
    .await;
    handler.stop_processes();
    handler.join_processes().await;
}

#[tokio::test]
async fn health_is_down_while_a_worker_does_not_run() {
    let mut handler = handler(served()).unwrap();
    let address = handler.metrics_address().unwrap();
    // On this runtime no worker runs before the next wait.
    handler.start_processes().await;
    handler.stop_processes();
    let mut last = String::new();
    let reading = async {
        loop {
            let response = get(address, "/health").await;
            // The workers end one after another.
            let is_down = response.starts_with("HTTP/1.1 503");
            if is_down
                && [r#""a""#, r#""b""#]
                    .iter()
                    .all(|name| response.contains(name))
            {
                return response;
            }
            last = response;
        }
    };
    let down = tokio::time::timeout(Duration::from_secs(30), reading).await;
    let down = down.unwrap_or_else(|_| panic!("not down: {last}"));
    assert!(down.contains(r#""status":"DOWN""#), "{down}");
    handler.join_processes().await;
}

#[tokio::test]
async fn other_requests_learn_what_there_is() {
    let mut handler = handler(served()).unwrap();
    let address = handler.metrics_address().unwrap();
    handler.start_processes().await;
    for (request, status) in [
        ("GET /other HTTP/1.1\r\nhost: x\r\n\r\n", "404"),
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "200"),
        (
            "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
            "405",
        ),
    ] {
        let response = send(address, request).await;
        let begin = format!("HTTP/1.1 {status}");
        assert!(response.starts_with(&begin), "{request}: {response}");
        assert!(response.contains("GET /metrics"), "{response}");
    }
    let response = send(address, "HEAD /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(response.ends_with("\r\n\r\n"), "{response}");
    let response = send(address, "no HTTP at all\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    handler.stop_processes();
    handler.join_processes().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_reader_is_disconnected() {
    let mut handler = handler(served()).unwrap();
    let address = handler.metrics_address().unwrap();
    handler.start_processes().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /met").await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut response = Vec::new();
    // The clock jumps to the time-out of the connection. How the connection ends does not matter.
    let _ = stream.read_to_end(&mut response).await;
    assert!(begun.elapsed() >= Duration::from_secs(10));
    handler.stop_processes();
    handler.join_processes().await;
}

#[tokio::test(start_paused = true)]
async fn silent_readers_use_a_limited_number_of_connections() {
    let mut handler = handler(served()).unwrap();
    let address = handler.metrics_address().unwrap();
    handler.start_processes().await;
    let begun = tokio::time::Instant::now();
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // It waits for the end of one of them, and then it is served.
    let response = get(address, "/health").await;
    assert!(begun.elapsed() >= Duration::from_secs(10));
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    handler.stop_processes();
    handler.join_processes().await;
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = handler(served().http_port(port)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    assert!(text.contains("set `http_port` to a free port"), "{text}");
}

#[tokio::test]
async fn without_a_port_the_metrics_are_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("made");
    let settings = MetricsSettings::new()
        .directory(&inside)
        .file_name("workers.prom")
        .surface(Surface::Canonical);
    let mut handler = handler(settings).unwrap();
    assert_eq!(handler.metrics_address(), None);
    handler.start_processes().await;
    while !handler.is_healthy() {
        tokio::task::yield_now().await;
    }
    handler.stop_processes();
    handler.join_processes().await;
    // The last write comes after the last event.
    let text = std::fs::read_to_string(inside.join("workers.prom")).unwrap();
    let read = Exposition::parse(&text).unwrap();
    for task_type in ["a", "b"] {
        let polls = read.value("task_poll_total", [("taskType", task_type)]);
        assert!(polls >= Some(1.0), "{text}");
    }
    assert_eq!(read.types["task_poll_time_seconds"], "histogram");
    let names = std::fs::read_dir(&inside).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["workers.prom"], "no other file is left");
}
