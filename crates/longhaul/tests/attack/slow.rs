//! Clients that hold a connection and do nothing useful with it. They lose it, and other clients are not affected.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::server::{DEADLINE, Server, eventually};
use crate::wire::{Client, Request};

/// Far fewer connections than the attackers open.
const CONNECTIONS_MAX: &str = "60";

/// Attackers of each kind.
const ATTACKERS: usize = 60;

/// Pause between two bytes of a slow client. It is shorter than every time-out, so that only a total time can end the client.
const TRICKLE: Duration = Duration::from_millis(50);

/// How an attacker wastes its connection.
#[derive(Clone, Copy, Debug)]
enum Waste {
    Silent,
    HalfHeaders,
    HalfBody,
    TrickledHeaders,
    TrickledBody,
    /// Requests large responses and reads nothing.
    Unread,
}

const WASTES: [Waste; 6] = [
    Waste::Silent,
    Waste::HalfHeaders,
    Waste::HalfBody,
    Waste::TrickledHeaders,
    Waste::TrickledBody,
    Waste::Unread,
];

const HALF_BODY: &str = "POST /api/workflows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
    X-Durable-Workflow-Control-Plane-Version: 2\r\nContent-Length: 100000\r\n\r\n{\"workflow_type\":";

/// Holds a connection until the server ends it.
async fn waste(address: SocketAddr, waste: Waste, large: &str) {
    // A refused connection counts as ended.
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return;
    };
    let first = match waste {
        Waste::Silent => String::new(),
        Waste::HalfHeaders => "GET /api/health HTTP/1.1\r\nHost: local".to_owned(),
        Waste::HalfBody | Waste::TrickledBody => HALF_BODY.to_owned(),
        Waste::TrickledHeaders => "GET /api/health HTTP/1.1\r\n".to_owned(),
        // Pipelined, so that it is more than the buffers of both sides.
        Waste::Unread => format!(
            "GET {large} HTTP/1.1\r\nHost: localhost\r\nX-Durable-Workflow-Control-Plane-Version: 2\r\n\r\n"
        )
        .repeat(50),
    };
    if stream.write_all(first.as_bytes()).await.is_err() {
        return;
    }
    match waste {
        Waste::TrickledHeaders | Waste::TrickledBody => {
            // Writing fails some time after the server has closed.
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(TRICKLE).await;
            }
        }
        Waste::Unread => {
            // A client that does not read notices the end only when it writes.
            while stream.write_all(b"GET ").await.is_ok() {
                tokio::time::sleep(TRICKLE).await;
            }
        }
        Waste::Silent | Waste::HalfHeaders | Waste::HalfBody => {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_waste_connections_lose_them_and_do_not_block_others() {
    let server = Server::start(&[
        "--max-connections",
        CONNECTIONS_MAX,
        "--header-timeout-seconds",
        "1",
        "--body-timeout-seconds",
        "1",
        "--idle-timeout-seconds",
        "1",
        "--write-timeout-seconds",
        "1",
    ])
    .await;
    let mut client = server.client();
    let address = client.address();
    let large = workflow_with_large_history(&mut client).await;
    let worker = json!({"worker_id": "w", "task_queue": "default", "runtime": "python",
        "supported_workflow_types": [], "supported_activity_types": []});
    client.post("/api/worker/register", worker).await;
    let poll = json!({"worker_id": "w", "task_queue": "default", "timeout_seconds": 4});
    let poll = Request::new("POST", "/api/worker/activity-tasks/poll")
        .versioned()
        .json(&poll);
    // A poll that waits longer than every time-out is still answered. Where attackers have all connections, it is tried again.
    let polling = tokio::spawn(async move {
        eventually("a poll is answered", || async {
            let answer = Client::new(address).send(&poll).await.ok()?;
            (answer.status != 503).then_some(answer)
        })
        .await
    });

    let attackers: Vec<_> = WASTES
        .iter()
        .flat_map(|kind| {
            let large = large.clone();
            (0..ATTACKERS).map(move |_| {
                let large = large.clone();
                let kind = *kind;
                (
                    kind,
                    tokio::spawn(async move { waste(address, kind, &large).await }),
                )
            })
        })
        .collect();
    for _ in 0..20 {
        eventually("a new connection is answered", || async {
            let answer = Client::new(address)
                .send(&Request::new("GET", "/api/health"))
                .await;
            answer
                .is_ok_and(|answer| answer.status == 200)
                .then_some(())
        })
        .await;
    }
    let polled = polling.await.expect("a poll");
    assert_eq!(polled.status, 200, "{}", polled.text());
    assert_eq!(polled.json()["poll_status"], "empty");
    for (kind, attacker) in attackers {
        timeout(DEADLINE, attacker)
            .await
            .unwrap_or_else(|_| panic!("{kind:?} still has its connection"))
            .expect("an attacker ends");
    }
}

/// Returns the path of a long response.
async fn workflow_with_large_history(client: &mut Client) -> String {
    let start =
        json!({"workflow_type": "greet", "workflow_id": "large", "input": ["x".repeat(1_000_000)]});
    let run = client.post("/api/workflows", start).await["run_id"].clone();
    let run = run.as_str().expect("a run id");
    format!("/api/workflows/large/runs/{run}/history")
}
