//! Measures whether transitions and list pages cost more when more runs are stored. Two servers, one with few runs and one with
//! many, get the same bursts in turn, so that other load on the machine affects both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinSet;

use super::Home;
use super::load::{Driven, Load, Until};
use super::measure::{Spread, median, ratio};
use super::progress::Progress;
use super::target::{Target, fresh_name};

/// Runs in the small store.
const FEW_RUNS: u64 = 1000;

/// Workflows of one burst: enough to measure, and few enough that the small store stays small.
const BURST_WORKFLOWS: u64 = 200;

/// Measured bursts, after one that is not measured.
const BURSTS: usize = 9;

/// How often each list is requested, on each server in turn.
const LISTS: usize = 51;

/// The number of customers that the stored runs belong to.
const CUSTOMERS: u64 = 20;

/// The usual list queries, as parameters of the URL. The cost of each must not depend on the number of runs.
const SHAPES: [(&str, &str); 6] = [
    ("newest", ""),
    ("by status", "status=running"),
    ("by type", "workflow_type=bench"),
    ("by attribute", "query=Customer%3D%27c-7%27"),
    (
        "by attribute and status",
        "query=Customer%3D%27c-7%27%20AND%20Status%3Dcompleted",
    ),
    ("by workflow id", "query=WorkflowId%3Dnone"),
];

/// Durable steps of a one-activity workflow: start, three leases, three reports.
pub(super) const TRANSITIONS_PER_WORKFLOW: f64 = 7.0;

#[derive(Debug, Serialize)]
pub(super) struct Stored {
    pub(super) few: Side,
    pub(super) many: Side,
    /// Many to few.
    pub(super) elapsed_ratio: Option<f64>,
    pub(super) processor_ratio: Option<f64>,
    pub(super) lists: Vec<Listed>,
}

/// How long a page of one shape takes; medians.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    pub(super) shape: &'static str,
    pub(super) few_ms: f64,
    pub(super) many_ms: f64,
    /// Many to few.
    pub(super) ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Side {
    /// Before the bursts, which add 2,000.
    pub(super) runs: u64,
    /// Wall time per transition while many are in flight; the median burst.
    pub(super) elapsed_us_per_transition: f64,
    /// Processor time of server and load; the median burst.
    pub(super) processor_us_per_transition: f64,
}

pub(super) async fn measure(
    home: &Home,
    in_flight: u64,
    many_runs: u64,
    progress: &Progress,
) -> Result<Stored> {
    let few = home.open("stored-few").await?;
    let many = home.open("stored-many").await?;
    fill(&few, in_flight, FEW_RUNS, progress).await?;
    fill(&many, in_flight, many_runs, progress).await?;
    let loads = [
        Load::prepare(&few, in_flight).await?,
        Load::prepare(&many, in_flight).await?,
    ];
    let mut bursts: [Vec<Driven>; 2] = Default::default();
    for burst in 0..=BURSTS {
        progress.show(&format!("stored: burst {burst} of {BURSTS}"));
        for (load, driven) in loads.iter().zip(&mut bursts) {
            driven.push(
                load.drive(Until::Workflows(BURST_WORKFLOWS), |_| ())
                    .await?,
            );
        }
    }
    for load in loads {
        load.leave().await?;
    }
    let lists = list(&few, &many, progress).await?;
    few.stop().await;
    many.stop().await;
    let [few, many] = [(FEW_RUNS, &bursts[0]), (many_runs, &bursts[1])]
        .map(|(runs, bursts)| side(runs, &bursts[1..]));
    Ok(Stored {
        elapsed_ratio: ratio(
            many.elapsed_us_per_transition,
            few.elapsed_us_per_transition,
        ),
        processor_ratio: ratio(
            many.processor_us_per_transition,
            few.processor_us_per_transition,
        ),
        few,
        many,
        lists,
    })
}

async fn list(few: &Target, many: &Target, progress: &Progress) -> Result<Vec<Listed>> {
    let mut connections = [few.connect().await?, many.connect().await?];
    let mut lists = Vec::new();
    for (shape, parameters) in SHAPES {
        progress.show(&format!("stored: list {shape}"));
        let mut times: [Vec<Duration>; 2] = Default::default();
        for _ in 0..LISTS {
            for (connection, times) in connections.iter_mut().zip(&mut times) {
                let asked = Instant::now();
                connection.list(parameters).await?;
                times.push(asked.elapsed());
            }
        }
        let [few_ms, many_ms] = times.map(|times| Spread::of(times).p50_ms);
        lists.push(Listed {
            shape,
            few_ms,
            many_ms,
            ratio: ratio(many_ms, few_ms),
        });
    }
    Ok(lists)
}

fn side(runs: u64, bursts: &[Driven]) -> Side {
    let per_transition = |time: fn(&Driven) -> Duration| {
        let cost = |driven: &Driven| {
            time(driven).as_secs_f64() * 1e6
                / (driven.latencies.len() as f64 * TRANSITIONS_PER_WORKFLOW)
        };
        median(bursts.iter().map(cost).collect())
    };
    Side {
        runs,
        elapsed_us_per_transition: per_transition(|driven| driven.elapsed),
        processor_us_per_transition: per_transition(|driven| driven.processor.unwrap_or_default()),
    }
}

/// Starts a number of runs with an attribute on a queue that no worker polls. Each is open, with a ready task and a deadline.
pub(super) async fn fill(
    target: &Target,
    in_flight: u64,
    runs: u64,
    progress: &Progress,
) -> Result<()> {
    target.connect().await?.define_keyword("Customer").await?;
    let next = Arc::new(AtomicU64::new(0));
    let name = fresh_name("stored");
    let mut starting = JoinSet::new();
    for mut connection in target.connect_many(in_flight).await? {
        let (name, next) = (name.clone(), Arc::clone(&next));
        starting.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= runs {
                    return Ok::<_, anyhow::Error>(());
                }
                let customer = format!(r#"{{"Customer":"c-{}"}}"#, number % CUSTOMERS);
                connection
                    .start_with(&format!("{name}-{number}"), &name, &customer)
                    .await?;
            }
        });
    }
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    while !starting.is_empty() {
        tokio::select! {
            Some(ended) = starting.join_next() => ended.context("a starter ended early")??,
            _ = tick.tick() => progress.show(&format!("stored: {} of {runs} runs", next.load(Ordering::Relaxed).min(runs))),
        }
    }
    Ok(())
}
