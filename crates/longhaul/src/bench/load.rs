//! One-activity workflows with a number of them in flight. Each makes seven requests, as published workers do.
//!
//! A slot starts a workflow, waits until it is complete and starts the next. Workers poll on separate connections; there are
//! enough of them that a ready task never waits for a poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::client::Connection;
use super::measure::{self, ProcessorTime};
use super::target::{Target, fresh_name};
use super::wire::{self, Worker};

/// Connections per workflow: one to start it, one to poll workflow tasks, one to poll activity tasks.
pub(super) const CONNECTIONS_PER_WORKFLOW: u64 = 3;

/// Polls of each kind that one worker keeps open. The published Rust worker keeps ten.
const POLLS_PER_WORKER: u64 = 8;

/// The end of the load: at a time, or after a number of workflows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Elapsed(Duration),
    Workflows(u64),
}

/// The results of a load.
pub(super) struct Driven {
    /// From the first start to the last completion.
    pub(super) elapsed: Duration,
    pub(super) requests: u64,
    /// From sending each start to the response to its completion.
    pub(super) latencies: Vec<Duration>,
    pub(super) processor: Option<Duration>,
    /// Processor seconds of the whole machine during the load.
    pub(super) machine_seconds: Option<f64>,
    /// Some of the workflows, to check their results.
    pub(super) sample: Vec<String>,
}

/// State that slots and workers share.
struct Shared {
    queue: String,
    /// Notified when the workflow of that slot is complete.
    done: Vec<Notify>,
    started: AtomicU64,
    completed: AtomicU64,
    workflows_max: u64,
    stopping: AtomicBool,
}

/// A prepared load: workers are registered and connections are open.
pub(super) struct Load<'a> {
    target: &'a Target,
    in_flight: u64,
    workers: Vec<Worker>,
    queue: String,
}

impl<'a> Load<'a> {
    pub(super) async fn prepare(target: &'a Target, in_flight: u64) -> Result<Self> {
        let queue = fresh_name("load");
        let mut connection = target.connect().await?;
        let mut workers = Vec::new();
        for number in 0..in_flight.div_ceil(POLLS_PER_WORKER) {
            let worker = Worker {
                id: format!("{queue}-{number}"),
                queue: queue.clone(),
            };
            connection.register(&worker).await?;
            workers.push(worker);
        }
        Ok(Self {
            target,
            in_flight,
            workers,
            queue,
        })
    }

    pub(super) async fn drive(&self, until: Until, watch: impl Fn(u64)) -> Result<Driven> {
        let slots = self.target.connect_many(self.in_flight).await?;
        let workflow_polls = self.target.connect_many(self.in_flight).await?;
        let activity_polls = self.target.connect_many(self.in_flight).await?;
        let shared = Arc::new(Shared {
            queue: self.queue.clone(),
            done: slots.iter().map(|_| Notify::new()).collect(),
            started: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            workflows_max: match until {
                Until::Workflows(count) => count,
                Until::Elapsed(_) => u64::MAX,
            },
            stopping: AtomicBool::new(false),
        });
        let mut working = JoinSet::new();
        for (number, connection) in workflow_polls.into_iter().enumerate() {
            working.spawn(work_on_workflows(
                connection,
                self.worker(number),
                Arc::clone(&shared),
            ));
        }
        for (number, connection) in activity_polls.into_iter().enumerate() {
            working.spawn(work_on_activities(connection, self.worker(number)));
        }
        let machine = measure::machine_seconds();
        let (requests, processor, began) =
            (self.target.requests(), ProcessorTime::now(), Instant::now());
        let name = fresh_name("run");
        let mut starting = JoinSet::new();
        for (slot, connection) in slots.into_iter().enumerate() {
            starting.spawn(keep_open(
                connection,
                slot,
                name.clone(),
                Arc::clone(&shared),
            ));
        }
        let mut latencies = Vec::new();
        let mut sample = Vec::new();
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        while !starting.is_empty() {
            tokio::select! {
                Some(ended) = starting.join_next() => {
                    let slot = ended.context("a slot ended early")??;
                    latencies.extend(slot.latencies);
                    sample.extend(slot.first);
                    sample.extend(slot.last);
                }
                // Workers end only with an error, which would leave the slots waiting.
                Some(ended) = working.join_next() => match ended.context("a worker ended early")? {
                    Err(error) => return Err(error),
                    Ok(never) => match never {},
                },
                _ = tick.tick() => {
                    watch(shared.completed.load(Ordering::Relaxed));
                    if let Until::Elapsed(duration) = until && began.elapsed() >= duration {
                        shared.stopping.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        let elapsed = began.elapsed();
        let processor = ProcessorTime::elapsed(processor.as_ref());
        let machine_seconds = machine
            .zip(measure::machine_seconds())
            .map(|(earlier, now)| now - earlier);
        let requests = self.target.requests() - requests;
        // No task is ready now, so no poll can get a task while it is dropped.
        working.shutdown().await;
        Ok(Driven {
            elapsed,
            requests,
            latencies,
            processor,
            machine_seconds,
            sample,
        })
    }

    fn worker(&self, poll: usize) -> Worker {
        self.workers[poll / POLLS_PER_WORKER as usize].clone()
    }

    /// Deregisters the workers.
    pub(super) async fn leave(self) -> Result<()> {
        let mut connection = self.target.connect().await?;
        for worker in &self.workers {
            connection.deregister(worker).await?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Slot {
    latencies: Vec<Duration>,
    first: Option<String>,
    last: Option<String>,
}

async fn keep_open(
    mut connection: Connection,
    slot: usize,
    name: String,
    shared: Arc<Shared>,
) -> Result<Slot> {
    let mut ended = Slot::default();
    while !shared.stopping.load(Ordering::Relaxed) {
        let number = shared.started.fetch_add(1, Ordering::Relaxed);
        if number >= shared.workflows_max {
            break;
        }
        let workflow_id = format!("{name}-{number}-{slot}");
        let began = Instant::now();
        connection.start(&workflow_id, &shared.queue).await?;
        shared.done[slot].notified().await;
        ended.latencies.push(began.elapsed());
        if ended.first.is_none() {
            ended.first = Some(workflow_id);
        } else {
            ended.last = Some(workflow_id);
        }
    }
    Ok(ended)
}

/// Runs until an error occurs or the future is dropped.
enum Never {}

async fn work_on_workflows(
    mut connection: Connection,
    worker: Worker,
    shared: Arc<Shared>,
) -> Result<Never> {
    loop {
        let task = connection
            .poll_workflow_task(&worker, wire::PAGE_SIZE)
            .await?;
        let Some(result) = task.activity_result()? else {
            let status = connection
                .complete_workflow_task(&task, wire::SCHEDULE_ACTIVITY)
                .await?;
            ensure!(
                status == "waiting",
                "{} is {status}, expected waiting",
                task.workflow_id
            );
            continue;
        };
        connection.complete_workflow(&task, &result).await?;
        let slot = task
            .workflow_id
            .rsplit('-')
            .next()
            .and_then(|slot| slot.parse::<usize>().ok());
        let Some(done) = slot.and_then(|slot| shared.done.get(slot)) else {
            bail!(
                "a task of {}, which this bench did not start",
                task.workflow_id
            );
        };
        shared.completed.fetch_add(1, Ordering::Relaxed);
        done.notify_one();
    }
}

async fn work_on_activities(mut connection: Connection, worker: Worker) -> Result<Never> {
    loop {
        let task = connection.poll_activity_task(&worker).await?;
        connection.complete_activity_task(&task).await?;
    }
}
