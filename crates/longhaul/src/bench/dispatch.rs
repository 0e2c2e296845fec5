//! Measures the time until a worker has the next task, on an idle server: one run, one worker, waiting polls.
//!
//! Each delivery needs two durable commits, one for the report and one for the lease. So the lower bound is the time of two syncs.
//! A ratio far below two means that the disk was busy while the sync was sampled, not that the server is fast.
//!
//! The time of a sync depends on how it is sampled: back to back it took half as long as after the few idle milliseconds of a
//! round. The report has both ratios. Samples between the rounds have the same conditions as a delivery; samples back to back
//! give the stricter ratio.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::Home;
use super::baseline::SyncedFile;
use super::measure::{Spread, ratio};
use super::progress::Progress;
use super::target::fresh_name;
use super::wire::{self, Worker};

/// The most rounds, and the fewest rounds on a slow disk.
const ROUNDS_MAX: usize = 300;
const ROUNDS_MIN: usize = 20;

/// The time after which a poll that was sent waits in the server.
const PARKING: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize)]
pub(super) struct Dispatch {
    /// From a completion that schedules an activity until the worker has the activity task.
    pub(super) activity: Spread,
    /// From the activity's completion to the next workflow task.
    pub(super) workflow: Spread,
    /// Measured between the rounds.
    pub(super) fdatasync: Spread,
    /// Compared with the samples between the rounds.
    pub(super) activity_p50_to_fdatasync: Option<f64>,
    pub(super) workflow_p50_to_fdatasync: Option<f64>,
    /// Compared with the samples taken back to back at the beginning.
    pub(super) activity_p50_to_fdatasync_back_to_back: Option<f64>,
    pub(super) workflow_p50_to_fdatasync_back_to_back: Option<f64>,
}

pub(super) async fn measure(
    home: &Home,
    seconds: u64,
    back_to_back: &Spread,
    progress: &Progress,
) -> Result<Dispatch> {
    let target = home.open("dispatch").await?;
    let worker = Worker {
        id: fresh_name("worker"),
        queue: fresh_name("dispatch"),
    };
    let mut reporting = target.connect().await?;
    let mut polling = target.connect().await?;
    reporting.register(&worker).await?;
    let mut disk = SyncedFile::create(home.disk())?;
    let (mut activity, mut workflow, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    let began = Instant::now();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        if round % 10 == 0 {
            progress.show(&format!("dispatch: round {round} of {ROUNDS_MAX}"));
        }
        let workflow_id = format!("{}-{round}", worker.queue);
        reporting.start(&workflow_id, &worker.queue).await?;
        let first = polling.poll_workflow_task(&worker, wire::PAGE_SIZE).await?;

        let report = reporting.complete_workflow_task(&first, wire::SCHEDULE_ACTIVITY);
        let (task, took) = deliver(polling.poll_activity_task(&worker), report).await?;
        activity.push(took);

        let report = reporting.complete_activity_task(&task);
        let (second, took) =
            deliver(polling.poll_workflow_task(&worker, wire::PAGE_SIZE), report).await?;
        workflow.push(took);

        let result = second.activity_result()?.unwrap_or_default();
        reporting.complete_workflow(&second, &result).await?;
        reporting.check_result(&workflow_id).await?;
        let (back, took) = disk.sample().await?;
        disk = back;
        syncs.push(took);
    }
    reporting.deregister(&worker).await?;
    target.stop().await;
    let (activity, workflow, fdatasync) = (
        Spread::of(activity),
        Spread::of(workflow),
        Spread::of(syncs),
    );
    Ok(Dispatch {
        activity_p50_to_fdatasync: ratio(activity.p50_ms, fdatasync.p50_ms),
        workflow_p50_to_fdatasync: ratio(workflow.p50_ms, fdatasync.p50_ms),
        activity_p50_to_fdatasync_back_to_back: ratio(activity.p50_ms, back_to_back.p50_ms),
        workflow_p50_to_fdatasync_back_to_back: ratio(workflow.p50_ms, back_to_back.p50_ms),
        activity,
        workflow,
        fdatasync,
    })
}

/// Waits until the poll is parked, sends the report, and measures the time until the poll is answered.
pub(super) async fn deliver<T, R>(
    poll: impl Future<Output = Result<T>>,
    report: impl Future<Output = Result<R>>,
) -> Result<(T, Duration)> {
    let report = async {
        tokio::time::sleep(PARKING).await;
        let sent = Instant::now();
        report.await?;
        Ok(sent)
    };
    let poll = async {
        let task = poll.await?;
        Ok::<_, anyhow::Error>((task, Instant::now()))
    };
    let ((task, delivered), sent) = tokio::try_join!(poll, report)?;
    Ok((task, delivered.duration_since(sent)))
}
