//! Measures `longhaul-conductor-sdk`: how soon a queued task begins, tasks per second with workers of both kinds, requests per task,
//! and what a worker process costs.

pub(in crate::bench) mod process;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::runner::{RunnerControl, TaskRunner};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::transport::{
    HttpTransport, Request, Response, Transport, TransportError,
};
use longhaul_conductor_sdk::worker::{AnyWorker, RunnerKind, async_function, function};
use longhaul_conductor_sdk::{Client, Configuration};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

pub(in crate::bench) use self::rows::rows;
use super::wire::simple;
use crate::bench::baseline::Echo;
use crate::bench::measure::{Spread, ratio};
use crate::bench::progress::Progress;
use crate::bench::target::{Target, fresh_name};
use crate::bench::{Args, Home};
use process::WorkerProcess;

/// Tasks that begin one after another on an idle server.
const ROUNDS: usize = 200;

/// Tasks that wait in the queue when the workers start.
const QUEUED: u64 = 5000;

/// Slots of the worker under load, and of the one whose requests are counted.
const SLOTS: usize = 50;
const COUNTED_SLOTS: usize = 10;

/// Slots of a worker whose tasks wait. With few slots, the wait alone decides the rate, and both kinds of worker have the same.
const WAITING_SLOTS: usize = 400;

/// How long a task that waits takes.
const WAITING: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize)]
pub(in crate::bench) struct ConductorSdk {
    /// From the start of a workflow until the function of its task begins.
    queued_to_started: Spread,
    slots: usize,
    no_op_async: Drained,
    no_op_sync: Drained,
    waiting_slots: usize,
    waiting_async: Drained,
    waiting_sync: Drained,
    /// With fewer slots.
    counted_slots: usize,
    requests_per_task: f64,
    /// `None` if the system does not report it.
    process: Option<WorkerProcess>,
}

/// A full queue that was worked off.
#[derive(Debug, Serialize)]
struct Drained {
    tasks: u64,
    tasks_per_second: f64,
    /// The rate divided by the request rate of the echo server.
    to_echo: Option<f64>,
    requests_per_task: f64,
}

pub(in crate::bench) async fn measure(
    home: &Home,
    args: &Args,
    echo: Option<&Echo>,
    progress: &Progress,
) -> Result<ConductorSdk> {
    let target = home.open("conductor-sdk").await?;
    let bench = Bench {
        target: &target,
        in_flight: args.in_flight,
        echo,
        progress,
    };
    let queued_to_started = bench.queued_to_started().await?;
    let no_op_async = bench.drain(RunnerKind::Async, SLOTS, None).await?;
    let no_op_sync = bench.drain(RunnerKind::Sync, SLOTS, None).await?;
    let waiting = |kind| bench.drain(kind, WAITING_SLOTS, Some(WAITING));
    let waiting_async = waiting(RunnerKind::Async).await?;
    let waiting_sync = waiting(RunnerKind::Sync).await?;
    let counted = bench.drain(RunnerKind::Async, COUNTED_SLOTS, None).await?;
    let process = process::measure(&target, args.seconds, progress).await?;
    target.stop().await;
    Ok(ConductorSdk {
        queued_to_started,
        slots: SLOTS,
        no_op_async,
        no_op_sync,
        waiting_slots: WAITING_SLOTS,
        waiting_async,
        waiting_sync,
        counted_slots: COUNTED_SLOTS,
        requests_per_task: counted.requests_per_task,
        process,
    })
}

struct Bench<'a> {
    target: &'a Target,
    in_flight: u64,
    echo: Option<&'a Echo>,
    progress: &'a Progress,
}

impl Bench<'_> {
    /// Measures how soon a task begins for which a worker waits.
    async fn queued_to_started(&self) -> Result<Spread> {
        let (workflow, task_type) = self.define().await?;
        let (begun, mut began) = mpsc::unbounded_channel();
        let worker = async_function(&task_type, move |_: Value| {
            let _bench_is_gone = begun.send(Instant::now());
            async { Ok(()) }
        });
        let running = Running::start(self.target, worker, 1)?;
        let mut connection = self.target.connect().await?;
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            self.progress
                .show(&format!("conductor-sdk: delivery {round} of {ROUNDS}"));
            let queued = Instant::now();
            connection.start_run(&workflow, "", json!({})).await?;
            let started = began.recv().await.context("the worker ended early")?;
            times.push(started.saturating_duration_since(queued));
        }
        running.stop().await?;
        Ok(Spread::of(times))
    }

    /// Measures how fast a worker empties a full queue.
    async fn drain(
        &self,
        kind: RunnerKind,
        slots: usize,
        wait: Option<Duration>,
    ) -> Result<Drained> {
        let (workflow, task_type) = self.define().await?;
        self.progress.show("conductor-sdk: a full queue");
        super::open(self.target, &workflow, self.in_flight, QUEUED).await?;
        let left = Arc::new(AtomicU64::new(QUEUED));
        let empty = Arc::new(Notify::new());
        let done = {
            let (left, empty) = (Arc::clone(&left), Arc::clone(&empty));
            move || {
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    empty.notify_one();
                }
            }
        };
        let worker = match kind {
            RunnerKind::Async => async_function(&task_type, move |_: Value| {
                let done = done.clone();
                async move {
                    if let Some(wait) = wait {
                        tokio::time::sleep(wait).await;
                    }
                    done();
                    Ok(())
                }
            }),
            RunnerKind::Sync => function(&task_type, move |_: Value| {
                if let Some(wait) = wait {
                    std::thread::sleep(wait);
                }
                done();
                Ok(())
            }),
        };
        self.progress
            .show(&format!("conductor-sdk: {kind:?} worker, {slots} slots"));
        let began = Instant::now();
        let running = Running::start(self.target, worker, slots)?;
        empty.notified().await;
        let requests = running.requests.load(Ordering::Relaxed);
        // The stop waits for the last reports.
        running.stop().await?;
        let per_second = QUEUED as f64 / began.elapsed().as_secs_f64();
        Ok(Drained {
            tasks: QUEUED,
            tasks_per_second: per_second,
            to_echo: self
                .echo
                .and_then(|echo| ratio(per_second, echo.requests_per_second)),
            requests_per_task: requests as f64 / QUEUED as f64,
        })
    }

    /// Defines a workflow of one task. Returns its name and the task type.
    async fn define(&self) -> Result<(String, String)> {
        let (workflow, task_type) = (fresh_name("one-task"), fresh_name("task"));
        let mut connection = self.target.connect().await?;
        let tasks = json!([simple(&task_type, "t")]);
        connection.define(&workflow, tasks).await?;
        Ok((workflow, task_type))
    }
}

/// A worker in this process, and the requests that it has sent.
struct Running {
    control: RunnerControl,
    running: JoinHandle<()>,
    requests: Arc<AtomicU64>,
}

impl Running {
    fn start(target: &Target, worker: AnyWorker, slots: usize) -> Result<Self> {
        let http =
            HttpTransport::new(&target.url()).context("the address of the server is not valid")?;
        let transport = Counted {
            http,
            requests: Arc::default(),
        };
        let requests = Arc::clone(&transport.requests);
        let client = Client::over(&configuration(target), transport);
        let runner = runner(worker, &client, slots)?;
        Ok(Self {
            control: runner.control(),
            running: tokio::spawn(runner.run()),
            requests,
        })
    }

    /// Waits for the tasks in hand.
    async fn stop(self) -> Result<()> {
        self.control.stop();
        self.running.await.context("the worker ended early")?;
        ensure!(
            self.requests.load(Ordering::Relaxed) > 0,
            "the worker sent no request"
        );
        Ok(())
    }
}

fn configuration(target: &Target) -> Configuration {
    Configuration::new(format!("{}/api", target.url()))
}

/// Returns the runner of a worker with this many slots. Environment variables do not affect it.
fn runner(worker: AnyWorker, client: &Client, slots: usize) -> Result<TaskRunner> {
    let code = CodeSettings::new().thread_count(slots);
    let resolved = longhaul_conductor_sdk::settings::resolve(worker.task_type(), &code, &|_| None)?;
    let events = EventDispatcher::silent();
    Ok(TaskRunner::with_settings(
        worker,
        client.tasks(),
        events,
        resolved,
    ))
}

/// Counts requests.
#[derive(Debug)]
struct Counted {
    http: HttpTransport,
    requests: Arc<AtomicU64>,
}

impl Transport for Counted {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.http.send(request)
    }
}
