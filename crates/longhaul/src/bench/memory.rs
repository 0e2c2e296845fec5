//! Measures the resident memory per open run. The runs wait for a signal, as most runs do most of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::task::JoinSet;

use super::Home;
use super::client::Connection;
use super::measure::resident_bytes;
use super::progress::Progress;
use super::target::fresh_name;
use super::wire::{self, Worker};

/// Runs that are opened before the first measurement, so that buffers, threads and the cache of the database have their size.
const WARM_UP_RUNS: u64 = 1000;

#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) open_runs: u64,
    pub(super) resident_before_bytes: u64,
    pub(super) resident_after_bytes: u64,
    /// The part that is not backed by files.
    pub(super) anonymous_after_bytes: u64,
    pub(super) bytes_per_open_run: f64,
}

pub(super) async fn measure(
    home: &Home,
    in_flight: u64,
    open_runs: u64,
    progress: &Progress,
) -> Result<Memory> {
    let target = home.open("memory").await?;
    let worker = Worker {
        id: fresh_name("worker"),
        queue: fresh_name("memory"),
    };
    target.connect().await?.register(&worker).await?;
    let mut lines = target.connect_many(in_flight).await?;
    lines = open(&worker, lines, WARM_UP_RUNS, progress).await?;
    let (before, _) =
        resident_bytes().context("this system does not tell how much memory is resident")?;
    lines = open(&worker, lines, open_runs, progress).await?;
    let (after, anonymous) =
        resident_bytes().context("this system does not tell how much memory is resident")?;
    drop(lines);
    target.stop().await;
    Ok(Memory {
        open_runs,
        resident_before_bytes: before,
        resident_after_bytes: after,
        anonymous_after_bytes: anonymous,
        bytes_per_open_run: after.saturating_sub(before) as f64 / open_runs as f64,
    })
}

/// Starts a number of runs and drives each to its wait.
async fn open(
    worker: &Worker,
    lines: Vec<Connection>,
    count: u64,
    progress: &Progress,
) -> Result<Vec<Connection>> {
    let next = Arc::new(AtomicU64::new(0));
    let name = fresh_name("open");
    let mut tasks = JoinSet::new();
    for mut line in lines {
        let (worker, name, next) = (worker.clone(), name.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, anyhow::Error>(line);
                }
                line.start(&format!("{name}-{number}"), &worker.queue)
                    .await?;
                // There are as many polls as starts, so each finds a task, though not always its own.
                let task = line.poll_workflow_task(&worker, wire::PAGE_SIZE).await?;
                let status = line
                    .complete_workflow_task(&task, wire::OPEN_SIGNAL_WAIT)
                    .await?;
                ensure!(
                    status == "waiting",
                    "{} is {status}, expected waiting",
                    task.workflow_id
                );
            }
        });
    }
    let mut back = Vec::new();
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(200));
    while !tasks.is_empty() {
        tokio::select! {
            Some(ended) = tasks.join_next() => back.push(ended.context("a client ended early")??),
            _ = tick.tick() => progress.show(&format!("memory: {} of {count} open runs", next.load(Ordering::Relaxed).min(count))),
        }
    }
    Ok(back)
}
