//! How soon the next task is with a worker, on an idle server: one run, one worker, polls already waiting.
//!
//! Each delivery stands on two durable commits, the report's and the lease's, one after the other. So the floor is twice what
//! a sync takes, and a ratio far below two says that something else kept the disk busy, not that the server is fast.
//!
//! What a sync takes depends on how it is asked: back to back, with processor and disk awake, it took half of what it took
//! after the few idle milliseconds of a round. Both ratios are given. The one to samples between the rounds compares like
//! with like; the other is the stricter reading.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::Home;
use super::baseline::SyncedFile;
use super::measure::{Spread, ratio};
use super::progress::Progress;
use super::target::fresh_name;
use super::wire::{self, Worker};

/// Rounds at most, and at least however slow the disk is.
const ROUNDS_MAX: usize = 300;
const ROUNDS_MIN: usize = 20;

/// Until a poll that was sent surely waits in the server.
const PARKING: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize)]
pub(super) struct Dispatch {
    /// From a completion that schedules an activity to the activity task in the worker's hands.
    pub(super) activity: Spread,
    /// From the activity's completion to the next workflow task.
    pub(super) workflow: Spread,
    /// Measured between the rounds.
    pub(super) fdatasync: Spread,
    /// To the samples between the rounds.
    pub(super) activity_p50_to_fdatasync: Option<f64>,
    pub(super) workflow_p50_to_fdatasync: Option<f64>,
    /// To those taken back to back at the beginning.
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

/// Lets the poll wait, sends the report, and takes the time from there to the poll's answer.
async fn deliver<T, R>(
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
