//! Measures definition runs: throughput, delivery on an idle server, empty polls, memory, long runs, wide forks, scripts.

mod load;
mod rows;
pub(super) mod sdk;
mod wire;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

pub(super) use self::rows::rows;
use self::wire::simple;
use super::baseline::{Echo, SyncedFile};
use super::dispatch::deliver;
use super::measure::{ProcessorTime, Spread, ratio, resident_bytes};
use super::progress::Progress;
use super::target::{Target, fresh_name};
use super::{Args, Home};

/// Rounds of the delivery on an idle server.
const ROUNDS: usize = 200;

/// Workers that poll empty queues, and how often each polls.
pub(super) const IDLE_WORKERS: u64 = 1000;
const IDLE_INTERVAL: Duration = Duration::from_millis(100);

/// Tasks of the long run, and those that are measured at its beginning and its end.
const LONG_TASKS: usize = 10_000;
const MEASURED_TASKS: usize = 200;

/// Branches of the wide fork, and the connections that work on them.
const BRANCHES: usize = 4000;
const FORK_WORKERS: u64 = 16;

/// Scripts of one run.
const SCRIPTS: usize = 20;

/// Runs that are opened before the first measurement of memory.
const WARM_UP_RUNS: u64 = 1000;

#[derive(Debug, Serialize)]
pub(super) struct Conductor {
    load: load::Load,
    /// From an update until a waiting poll of another type has the next task.
    delivery: Spread,
    fdatasync: Spread,
    idle: Idle,
    /// `None` if the server is another process.
    bytes_per_open_run: Option<f64>,
    open_runs: u64,
    long_run: LongRun,
    fork_seconds: f64,
    scripts_per_second: f64,
}

/// Workers that poll empty queues.
#[derive(Debug, Serialize)]
struct Idle {
    workers: u64,
    requests_per_second: f64,
    /// Processors that server and workers kept busy.
    processors_busy: Option<f64>,
}

/// One run with a sequence of tasks.
#[derive(Debug, Serialize)]
struct LongRun {
    tasks: usize,
    early: Spread,
    late: Spread,
    early_processor_us: Option<f64>,
    late_processor_us: Option<f64>,
    processor_ratio: Option<f64>,
}

pub(super) async fn measure(
    home: &Home,
    args: &Args,
    echo: Option<&Echo>,
    progress: &Progress,
) -> Result<Conductor> {
    let target = home.open("conductor").await?;
    let delivery = deliveries(home, &target, progress).await?;
    let bytes_per_open_run = memory(home, &target, args, progress).await?;
    let duration = Duration::from_secs(args.seconds);
    let load = load::measure(&target, args.in_flight, duration, echo, progress).await?;
    let measured = Conductor {
        load,
        delivery: delivery.0,
        fdatasync: delivery.1,
        idle: idle(home, &target, duration, progress).await?,
        bytes_per_open_run,
        open_runs: args.open_runs,
        long_run: long_run(home, &target, progress).await?,
        fork_seconds: fork(&target, progress).await?,
        scripts_per_second: scripts(&target, duration, progress).await?,
    };
    target.stop().await;
    Ok(measured)
}

/// Measures the time from an update until the next task of the run is delivered to a poll that waits for it.
async fn deliveries(home: &Home, target: &Target, progress: &Progress) -> Result<(Spread, Spread)> {
    let (first, second) = (fresh_name("first"), fresh_name("second"));
    let workflow = fresh_name("delivery");
    let mut reporting = target.connect().await?;
    let mut polling = target.connect().await?;
    let tasks = json!([simple(&first, "a"), simple(&second, "b")]);
    reporting.define(&workflow, tasks).await?;
    let mut disk = SyncedFile::create(home.disk())?;
    let (mut times, mut syncs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        progress.show(&format!("conductor: delivery {round} of {ROUNDS}"));
        reporting.start_run(&workflow, "", json!({})).await?;
        let task = reporting.poll_batch(&first, 1).await?;
        let update = reporting.complete_task(&task[0]);
        let (next, took) = deliver(polling.poll_batch(&second, 1), update).await?;
        times.push(took);
        reporting.complete_task(&next[0]).await?;
        let (back, took) = disk.sample().await?;
        disk = back;
        syncs.push(took);
    }
    Ok((Spread::of(times), Spread::of(syncs)))
}

/// Measures the memory of runs with one task that waits for a worker.
async fn memory(
    home: &Home,
    target: &Target,
    args: &Args,
    progress: &Progress,
) -> Result<Option<f64>> {
    if !home.is_in_process() {
        return Ok(None);
    }
    let workflow = fresh_name("open");
    let mut connection = target.connect().await?;
    let tasks = json!([simple(&fresh_name("task"), "a")]);
    connection.define(&workflow, tasks).await?;
    open(target, &workflow, args.in_flight, WARM_UP_RUNS).await?;
    let unknown = "this system does not report how much memory is resident";
    let (before, _) = resident_bytes().context(unknown)?;
    progress.show("conductor: memory");
    open(target, &workflow, args.in_flight, args.open_runs).await?;
    let (after, _) = resident_bytes().context(unknown)?;
    let bytes = after.saturating_sub(before) as f64;
    Ok(Some(bytes / args.open_runs as f64))
}

async fn open(target: &Target, workflow: &str, connections: u64, count: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..connections {
        let mut connection = target.connect().await?;
        let workflow = workflow.to_owned();
        let own = count / connections + u64::from(number < count % connections);
        tasks.spawn(async move {
            for _ in 0..own {
                connection.start_run(&workflow, "", json!({})).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a starter ended early")??;
    }
    Ok(())
}

/// Measures workers whose queues are empty.
async fn idle(
    home: &Home,
    target: &Target,
    duration: Duration,
    progress: &Progress,
) -> Result<Idle> {
    progress.show("conductor: empty polls");
    let queue = fresh_name("empty");
    let mut tasks = JoinSet::new();
    let connections = target.connect_many(IDLE_WORKERS).await?;
    let (requests, processor, began) = (target.requests(), ProcessorTime::now(), Instant::now());
    for (number, mut connection) in connections.into_iter().enumerate() {
        let queue = format!("{queue}-{}", number % 10);
        tasks.spawn(async move {
            let mut tick = tokio::time::interval(IDLE_INTERVAL);
            while began.elapsed() < duration {
                tick.tick().await;
                connection.poll_empty(&queue).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a worker ended early")??;
    }
    let elapsed = began.elapsed().as_secs_f64();
    let processor = ProcessorTime::elapsed(processor.as_ref()).filter(|_| home.is_in_process());
    Ok(Idle {
        workers: IDLE_WORKERS,
        requests_per_second: (target.requests() - requests) as f64 / elapsed,
        processors_busy: processor.map(|time| time.as_secs_f64() / elapsed),
    })
}

/// Measures a task early and late in one long run.
async fn long_run(home: &Home, target: &Target, progress: &Progress) -> Result<LongRun> {
    let (workflow, task_type) = (fresh_name("long"), fresh_name("task"));
    let mut connection = target.connect().await?;
    let tasks: Vec<_> = (0..LONG_TASKS)
        .map(|number| simple(&task_type, &format!("t{number}")))
        .collect();
    connection.define(&workflow, json!(tasks)).await?;
    let id = connection.start_run(&workflow, "", json!({})).await?;
    let mut next = connection.poll_batch(&task_type, 1).await?.pop();
    let mut sides = [Vec::new(), Vec::new()];
    let mut processor = [None, None];
    let (early, late) = (10, LONG_TASKS - MEASURED_TASKS);
    let mut began_at = None;
    let mut done = 0;
    while let Some(task) = next {
        if done % 100 == 0 {
            progress.show(&format!("conductor: task {done} of {LONG_TASKS}"));
        }
        let side = usize::from(done >= late);
        let is_measured = done >= late || (early..early + MEASURED_TASKS).contains(&done);
        if done == early || done == late {
            began_at = ProcessorTime::now();
        }
        let began = Instant::now();
        next = connection.complete_and_take_next(&task).await?;
        if is_measured {
            sides[side].push(began.elapsed());
        }
        done += 1;
        if done == early + MEASURED_TASKS || done == LONG_TASKS {
            processor[side] = ProcessorTime::elapsed(began_at.as_ref());
        }
    }
    ensure!(done == LONG_TASKS, "the long run had {done} tasks");
    connection.check_completed(&id).await?;
    let [early, late] = sides.map(Spread::of);
    let [early_processor_us, late_processor_us] = processor.map(|time| {
        time.filter(|_| home.is_in_process())
            .map(|time| time.as_secs_f64() * 1e6 / MEASURED_TASKS as f64)
    });
    Ok(LongRun {
        tasks: LONG_TASKS,
        early,
        late,
        processor_ratio: early_processor_us
            .zip(late_processor_us)
            .and_then(|(early, late)| ratio(late, early)),
        early_processor_us,
        late_processor_us,
    })
}

/// Measures a fork with many branches, from its start to its end.
async fn fork(target: &Target, progress: &Progress) -> Result<f64> {
    progress.show("conductor: fork");
    let (workflow, task_type) = (fresh_name("fork"), fresh_name("task"));
    let mut connection = target.connect().await?;
    let fork = json!({
        "name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "branches",
        "dynamicForkTasksInputParamName": "inputs",
        "inputParameters": {"branches": "${workflow.input.branches}", "inputs": {}},
    });
    let join = json!({"name": "join", "taskReferenceName": "join", "type": "JOIN"});
    connection.define(&workflow, json!([fork, join])).await?;
    let branches: Vec<_> = (0..BRANCHES)
        .map(|number| simple(&task_type, &format!("b{number}")))
        .collect();
    let workers = target.connect_many(FORK_WORKERS).await?;
    let began = Instant::now();
    let input = json!({"branches": branches});
    let id = connection.start_run(&workflow, "", input).await?;
    let mut working = JoinSet::new();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for mut worker in workers {
        let (task_type, done) = (task_type.clone(), std::sync::Arc::clone(&done));
        working.spawn(async move {
            let mut taken = VecDeque::new();
            loop {
                let Some(task) = taken.pop_front() else {
                    taken.extend(worker.poll_batch(&task_type, 10).await?);
                    continue;
                };
                taken.extend(worker.complete_and_take_next(&task).await?);
                let completed = 1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if completed == BRANCHES {
                    return Ok::<_, anyhow::Error>(());
                }
            }
        });
    }
    if let Some(ended) = working.join_next().await {
        ended.context("a worker ended early")??;
    }
    let seconds = began.elapsed().as_secs_f64();
    working.shutdown().await;
    connection.check_completed(&id).await?;
    Ok(seconds)
}

/// Measures evaluations of short scripts, in runs that start one after another on a few connections.
async fn scripts(target: &Target, duration: Duration, progress: &Progress) -> Result<f64> {
    progress.show("conductor: scripts");
    let workflow = fresh_name("scripts");
    let mut connection = target.connect().await?;
    let tasks: Vec<_> = (0..SCRIPTS)
        .map(|number| {
            json!({
                "name": "script", "taskReferenceName": format!("s{number}"), "type": "INLINE",
                "inputParameters": {"evaluatorType": "graaljs", "expression": format!("$.n + {number}"), "n": 1},
            })
        })
        .collect();
    connection.define(&workflow, json!(tasks)).await?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for mut connection in target.connect_many(4).await? {
        let workflow = workflow.clone();
        running.spawn(async move {
            let mut runs = 0;
            let mut last = None;
            while began.elapsed() < duration {
                last = Some(connection.start_run(&workflow, "", json!({})).await?);
                runs += 1;
            }
            if let Some(id) = last {
                connection.check_completed(&id).await?;
            }
            Ok::<usize, anyhow::Error>(runs)
        });
    }
    let mut runs = 0;
    while let Some(ended) = running.join_next().await {
        runs += ended.context("a starter ended early")??;
    }
    Ok((runs * SCRIPTS) as f64 / began.elapsed().as_secs_f64())
}
