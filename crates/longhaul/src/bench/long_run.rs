//! Measures whether a transition costs more late in a run than early. One run grows by recorded side effects; then this run and
//! young runs are signalled, leased, renewed and completed in turn.
//!
//! A worker without a cache must read the whole history. The worker can avoid that cost, so pages of one event keep it out of the
//! measurement. The remaining cost should not depend on the length of the history.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::Home;
use super::client::Connection;
use super::measure::{ProcessorTime, Spread, ratio};
use super::progress::Progress;
use super::target::fresh_name;
use super::wire::{self, Worker};

/// Side effects in one completion while the run grows. The server accepts up to 5,000 commands.
const GROWTH_STEP: u64 = 1000;

/// Rounds on one young run, so that it stays about ten events long; then the next one.
const ROUNDS_PER_YOUNG_RUN: usize = 3;

/// The most young runs, and the fewest on a slow disk.
const YOUNG_RUNS_MAX: usize = 60;
const YOUNG_RUNS_MIN: usize = 5;

/// The page size that keeps the cost independent of the history.
const PAGE_SIZE: u64 = 1;

#[derive(Debug, Serialize)]
pub(super) struct LongRun {
    pub(super) early: Side,
    pub(super) late: Side,
    /// Late compared with early, whole rounds.
    pub(super) round_ratio: Option<f64>,
    pub(super) processor_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Side {
    /// Events when the last round began.
    pub(super) events: u64,
    pub(super) signal: Spread,
    pub(super) lease: Spread,
    pub(super) heartbeat: Spread,
    pub(super) complete: Spread,
    /// The four together.
    pub(super) round: Spread,
    /// Server and load; `None` if the server is another process.
    pub(super) processor_us_per_round: Option<f64>,
}

/// Times of rounds on runs of one length.
#[derive(Default)]
struct Rounds {
    events: u64,
    /// Signal, lease, heartbeat, complete.
    steps: [Vec<Duration>; 4],
    processor: Option<Duration>,
}

/// One worker on one connection.
struct Driver {
    connection: Connection,
    worker: Worker,
}

pub(super) async fn measure(
    home: &Home,
    seconds: u64,
    events: u64,
    progress: &Progress,
) -> Result<LongRun> {
    let target = home.open("long-run").await?;
    let worker = Worker {
        id: fresh_name("worker"),
        queue: fresh_name("long-run"),
    };
    let mut driver = Driver {
        connection: target.connect().await?,
        worker,
    };
    driver.connection.register(&driver.worker).await?;
    let long = fresh_name("long");
    driver.grow(&long, events, progress).await?;

    let (mut early, mut late) = (Rounds::default(), Rounds::default());
    let began = Instant::now();
    for number in 0..YOUNG_RUNS_MAX {
        if number >= YOUNG_RUNS_MIN && began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        progress.show(&format!("long run: young run {number} of {YOUNG_RUNS_MAX}"));
        let young = format!("{}-{number}", driver.worker.queue);
        driver.open(&young).await?;
        driver.rounds(&young, &mut early).await?;
        driver.connection.terminate(&young).await?;
        driver.rounds(&long, &mut late).await?;
    }
    driver.connection.terminate(&long).await?;
    driver.connection.deregister(&driver.worker).await?;
    target.stop().await;

    let (early, late) = (early.into_side(home), late.into_side(home));
    Ok(LongRun {
        round_ratio: ratio(late.round.p50_ms, early.round.p50_ms),
        processor_ratio: early
            .processor_us_per_round
            .zip(late.processor_us_per_round)
            .and_then(|(early, late)| ratio(late, early)),
        early,
        late,
    })
}

impl Driver {
    /// Starts a run and brings it to its first wait.
    async fn open(&mut self, workflow_id: &str) -> Result<()> {
        self.connection
            .start(workflow_id, &self.worker.queue)
            .await?;
        let task = self
            .connection
            .poll_workflow_task(&self.worker, PAGE_SIZE)
            .await?;
        self.connection
            .complete_workflow_task(&task, wire::OPEN_SIGNAL_WAIT)
            .await?;
        Ok(())
    }

    /// Opens a run and fills its history.
    async fn grow(&mut self, workflow_id: &str, events: u64, progress: &Progress) -> Result<()> {
        self.open(workflow_id).await?;
        loop {
            self.connection.signal(workflow_id).await?;
            let task = self
                .connection
                .poll_workflow_task(&self.worker, PAGE_SIZE)
                .await?;
            let missing = events
                .saturating_sub(task.total_history_events)
                .min(GROWTH_STEP) as usize;
            let mut commands = format!("{},", wire::RECORD_SIDE_EFFECT).repeat(missing);
            commands.push_str(wire::OPEN_SIGNAL_WAIT);
            let status = self
                .connection
                .complete_workflow_task(&task, &commands)
                .await?;
            ensure!(
                status == "waiting",
                "{workflow_id} is {status}, expected waiting"
            );
            progress.show(&format!(
                "long run: {} of {events} events",
                task.total_history_events
            ));
            if missing == 0 {
                return Ok(());
            }
        }
    }

    async fn rounds(&mut self, workflow_id: &str, rounds: &mut Rounds) -> Result<()> {
        let processor = ProcessorTime::now();
        for _ in 0..ROUNDS_PER_YOUNG_RUN {
            let mut times = [Instant::now(); 5];
            self.connection.signal(workflow_id).await?;
            times[1] = Instant::now();
            let task = self
                .connection
                .poll_workflow_task(&self.worker, PAGE_SIZE)
                .await?;
            ensure!(
                task.workflow_id == workflow_id,
                "a task of {} came for {workflow_id}",
                task.workflow_id
            );
            times[2] = Instant::now();
            self.connection.heartbeat_workflow_task(&task).await?;
            times[3] = Instant::now();
            self.connection
                .complete_workflow_task(&task, wire::OPEN_SIGNAL_WAIT)
                .await?;
            times[4] = Instant::now();
            rounds.events = task.total_history_events;
            for (step, pair) in rounds.steps.iter_mut().zip(times.windows(2)) {
                step.push(pair[1].duration_since(pair[0]));
            }
        }
        if let Some(used) = ProcessorTime::elapsed(processor.as_ref()) {
            *rounds.processor.get_or_insert_default() += used;
        }
        Ok(())
    }
}

impl Rounds {
    fn into_side(self, home: &Home) -> Side {
        let count = self.steps[0].len();
        let round = (0..count)
            .map(|number| self.steps.iter().map(|step| step[number]).sum())
            .collect();
        let [signal, lease, heartbeat, complete] = self.steps.map(Spread::of);
        let processor = self.processor.filter(|_| home.is_in_process());
        Side {
            events: self.events,
            signal,
            lease,
            heartbeat,
            complete,
            round: Spread::of(round),
            processor_us_per_round: processor
                .map(|time| time.as_secs_f64() * 1e6 / count.max(1) as f64),
        }
    }
}
