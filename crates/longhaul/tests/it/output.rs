//! Output that cannot be written does not end or harm the server.

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::binary::longhaul;
use crate::serve::{get, post};
use crate::waiting::DEADLINE;

/// A server whose output the test chooses, so that its address cannot be read from it.
pub(crate) struct Mute {
    child: Child,
    pub(crate) url: String,
}

impl Mute {
    pub(crate) fn start(mut command: Command, data: &std::path::Path) -> Self {
        let address = free_address();
        let child = command
            .args(["serve", "--listen", &address.to_string(), "--data"])
            .arg(data)
            .spawn()
            .unwrap();
        let mut server = Self {
            child,
            url: format!("http://{address}"),
        };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < DEADLINE, "the server does not listen");
            assert_eq!(
                server.child.try_wait().unwrap(),
                None,
                "the server has ended"
            );
            std::thread::yield_now();
        }
        server
    }

    /// Closes the ends of its pipes.
    fn close_pipes(&mut self) {
        drop(self.child.stdout.take());
        drop(self.child.stderr.take());
    }

    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap()
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address that was free a moment ago. If another process takes it, the server reports that and the test fails.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// Checks that the server works: it starts a workflow, is ready, and stops cleanly.
async fn works(server: Mute) {
    let started = post(
        format!("{}/api/workflows", server.url),
        json!({"workflow_type": "order", "workflow_id": "order-7"}),
    )
    .await;
    assert!(started["run_id"].is_string(), "{started}");
    let ready = get(format!("{}/api/ready", server.url)).await;
    assert_eq!(ready["status"], "ready", "{ready}");
    let status = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_full_disk_behind_the_output_does_not_matter() {
    for (out, errors) in [(true, false), (false, true), (true, true)] {
        let data = tempfile::tempdir().unwrap();
        let mut command = longhaul();
        command.stdout(if out { full() } else { Stdio::null() });
        command.stderr(if errors { full() } else { Stdio::null() });
        works(Mute::start(command, data.path())).await;
    }
}

#[tokio::test]
async fn closed_pipes_do_not_matter() {
    let data = tempfile::tempdir().unwrap();
    let mut command = longhaul();
    command
        .env("LONGHAUL_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Mute::start(command, data.path());
    server.close_pipes();
    works(server).await;
}

/// Drains a build. The server logs the names in the request.
async fn drain(url: &str, queue: &str, build_id: &str) {
    let drained = post(
        format!("{url}/api/task-queues/{queue}/build-ids/drain"),
        json!({"build_id": build_id}),
    )
    .await;
    assert_eq!(drained["drain_intent"], "draining", "{drained}");
}

/// The server logs more than a pipe can hold, and the test reads nothing until the server stops.
#[tokio::test]
async fn a_stopped_reader_does_not_matter() {
    const PIPE_BYTES: usize = 64 * 1024;
    let data = tempfile::tempdir().unwrap();
    let mut command = longhaul();
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = Mute::start(command, data.path());
    let name = "b".repeat(200);
    let drains = 2 * PIPE_BYTES / name.len();
    for number in 0..drains {
        drain(&server.url, "q", &format!("{name}-{number}")).await;
    }
    let mut pipe = server.child.stderr.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut log = String::new();
        pipe.read_to_string(&mut log).unwrap();
        log
    });
    works(server).await;
    let log = reading.join().unwrap();
    assert!(
        log.contains(&format!("{name}-{}", drains - 1)),
        "the last line is missing"
    );
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_with_a_message() {
    let output = longhaul()
        .args(["replay", "/dev/null"])
        .stdout(full())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("longhaul: ") && !said.contains("panicked"),
        "{said}"
    );
}

#[tokio::test]
async fn the_text_of_a_client_cannot_forge_a_log_line() {
    for format in ["text", "json"] {
        let data = tempfile::tempdir().unwrap();
        let server = crate::serve::Server::start(data.path(), &["--log-format", format]);
        // A line end, an escape sequence, a carriage return and a separator that some readers treat as a line end.
        let queue = "q%0AERROR%20forged%1B%5B2J%0D%E2%80%A8ERROR";
        drain(&server.url, queue, "b").await;
        let log = server.stop();
        assert!(log.contains("forged"), "{log}");
        for line in log.lines() {
            assert!(!line.starts_with("ERROR"), "{log}");
            assert!(!line.contains(['\u{1b}', '\r', '\u{2028}']), "{log}");
            if format == "json" {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
    }
}
