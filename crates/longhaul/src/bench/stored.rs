//! Does a transition cost more when more runs are stored? Two servers side by side, one with few runs and one with many, driven
//! in turn with the same bursts: what the machine does meanwhile, it does to both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinSet;

use super::Home;
use super::load::{Driven, Load, Until};
use super::measure::{median, ratio};
use super::progress::Progress;
use super::target::{Target, fresh_name};

/// The small store.
const FEW_RUNS: u64 = 1000;

/// Workflows of one burst: long enough to measure, and so few that the small store stays small.
const BURST_WORKFLOWS: u64 = 200;

/// Bursts that count, after one that does not.
const BURSTS: usize = 9;

/// Durable steps of a one-activity workflow: start, three leases, three reports.
const TRANSITIONS_PER_WORKFLOW: f64 = 7.0;

#[derive(Debug, Serialize)]
pub(super) struct Stored {
    pub(super) few: Side,
    pub(super) many: Side,
    /// Many to few.
    pub(super) elapsed_ratio: Option<f64>,
    pub(super) processor_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Side {
    /// Before the bursts, which add 2,000.
    pub(super) runs: u64,
    /// Time on the wall per transition while many are in flight; the median burst.
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
    })
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

/// Starts so many runs on a queue that no worker polls: open, with a ready task and a deadline each.
async fn fill(target: &Target, in_flight: u64, runs: u64, progress: &Progress) -> Result<()> {
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
                connection.start(&format!("{name}-{number}"), &name).await?;
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
