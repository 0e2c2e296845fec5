//! Polls and reports of workers of definition runs: what they cost the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_host::Host;
use longhaul_host::clock::ManualClock;
use longhaul_protocol::conductor::Task;
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use longhaul_store::sqlite::Sqlite;
use serde_json::json;

use crate::setup::{batch_of, completed, define, namespace, open, start_execution};

async fn expect_no_reads(host: &Host, calls: &AtomicUsize, task_type: &str) {
    let poll = batch_of(task_type);
    // Background loops may use the store at any time, but seldom.
    let is_quiet = async || {
        let before = calls.load(Ordering::SeqCst);
        for _ in 0..100 {
            let tasks = host.execution_tasks().poll(&poll).await.unwrap();
            assert!(tasks.is_empty());
        }
        calls.load(Ordering::SeqCst) == before
    };
    for _ in 0..20 {
        if is_quiet().await {
            return;
        }
    }
    panic!("empty polls of {task_type} use the store");
}

#[tokio::test]
async fn an_empty_poll_reads_nothing_from_the_store() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let store = Memory::with_fault(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let store: Arc<dyn Store> = Arc::new(store);
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let host = open(&store, &clock).await;
    expect_no_reads(&host, &calls, "nothing").await;
    // Nor does one of a queue whose tasks are withheld.
    define(&host, json!({"concurrentExecLimit": 1}), &["t"]).await;
    for _ in 0..3 {
        start_execution(&host).await;
    }
    let tasks = host.execution_tasks().poll(&batch_of("t")).await.unwrap();
    assert_eq!(tasks.len(), 1);
    expect_no_reads(&host, &calls, "t").await;
}

#[tokio::test]
async fn a_report_that_takes_the_next_task_is_one_write() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = Arc::new(Sqlite::open(directory.path().join("data.db")).unwrap());
    let store: Arc<dyn Store> = Arc::clone(&sqlite) as Arc<dyn Store>;
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let host = open(&store, &clock).await;
    define(&host, json!({}), &["one", "two", "three"]).await;
    start_execution(&host).await;
    let report = async |task: &Task| {
        let before = sqlite.stats().writes;
        let tasks = host.execution_tasks();
        let (_, next) = tasks
            .update_and_take_next(
                &namespace(),
                &task.workflow_instance_id,
                &task.task_id,
                completed(),
            )
            .await
            .unwrap();
        (next.unwrap(), sqlite.stats().writes - before)
    };
    let first = host.execution_tasks().poll(&batch_of("t")).await.unwrap();
    let (next, writes) = report(&first[0]).await;
    assert_eq!((next.reference_task_name.as_str(), writes), ("two", 1));
    // An older task of another run is claimed beside the report.
    start_execution(&host).await;
    let (other, writes) = report(&next).await;
    assert_ne!(other.workflow_instance_id, next.workflow_instance_id);
    assert_eq!((other.reference_task_name.as_str(), writes), ("one", 2));
}
