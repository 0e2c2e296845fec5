//! Workflows of three tasks with a number of them in flight. A slot starts a run, waits until its last task is complete and starts
//! the next. Workers poll in batches and take the next task with the answer to an update.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::wire::simple;
use crate::bench::baseline::Echo;
use crate::bench::client::Connection;
use crate::bench::measure::{ProcessorTime, Spread, ratio};
use crate::bench::progress::Progress;
use crate::bench::target::{Target, fresh_name};

/// Tasks of one workflow.
const TASKS: usize = 3;

/// Tasks that a worker asks for in one poll.
const BATCH: u64 = 2;

#[derive(Debug, Serialize)]
pub(in crate::bench) struct Load {
    pub(in crate::bench) in_flight: u64,
    pub(in crate::bench) workflows: usize,
    pub(in crate::bench) workflows_per_second: f64,
    pub(in crate::bench) tasks_per_second: f64,
    pub(in crate::bench) requests_per_workflow: f64,
    pub(in crate::bench) requests_to_echo: Option<f64>,
    pub(in crate::bench) latency: Spread,
    pub(in crate::bench) processor_us_per_workflow: Option<f64>,
}

/// State that slots and workers share.
struct Shared {
    workflow: String,
    task_type: String,
    /// Notified when the run of that slot is complete.
    done: Vec<Notify>,
    completed: AtomicU64,
    stopping: AtomicBool,
}

pub(super) async fn measure(
    target: &Target,
    in_flight: u64,
    duration: Duration,
    echo: Option<&Echo>,
    progress: &Progress,
) -> Result<Load> {
    let slots = target.connect_many(in_flight).await?;
    let workers = target.connect_many(in_flight).await?;
    let shared = Arc::new(Shared {
        workflow: fresh_name("three-tasks"),
        task_type: fresh_name("task"),
        done: slots.iter().map(|_| Notify::new()).collect(),
        completed: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
    });
    let references = ["a", "b", "c"].map(|reference| simple(&shared.task_type, reference));
    let mut connection = target.connect().await?;
    connection
        .define(&shared.workflow, json!(references))
        .await?;

    let mut working = JoinSet::new();
    for worker in workers {
        working.spawn(work(worker, Arc::clone(&shared)));
    }
    let (requests, processor, began) = (target.requests(), ProcessorTime::now(), Instant::now());
    let mut starting = JoinSet::new();
    for (slot, connection) in slots.into_iter().enumerate() {
        starting.spawn(keep_open(connection, slot, Arc::clone(&shared)));
    }
    let mut latencies = Vec::new();
    let mut sample = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    while !starting.is_empty() {
        tokio::select! {
            Some(ended) = starting.join_next() => {
                let (slot, last) = ended.context("a slot ended early")??;
                latencies.extend(slot);
                sample.extend(last);
            }
            // Workers end only with an error, which would leave the slots waiting.
            Some(ended) = working.join_next() => {
                ended.context("a worker ended early")??;
            }
            _ = tick.tick() => {
                let completed = shared.completed.load(Ordering::Relaxed);
                progress.show(&format!("conductor: {completed} workflows"));
                if began.elapsed() >= duration {
                    shared.stopping.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    let (elapsed, processor) = (began.elapsed(), ProcessorTime::elapsed(processor.as_ref()));
    let requests = (target.requests() - requests) as f64;
    working.shutdown().await;
    for workflow_id in &sample {
        connection.check_completed(workflow_id).await?;
    }
    let workflows = latencies.len();
    ensure!(workflows > 0, "no workflow was completed");
    let per_second = workflows as f64 / elapsed.as_secs_f64();
    Ok(Load {
        in_flight,
        workflows,
        workflows_per_second: per_second,
        tasks_per_second: per_second * TASKS as f64,
        requests_per_workflow: requests / workflows as f64,
        requests_to_echo: echo
            .and_then(|echo| ratio(requests / elapsed.as_secs_f64(), echo.requests_per_second)),
        latency: Spread::of(latencies),
        processor_us_per_workflow: processor
            .filter(|_| target.is_in_process())
            .map(|time| time.as_secs_f64() * 1e6 / workflows as f64),
    })
}

/// Keeps one run open. Returns the times of its runs, and the last one.
async fn keep_open(
    mut connection: Connection,
    slot: usize,
    shared: Arc<Shared>,
) -> Result<(Vec<Duration>, Option<String>)> {
    let (mut latencies, mut last) = (Vec::new(), None);
    while !shared.stopping.load(Ordering::Relaxed) {
        let began = Instant::now();
        let input = json!({"name": "world"});
        let id = connection
            .start_run(&shared.workflow, &slot.to_string(), input)
            .await?;
        shared.done[slot].notified().await;
        latencies.push(began.elapsed());
        last = Some(id);
    }
    Ok((latencies, last))
}

async fn work(mut connection: Connection, shared: Arc<Shared>) -> Result<()> {
    let mut taken = VecDeque::new();
    loop {
        let Some(task) = taken.pop_front() else {
            taken.extend(connection.poll_batch(&shared.task_type, BATCH).await?);
            continue;
        };
        taken.extend(connection.complete_and_take_next(&task).await?);
        if task.reference_task_name == "c" {
            let slot = task.correlation_id.as_deref().map(str::parse::<usize>);
            let Some(done) = slot
                .and_then(Result::ok)
                .and_then(|slot| shared.done.get(slot))
            else {
                bail!("a task of a run that this bench did not start");
            };
            shared.completed.fetch_add(1, Ordering::Relaxed);
            done.notify_one();
        }
    }
}
