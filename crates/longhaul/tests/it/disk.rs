//! A full disk and damaged files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::binary::longhaul;
use crate::limited_binary::longhaul_with_limit;
use crate::output::Mute;
use crate::serve::{Server, get, post, refused};
use crate::waiting::DEADLINE;

/// Returns a command for a server whose files may not grow beyond this many blocks of 512 bytes. A larger write fails as on a
/// full disk, and the system sends SIGXFSZ, whose default action ends the process. Unlike a small file system this needs no
/// privilege.
fn with_small_files(blocks: u32) -> Command {
    let mut command = longhaul_with_limit(&format!("ulimit -f {blocks}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

async fn start_large(url: &str, number: usize) -> Value {
    let text = "x".repeat(100_000);
    post(
        format!("{url}/api/workflows"),
        json!({"workflow_type": "order", "workflow_id": format!("order-{number}"), "input": [text]}),
    )
    .await
}

/// The status and body of `/api/ready`.
async fn ready(url: &str) -> (u16, Value) {
    let response = reqwest::get(format!("{url}/api/ready")).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn on_a_full_disk_the_server_keeps_accepted_work_and_is_not_ready() {
    let data = tempfile::tempdir().unwrap();
    // Two megabytes, or one where the shell counts kilobytes: some dozen of these runs.
    let server = Mute::start(with_small_files(4096), data.path());
    assert_eq!(ready(&server.url).await.0, 200);
    let mut accepted = Vec::new();
    let mut number = 0;
    let refusal = loop {
        let answer = start_large(&server.url, number).await;
        if answer["run_id"].is_string() {
            accepted.push(number);
            number += 1;
            assert!(number < 1000, "the files never got too large");
        } else {
            break answer;
        }
    };
    assert_eq!(refusal["reason"], "backend_unavailable", "{refusal}");
    // The server runs, reads, and reports that it cannot write. A probe may fit where a run does not, so keep writing.
    let begun = Instant::now();
    loop {
        start_large(&server.url, number).await;
        let (status, body) = ready(&server.url).await;
        if status == 503 {
            assert_eq!(body["checks"]["writer"]["status"], "failed", "{body}");
            assert_eq!(body["checks"]["database"]["status"], "ok", "{body}");
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "{body}");
    }
    let status = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(status.success(), "{status}");
    // With room again, all accepted work exists.
    let server = Server::start(data.path(), &[]);
    assert_eq!(ready(&server.url).await.0, 200);
    for number in accepted {
        let found = get(format!("{}/api/workflows/order-{number}", server.url)).await;
        assert!(found["run_id"].is_string(), "{found}");
    }
    let again = start_large(&server.url, number).await;
    assert!(again["run_id"].is_string(), "{again}");
    server.stop();
}

fn refused_with(data: &Path) -> String {
    let output = longhaul()
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .output()
        .unwrap();
    refused(&output)
}

#[tokio::test]
async fn damaged_files_are_refused_with_advice() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    start_large(&server.url, 1).await;
    server.stop();
    let database = data.path().join("longhaul.db");
    let whole = fs::read(&database).unwrap();

    fs::write(&database, &whole[..whole.len() / 2]).unwrap();
    let said = refused_with(data.path());
    assert!(
        said.contains("damaged") && said.contains("restore a backup"),
        "{said}"
    );

    fs::write(&database, "").unwrap();
    fs::write(
        data.path().join("longhaul.db-wal"),
        "the log of a database that is gone",
    )
    .unwrap();
    let said = refused_with(data.path());
    assert!(
        said.contains("longhaul.db-wal") && said.contains("restore a backup"),
        "{said}"
    );
    fs::remove_file(&database).unwrap();
    let said = refused_with(data.path());
    assert!(said.contains("missing or empty"), "{said}");
    assert!(!database.exists(), "a refused start made a database");
}

/// The file is cut while the server runs: a failure of the disk, not a bug of the server.
#[tokio::test]
async fn a_database_that_is_cut_off_is_reported_as_damaged() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    for number in 0..20 {
        start_large(&server.url, number).await;
    }
    server.stop();
    let server = Server::start(data.path(), &[]);
    let database = fs::File::options()
        .write(true)
        .open(data.path().join("longhaul.db"))
        .unwrap();
    database.set_len(8192).unwrap();
    let described = get(format!("{}/api/workflows/order-7", server.url)).await;
    assert_eq!(described["reason"], "store_damaged", "{described}");
    assert_eq!(ready(&server.url).await.0, 503);
}

#[test]
fn a_second_server_is_refused_although_the_lock_file_is_gone() {
    let data = tempfile::tempdir().unwrap();
    let _first = Server::start(data.path(), &[]);
    fs::remove_file(data.path().join("longhaul.db.lock")).unwrap();
    let said = refused_with(data.path());
    assert!(said.contains("another longhaul server"), "{said}");
}
