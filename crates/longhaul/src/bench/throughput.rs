//! Measures one-activity workflows per second with many in flight, and compares the requests with an echo server.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::baseline::Echo;
use super::load::{Load, Until};
use super::measure::{Spread, ratio};
use super::progress::Progress;
use super::{Args, Home};

#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) in_flight: u64,
    pub(super) seconds: f64,
    pub(super) workflows: usize,
    pub(super) workflows_per_second: f64,
    pub(super) requests_per_second: f64,
    /// Compared with the requests per second of the echo server.
    pub(super) requests_to_echo: Option<f64>,
    pub(super) latency: Spread,
    /// Server and load together, if both are in this process.
    pub(super) processor_us_per_workflow: Option<f64>,
    /// How many processors that kept busy.
    pub(super) processors_busy: Option<f64>,
    /// How many processors other processes kept busy. Above a few tenths, the server could do better than the result.
    pub(super) processors_busy_elsewhere: Option<f64>,
    pub(super) results_checked: usize,
}

pub(super) async fn measure(
    home: &Home,
    args: &Args,
    echo: Option<&Echo>,
    progress: &Progress,
) -> Result<Throughput> {
    let target = home.open("throughput").await?;
    let load = Load::prepare(&target, args.in_flight).await?;
    let seconds = Duration::from_secs(args.seconds);
    let until = args
        .workflows
        .map_or(Until::Elapsed(seconds), Until::Workflows);
    let driven = load
        .drive(until, |completed| {
            progress.show(&format!("throughput: {completed} workflows"))
        })
        .await?;
    load.leave().await?;

    progress.show("throughput: checking results");
    let mut connection = target.connect().await?;
    for workflow_id in &driven.sample {
        connection.check_result(workflow_id).await?;
    }
    drop(connection);
    target.stop().await;

    let workflows = driven.latencies.len();
    ensure!(workflows > 0, "no workflow was completed");
    let seconds = driven.elapsed.as_secs_f64();
    let requests_per_second = driven.requests as f64 / seconds;
    let processor = driven
        .processor
        .filter(|_| home.is_in_process())
        .map(|time| time.as_secs_f64());
    Ok(Throughput {
        in_flight: args.in_flight,
        seconds,
        workflows,
        workflows_per_second: workflows as f64 / seconds,
        requests_per_second,
        requests_to_echo: echo
            .and_then(|echo| ratio(requests_per_second, echo.requests_per_second)),
        latency: Spread::of(driven.latencies),
        processor_us_per_workflow: processor.map(|time| time * 1e6 / workflows as f64),
        processors_busy: processor.map(|time| time / seconds),
        processors_busy_elsewhere: processor
            .zip(driven.machine_seconds)
            .map(|(own, all)| ((all - own) / seconds).max(0.0)),
        results_checked: driven.sample.len(),
    })
}
