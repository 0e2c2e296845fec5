//! Keeps one worker running: starts it, starts it again when it died, and ends it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest wait before a worker is started again.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(60);

/// A worker that ran for this long is healthy: the waits begin again at a second.
const HEALTHY_AFTER: Duration = Duration::from_secs(600);

/// A worker as the handler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The task type.
    pub task_type: String,
    /// The process. `None` if it does not run.
    pub pid: Option<u32>,
    /// Whether it runs.
    pub alive: bool,
    /// How often it was started again.
    pub restarts: u32,
}

/// A worker that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedWorker {
    /// The task type.
    pub task_type: String,
    /// Whether it did not end in time, so that tasks in hand were lost.
    pub was_killed: bool,
}

/// Starts workers: as processes, or inside this one.
pub(super) trait Launch: Send + Sync + 'static {
    /// Returns the workers, none of which runs.
    fn workers(&self) -> Vec<WorkerStatus>;

    /// Starts the worker at an index.
    fn start(&self, index: usize) -> std::io::Result<Box<dyn Running>>;
}

/// A worker that runs.
pub(super) trait Running: Send {
    /// Returns its process.
    fn pid(&self) -> Option<u32>;

    /// Waits for its end and says how it ended. May be dropped and called again.
    fn ended(&mut self) -> BoxFuture<'_, String>;

    /// Tells it to end the tasks in hand and then itself.
    fn stop(&mut self);

    /// Ends it at once.
    fn kill(&mut self);
}

/// Returns the wait before a worker is started again.
pub(super) fn restart_wait(restarts: u32) -> Duration {
    let seconds = 1_u64.checked_shl(restarts).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(RESTART_WAIT_MAX)
}

/// Waits until the handler stops, or is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Keeps the worker at an index running.
pub(super) struct Supervisor {
    pub(super) launch: Arc<dyn Launch>,
    pub(super) index: usize,
    pub(super) grace: Duration,
    pub(super) status: Arc<Mutex<Vec<WorkerStatus>>>,
}

impl Supervisor {
    /// Runs until `stop` is true and the worker has ended.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) -> EndedWorker {
        let was_killed = self.keep_running(&mut stop).await;
        EndedWorker {
            task_type: self.note(|_| ()),
            was_killed,
        }
    }

    /// Returns whether the worker had to be killed at the end.
    async fn keep_running(&self, stop: &mut watch::Receiver<bool>) -> bool {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            match self.launch.start(self.index) {
                Ok(mut running) => {
                    self.note(|status| {
                        status.pid = running.pid();
                        status.alive = true;
                    });
                    let task_type = self.note(|_| ());
                    tokio::select! {
                        how = running.ended() => {
                            tracing::error!(task_type, "a worker ended: {how}");
                        }
                        () = stopped(stop) => {
                            let was_killed = self.end(&mut *running).await;
                            self.note_ended();
                            return was_killed;
                        }
                    }
                }
                Err(error) => {
                    let task_type = self.note(|_| ());
                    tracing::error!(task_type, %error, "a worker cannot be started");
                }
            }
            self.note_ended();
            if begun.elapsed() >= HEALTHY_AFTER {
                failures = 0;
            }
            let wait = restart_wait(failures);
            failures = failures.saturating_add(1);
            if tokio::time::timeout(wait, stopped(stop)).await.is_ok() {
                return false;
            }
            let task_type = self.note(|status| status.restarts += 1);
            tracing::warn!(task_type, ?wait, "a worker is started again");
        }
    }

    /// Ends a worker: gives it time, then kills it. Returns whether that was necessary.
    async fn end(&self, running: &mut dyn Running) -> bool {
        running.stop();
        let ended = tokio::time::timeout(self.grace, running.ended()).await;
        if ended.is_ok() {
            return false;
        }
        let task_type = self.note(|_| ());
        tracing::warn!(
            task_type, grace = ?self.grace,
            "a worker did not end in time; its tasks are left to their response time-outs"
        );
        running.kill();
        running.ended().await;
        true
    }

    /// Changes the status of the worker. Returns its task type, for logs.
    fn note(&self, change: impl FnOnce(&mut WorkerStatus)) -> String {
        let mut status = self.status.lock();
        let status = &mut status[self.index];
        change(status);
        status.task_type.clone()
    }

    fn note_ended(&self) {
        self.note(|status| {
            status.pid = None;
            status.alive = false;
        });
    }
}
