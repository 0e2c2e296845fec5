//! A disk that fills up under load and gets room again. Accepted work stays, refused work does not exist, and the server is not
//! ready while it cannot write.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use crate::server::{Server, eventually};
use crate::wire::{Client, Request};

/// Room for the store, its log and some hundred workflows.
const DISK_BYTES: u64 = 24 << 20;

/// The input of each workflow, so that the log grows.
const INPUT_BYTES: usize = 4000;

/// Connections that start workflows all the time.
const LOADERS: u64 = 3;

/// A small disk in memory. Unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "tmpfs"])
            .arg(at)
            .output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }

    /// Fills the rest of the disk.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).expect("a file");
        let block = [0; 4096];
        loop {
            match file.write_all(&block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return path,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: the server may still have files open while it is killed.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Runs this test again in a namespace where an ordinary user may mount.
fn run_in_own_namespace(test: &str) {
    assert!(
        std::env::var_os("ATTACK_IN_NAMESPACE").is_none(),
        "a tmpfs cannot be mounted, neither as this user nor in a namespace; the test needs one of the two"
    );
    let program = std::env::current_exe().expect("the test program");
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(program)
        .args(["--exact", test])
        .env("ATTACK_IN_NAMESPACE", "1")
        .status()
        .expect("unshare runs");
    assert!(status.success(), "the test failed in its namespace");
}

/// The results of the loaders.
#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    accepted: AtomicU64,
    refused: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_work_continues_with_room() {
    let directory = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(&directory.path().join("disk")) else {
        return run_in_own_namespace(
            "disk::a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room",
        );
    };
    let data = disk.0.join("data");
    let mut server = Server::start_on(directory, data, &[]).await;
    let tally = Arc::new(Tally::default());
    let loaders: Vec<_> = (0..LOADERS)
        .map(|number| tokio::spawn(start_workflows(server.client(), number, Arc::clone(&tally))))
        .collect();
    more_than(&tally.accepted, 20, "workflows start").await;

    let filler = disk.fill();
    more_than(&tally.refused, 20, "starts are refused").await;
    readiness(&server, 503).await;

    fs::remove_file(filler).expect("room");
    readiness(&server, 200).await;
    let before = tally.accepted.load(Ordering::Relaxed);
    more_than(&tally.accepted, before + 20, "workflows start again").await;
    tally.stop.store(true, Ordering::Relaxed);
    let mut accepted = BTreeSet::new();
    for loader in loaders {
        accepted.extend(loader.await.expect("a loader ends"));
    }

    assert!(server.is_running());
    assert!(!server.log().contains("panicked"), "{}", server.log());
    assert_eq!(stored(&mut server.client()).await, accepted);
    server.kill_and_restart().await;
    assert_eq!(stored(&mut server.client()).await, accepted);
}

async fn more_than(count: &AtomicU64, least: u64, what: &str) {
    eventually(what, || async {
        (count.load(Ordering::Relaxed) > least).then_some(())
    })
    .await;
}

async fn readiness(server: &Server, status: u16) {
    let mut client = server.client();
    let address = client.address();
    eventually(&format!("/api/ready answers {status}"), || {
        let mut client = Client::new(address);
        async move {
            let answer = client.send(&Request::new("GET", "/api/ready")).await;
            answer
                .is_ok_and(|answer| answer.status == status)
                .then_some(())
        }
    })
    .await;
    // Liveness is another matter: a restart would not help.
    let health = client.send(&Request::new("GET", "/api/health")).await;
    assert!(health.is_ok());
}

/// Starts one workflow after another. Returns the ids of the accepted ones.
async fn start_workflows(mut client: Client, number: u64, tally: Arc<Tally>) -> Vec<String> {
    let mut accepted = Vec::new();
    for next in 0_u64.. {
        if tally.stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("run-{number}-{next}");
        let body = json!({"workflow_type": "greet", "workflow_id": id, "input": ["x".repeat(INPUT_BYTES)]});
        let request = Request::new("POST", "/api/workflows")
            .versioned()
            .json(&body);
        let answer = client.send(&request).await.expect("an answer");
        match answer.status {
            201 => {
                accepted.push(id);
                tally.accepted.fetch_add(1, Ordering::Relaxed);
            }
            503 => {
                let body = answer.json();
                assert!(body["reason"].is_string(), "{body}");
                tally.refused.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("{other}: {}", answer.text()),
        }
        // The disk is small; it must not be full before the test fills it.
        tokio::task::yield_now().await;
    }
    accepted
}

/// The ids of all workflows.
async fn stored(client: &mut Client) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut token = String::new();
    loop {
        let target = format!("/api/workflows?page_size=100{token}");
        let list = client.get(&target).await;
        let rows = list["workflows"].as_array().expect("a list");
        ids.extend(
            rows.iter()
                .map(|row| row["workflow_id"].as_str().expect("an id").to_owned()),
        );
        match list["next_page_token"].as_str() {
            Some(next) => token = format!("&next_page_token={next}"),
            None => return ids,
        }
    }
}
