//! Silent, slow and unfinished clients must not affect others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::limited_binary::longhaul_with_limit;
use crate::serve::{Server, get};
use crate::waiting::DEADLINE;

const SHORT: [&str; 8] = [
    "--header-timeout-seconds",
    "1",
    "--body-timeout-seconds",
    "1",
    "--idle-timeout-seconds",
    "1",
    "--write-timeout-seconds",
    "1",
];

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// What the server sends until it closes the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn connections_that_send_nothing_or_half_are_closed() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &SHORT);
    let silent = connect(&server);
    let mut half = connect(&server);
    half.write_all(b"GET /api/health HTTP/1.1\r\nHost: loc")
        .unwrap();
    let mut idle = connect(&server);
    idle.write_all(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut body = connect(&server);
    body.write_all(
        b"POST /api/workflows HTTP/1.1\r\nHost: localhost\r\nX-Durable-Workflow-Control-Plane-Version: 2\r\n\
          Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"workflow_type\"",
    )
    .unwrap();
    assert_eq!(rest(silent), "");
    assert_eq!(rest(half), "");
    assert!(rest(idle).starts_with("HTTP/1.1 200"));
    let refused = rest(body);
    assert!(refused.starts_with("HTTP/1.1 408"), "{refused}");
    assert!(refused.contains("request_timeout"), "{refused}");
}

/// Each byte comes well within any time between bytes; all of them together never end.
#[test]
fn trickled_bytes_gain_no_time() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &SHORT);
    for beginning in [
        &b"GET /api/health HTTP/1.1\r\nX-Long: "[..],
        b"POST /api/workflows HTTP/1.1\r\nHost: localhost\r\nX-Durable-Workflow-Control-Plane-Version: 2\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n",
    ] {
        let mut stream = connect(&server);
        stream.write_all(beginning).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < DEADLINE, "the connection is still open");
            // The pace of the client is the read time-out; the server ends it.
            let mut answer = [0; 1024];
            match stream.read(&mut answer) {
                Ok(_) => break,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            if stream.write_all(b" ").is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_client_that_does_not_read_its_answers_is_dropped() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &SHORT);
    let mut stream = connect(&server);
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let begun = Instant::now();
    // Sends requests until the buffers of both sides are full, and on until the server gives up.
    stream
        .set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    loop {
        assert!(begun.elapsed() < DEADLINE, "the connection is still open");
        match stream.write(request) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_new_ones() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--max-connections", "16"]);
    let silent: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    for _ in 0..20 {
        assert_eq!(
            get(format!("{}/api/health", server.url)).await["status"],
            "serving"
        );
    }
    drop(silent);
}

#[tokio::test]
async fn a_long_poll_outlives_every_time_out() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &SHORT);
    let client = reqwest::Client::new();
    let worker = |path: &str, body: Value| {
        client
            .post(format!("{}/api/worker/{path}", server.url))
            .header("X-Durable-Workflow-Protocol-Version", "1.20")
            .json(&body)
            .send()
    };
    let registration = json!({"worker_id": "w", "task_queue": "q", "runtime": "python"});
    worker("register", registration).await.unwrap();
    let begun = Instant::now();
    let poll = json!({"worker_id": "w", "task_queue": "q", "timeout_seconds": 3});
    let polled: Value = worker("workflow-tasks/poll", poll)
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(polled["poll_status"], "empty", "{polled}");
    assert!(begun.elapsed() >= Duration::from_secs(3));
}

#[test]
fn a_stop_does_not_wait_for_half_sent_requests() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let _silent = connect(&server);
    let mut head = connect(&server);
    head.write_all(b"GET /api/health HTTP/1.1\r\nHost: loc")
        .unwrap();
    let mut body = connect(&server);
    body.write_all(
        b"POST /api/workflows HTTP/1.1\r\nHost: localhost\r\nX-Durable-Workflow-Control-Plane-Version: 2\r\n\
          Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    )
    .unwrap();
    let log = server.stop();
    // The server warns if requests are still in flight when its grace period ends.
    assert!(!log.contains("WARN"), "{log}");
}

/// Opens more connections than there are descriptors, while the limit on connections is higher.
#[tokio::test]
async fn a_low_limit_on_descriptors_does_not_end_the_server() {
    let data = tempfile::tempdir().unwrap();
    let mut command = longhaul_with_limit("ulimit -n 100");
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let server = crate::output::Mute::start(command, data.path());
    let address = server.url.trim_start_matches("http://").to_owned();
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    for _ in 0..20 {
        assert_eq!(
            get(format!("{}/api/health", server.url)).await["status"],
            "serving"
        );
    }
    drop(silent);
    let status = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(status.success(), "{status}");
}
