//! Measures what servers send to the database when nothing happens: runs sleep, and polls wait for tasks that do not come. Polls that
//! end are sent again, as workers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::task::JoinSet;

use super::super::measure::ProcessorTime;
use super::super::progress::Progress;
use super::super::target::{Target, fresh_name};
use super::super::wire::{self, Worker};
use super::sum;

const WORKERS: usize = 250;
const POLLS: usize = 1000;
const SLEEPING_RUNS: u64 = 10_000;

/// Longer than a poll waits, so that each is sent again once.
const SECONDS: u64 = 35;

/// Hints, looks and signs of life of what happened before have ended after this.
const SETTLING: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub(in super::super) struct Idle {
    pub(in super::super) polls: usize,
    pub(in super::super) workers: usize,
    pub(in super::super) sleeping_runs: u64,
    pub(in super::super) seconds: f64,
    /// Of each server.
    pub(in super::super) statements_per_second: f64,
    /// Of all servers, which share this process.
    pub(in super::super) processors_busy: Option<f64>,
}

pub(super) async fn measure(
    target: &Target,
    servers: usize,
    in_flight: u64,
    progress: &Progress,
) -> Result<Idle> {
    sleep_runs(target, in_flight, progress).await?;
    let queue = fresh_name("idle");
    let mut polling = JoinSet::new();
    let mut registering = target.connect().await?;
    for number in 0..WORKERS {
        let worker = Worker {
            id: format!("{queue}-{number}"),
            queue: format!("{queue}-{}", number % 10),
        };
        registering.register(&worker).await?;
        for poll in 0..POLLS / WORKERS {
            let mut connection = target.connect_to((number + poll) % servers).await?;
            let worker = worker.clone();
            polling.spawn(async move {
                let ended = if poll % 2 == 0 {
                    let task = connection.poll_workflow_task(&worker, wire::PAGE_SIZE);
                    task.await.map(drop)
                } else {
                    connection.poll_activity_task(&worker).await.map(drop)
                };
                ended.and_then(|()| Err(anyhow::anyhow!("an idle poll got a task")))
            });
        }
    }
    progress.show("cluster: idle, settling");
    tokio::time::sleep(SETTLING).await;
    let statements = || {
        let remote = sum(&target.stats()).remote;
        remote.map_or(0, |remote| remote.statements)
    };
    let (before, processor, began) = (statements(), ProcessorTime::now(), Instant::now());
    progress.show(&format!("cluster: idle for {SECONDS} s"));
    tokio::select! {
        Some(ended) = polling.join_next() => ended.context("a poll ended early")??,
        () = tokio::time::sleep(Duration::from_secs(SECONDS)) => {}
    }
    let seconds = began.elapsed().as_secs_f64();
    let processor = ProcessorTime::elapsed(processor.as_ref());
    Ok(Idle {
        polls: POLLS,
        workers: WORKERS,
        sleeping_runs: SLEEPING_RUNS,
        seconds,
        statements_per_second: (statements() - before) as f64 / seconds / servers as f64,
        processors_busy: processor.map(|time| time.as_secs_f64() / seconds),
    })
}

/// Starts runs and lets each wait for a timer.
async fn sleep_runs(target: &Target, in_flight: u64, progress: &Progress) -> Result<()> {
    let worker = Worker {
        id: fresh_name("worker"),
        queue: fresh_name("sleeping"),
    };
    target.connect().await?.register(&worker).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for mut line in target.connect_many(in_flight).await? {
        let (worker, next) = (worker.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= SLEEPING_RUNS {
                    return Ok::<_, anyhow::Error>(());
                }
                line.start(&format!("{}-{number}", worker.queue), &worker.queue)
                    .await?;
                let task = line.poll_workflow_task(&worker, wire::PAGE_SIZE).await?;
                let status = line.complete_workflow_task(&task, wire::SLEEP).await?;
                ensure!(status == "waiting", "a sleeping run is {status}");
            }
        });
    }
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    while !tasks.is_empty() {
        tokio::select! {
            Some(ended) = tasks.join_next() => ended.context("a client ended early")??,
            _ = tick.tick() => {
                let started = next.load(Ordering::Relaxed).min(SLEEPING_RUNS);
                progress.show(&format!("cluster: {started} of {SLEEPING_RUNS} sleeping runs"));
            }
        }
    }
    target.connect().await?.deregister(&worker).await
}
