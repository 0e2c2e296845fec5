//! What a worker process costs: processor time and memory, idle and under a steady load.
//!
//! The process is this program with the hidden option `--conductor-worker`. It ends when its standard input does.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longhaul_conductor_sdk::worker::async_function;
use longhaul_conductor_sdk::{Client, Configuration};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::bench::conductor::wire::simple;
use crate::bench::measure::{processor_seconds_of, resident_bytes_of};
use crate::bench::progress::Progress;
use crate::bench::target::{Target, fresh_name};

/// The steady load, in tasks per second.
const LOAD_PER_SECOND: u64 = 200;

const SLOTS: usize = 10;

/// The longest measurement without tasks. The result is stable after a few seconds.
const IDLE_SECONDS_MAX: u64 = 10;

#[derive(Debug, Serialize)]
pub(in crate::bench) struct WorkerProcess {
    pub(super) idle_seconds: u64,
    /// Processors that the process kept busy without tasks.
    pub(super) idle_processors: f64,
    pub(super) idle_bytes: u64,
    pub(super) load_tasks: u64,
    pub(super) load_processors: f64,
    /// Resident memory after a third of the load, and at its end.
    pub(super) load_bytes_early: u64,
    pub(super) load_bytes_late: u64,
}

/// Measures a worker process without tasks, and for `seconds` under load.
pub(super) async fn measure(
    target: &Target,
    seconds: u64,
    progress: &Progress,
) -> Result<Option<WorkerProcess>> {
    let (workflow, task_type) = (fresh_name("process"), fresh_name("task"));
    let mut connection = target.connect().await?;
    connection
        .define(&workflow, json!([simple(&task_type, "t")]))
        .await?;
    let mut child = start(target, &task_type)?;
    let pid = child.id().context("the worker process ended early")?;
    // One task shows that the worker polls.
    let first = connection.start_run(&workflow, "", json!({})).await?;
    while !connection.is_completed(&first).await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    progress.show("conductor-sdk: an idle worker process");
    let began = Instant::now();
    let Some(used) = processor_seconds_of(pid) else {
        return Ok(None);
    };
    let idle_seconds = seconds.min(IDLE_SECONDS_MAX);
    tokio::time::sleep(Duration::from_secs(idle_seconds)).await;
    let idle_processors = busy(pid, used, began)?;
    let idle_bytes = resident(pid)?;

    let began = Instant::now();
    let used = processor_seconds_of(pid).context("the worker process ended early")?;
    let tasks = seconds * LOAD_PER_SECOND;
    let mut early = 0;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / LOAD_PER_SECOND as u32);
    let mut last = first;
    for task in 0..tasks {
        tick.tick().await;
        if task % LOAD_PER_SECOND == 0 {
            let second = task / LOAD_PER_SECOND;
            progress.show(&format!(
                "conductor-sdk: a worker process under load, {second} of {seconds} s"
            ));
        }
        if task == tasks / 3 {
            early = resident(pid)?;
        }
        last = connection.start_run(&workflow, "", json!({})).await?;
    }
    while !connection.is_completed(&last).await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let measured = WorkerProcess {
        idle_seconds,
        idle_processors,
        idle_bytes,
        load_tasks: tasks,
        load_processors: busy(pid, used, began)?,
        load_bytes_early: early,
        load_bytes_late: resident(pid)?,
    };
    drop(child.stdin.take());
    let ended = child.wait().await.context("the worker process is lost")?;
    ensure!(ended.success(), "the worker process failed: {ended}");
    Ok(Some(measured))
}

fn start(target: &Target, task_type: &str) -> Result<Child> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    Command::new(program)
        .args(["bench", "conductor-sdk", "--url", &target.url()])
        .args(["--conductor-worker", task_type])
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("the worker process cannot be started")
}

/// Returns the processors that a process kept busy.
fn busy(pid: u32, before: f64, began: Instant) -> Result<f64> {
    let now = processor_seconds_of(pid).context("the worker process ended early")?;
    Ok((now - before) / began.elapsed().as_secs_f64())
}

fn resident(pid: u32) -> Result<u64> {
    resident_bytes_of(pid).context("the worker process ended early")
}

/// The worker process: works until its standard input ends.
pub(in crate::bench) async fn work(url: &str, task_type: &str) -> Result<()> {
    let configuration = Configuration::new(format!("{url}/api"));
    let client = Client::new(&configuration).context("the address of the server is not valid")?;
    let worker = async_function(task_type, async |_: Value| Ok(json!({"done": true})));
    let runner = super::runner(worker, &client, SLOTS)?;
    let control = runner.control();
    let running = tokio::spawn(runner.run());
    // What it reads does not matter; the end does.
    let end = || std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    let _end = tokio::task::spawn_blocking(end).await;
    control.stop();
    running.await.context("the worker ended early")
}
