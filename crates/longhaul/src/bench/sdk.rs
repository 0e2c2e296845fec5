//! Measures `longhaul-sdk` over HTTP: workflows with one activity, and local activities, per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longhaul_sdk::{
    ActivityResult, Client, Worker, WorkflowCall, WorkflowContext, WorkflowResult, activity,
    workflow,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::baseline::Echo;
use super::measure::{ProcessorTime, Spread, fresh_number, ratio};
use super::progress::Progress;
use super::{Args, Home};

/// Local activities of one workflow.
const STEPS: u64 = 50;

const QUEUE: &str = "bench-sdk";

#[derive(Debug, Serialize)]
pub(super) struct Sdk {
    pub(super) in_flight: u64,
    pub(super) one_activity: Rate,
    pub(super) local_steps: Rate,
}

#[derive(Debug, Serialize)]
pub(super) struct Rate {
    /// The number of completed workflows.
    pub(super) workflows: usize,
    /// Workflows or local activities per second.
    pub(super) per_second: f64,
    /// The rate divided by the request rate of the echo server.
    pub(super) to_echo: Option<f64>,
    pub(super) latency: Spread,
    /// Processor time of server, worker and client together, if all run in this process.
    pub(super) processor_us_each: Option<f64>,
}

#[activity]
async fn add(number: u64) -> ActivityResult<u64> {
    Ok(number + 1)
}

#[workflow]
async fn one_activity(ctx: WorkflowContext, number: u64) -> WorkflowResult<u64> {
    Ok(ctx.activity(add(number)).await?)
}

#[workflow]
async fn local_steps(ctx: WorkflowContext, steps: u64) -> WorkflowResult<u64> {
    let mut number = 0;
    for _ in 0..steps {
        number = ctx.local_activity(add(number)).await?;
    }
    Ok(number)
}

pub(super) async fn measure(
    home: &Home,
    args: &Args,
    echo: Option<&Echo>,
    progress: &Progress,
) -> Result<Sdk> {
    let target = home.open("sdk").await?;
    let mut client = Client::builder(&target.url());
    if let Some(token) = &args.token {
        client = client.token(token);
    }
    let client = client
        .connect()
        .await
        .context("could not connect to the server")?;
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<one_activity>()
        .workflow::<local_steps>()
        .activity::<add>()
        .max_concurrent_workflow_tasks(256)
        .max_concurrent_activities(256)
        .workflow_pollers(16)
        .activity_pollers(16)
        .build();
    let handle = worker.handle();
    let working = tokio::spawn(worker.run());
    let drive = Drive {
        client: &client,
        in_flight: args.in_flight,
        seconds: Duration::from_secs(args.seconds),
        echo,
        in_process: home.is_in_process(),
    };
    progress.show("sdk: one-activity workflows");
    let one = drive.run(1, || one_activity(41), 42).await?;
    progress.show("sdk: local steps");
    let steps = drive.run(STEPS, || local_steps(STEPS), STEPS).await?;
    handle.shut_down();
    working
        .await
        .context("the worker panicked")?
        .context("the worker failed")?;
    target.stop().await;
    Ok(Sdk {
        in_flight: args.in_flight,
        one_activity: one,
        local_steps: steps,
    })
}

struct Drive<'a> {
    client: &'a Client,
    in_flight: u64,
    seconds: Duration,
    echo: Option<&'a Echo>,
    in_process: bool,
}

impl Drive<'_> {
    /// Keeps a number of workflows open for the time of the measurement. Each counts `weight` times.
    async fn run<R>(&self, weight: u64, call: fn() -> WorkflowCall<R>, expected: R) -> Result<Rate>
    where
        R: DeserializeOwned + PartialEq + Copy + Send + 'static,
    {
        let (began, processor) = (Instant::now(), ProcessorTime::now());
        let until = began + self.seconds;
        let wrong = Arc::new(AtomicU64::new(0));
        let mut starters = JoinSet::new();
        for _ in 0..self.in_flight {
            let (client, wrong) = (self.client.clone(), wrong.clone());
            starters.spawn(async move {
                let mut latencies = Vec::new();
                while Instant::now() < until {
                    let begin = Instant::now();
                    let id = format!("sdk-{}", fresh_number());
                    let run = client.start(call()).id(id).queue(QUEUE).await?;
                    if run.result().await? != expected {
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                    latencies.push(begin.elapsed());
                }
                anyhow::Ok(latencies)
            });
        }
        let mut latencies = Vec::new();
        while let Some(starter) = starters.join_next().await {
            latencies.extend(starter.context("a client panicked")??);
        }
        let elapsed = began.elapsed().as_secs_f64();
        ensure!(
            wrong.load(Ordering::Relaxed) == 0,
            "a workflow returned a wrong result"
        );
        ensure!(!latencies.is_empty(), "no workflow was completed");
        let spent = ProcessorTime::elapsed(processor.as_ref()).filter(|_| self.in_process);
        let count = latencies.len() as f64 * weight as f64;
        let per_second = count / elapsed;
        Ok(Rate {
            workflows: latencies.len(),
            per_second,
            to_echo: self
                .echo
                .and_then(|echo| ratio(per_second, echo.requests_per_second)),
            latency: Spread::of(latencies),
            processor_us_each: spent.map(|spent| spent.as_secs_f64() * 1e6 / count),
        })
    }
}
