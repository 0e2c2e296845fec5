//! Fakes of workers, and the recorded tasks of all workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_conductor_sdk::model::{Object, Task};
use longhaul_conductor_sdk::worker::{
    AnyWorker, NonRetryable, Outcome, TaskFailure, TaskInProgress, TaskResponse, async_function,
};
use longhaul_host::clock::{Clock as _, ManualClock};
use longhaul_protocol::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// What a fake does with one task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FakeTask {
    /// The task is completed with this output. A value that is not an object becomes the member `result`.
    Returns(Value),
    /// The task fails with this reason. Its definition decides whether there is another attempt.
    Fails(String),
    /// The task fails with this reason and is not tried again.
    FailsForGood(String),
    /// The task goes on: it is delivered again after this time.
    GoesOn(Duration),
    /// The task hangs until it times out.
    Never,
}

/// A task that a worker or a fake got.
#[derive(Clone, Debug)]
pub struct TaskCall {
    /// The task, as the worker got it.
    pub task: Task,
    /// The time when it began, by the clock of the environment.
    pub at: Timestamp,
}

/// The tasks that the workers of one environment got.
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_type: Mutex<HashMap<String, Vec<TaskCall>>>,
    /// How many tasks hang, with those that have timed out.
    hanging: Mutex<usize>,
    hung: Notify,
}

impl Calls {
    /// Returns the worker with its tasks recorded.
    pub(super) fn record(self: &Arc<Self>, worker: AnyWorker, clock: &ManualClock) -> AnyWorker {
        let task_type = worker.task_type().to_owned();
        self.by_type.lock().entry(task_type.clone()).or_default();
        let (calls, clock) = (Arc::clone(self), clock.clone());
        worker.inspect(move |task| {
            let call = TaskCall {
                task: task.clone(),
                at: clock.now(),
            };
            let mut calls = calls.by_type.lock();
            calls.entry(task_type.clone()).or_default().push(call);
        })
    }

    pub(super) fn of(&self, task_type: &str) -> Vec<TaskCall> {
        let calls = self.by_type.lock();
        calls.get(task_type).cloned().unwrap_or_else(|| {
            let mut known: Vec<&str> = calls.keys().map(String::as_str).collect();
            known.sort_unstable();
            panic!("the environment has no worker for `{task_type}`; it has {known:?}")
        })
    }

    pub(super) fn hanging(&self) -> usize {
        *self.hanging.lock()
    }

    /// Resolves when a further task hangs.
    pub(super) fn hung(&self) -> Notified<'_> {
        self.hung.notified()
    }

    async fn hang(&self) -> TaskResponse<Outcome> {
        *self.hanging.lock() += 1;
        self.hung.notify_waiters();
        std::future::pending().await
    }
}

/// Returns a worker with an outcome for each task. The last outcome repeats.
pub(super) fn worker(
    task_type: &str,
    outcomes: impl IntoIterator<Item = FakeTask>,
    calls: &Arc<Calls>,
) -> AnyWorker {
    let outcomes: Vec<FakeTask> = outcomes.into_iter().collect();
    assert!(
        !outcomes.is_empty(),
        "the fake `{task_type}` has no outcome"
    );
    let (calls, given) = (Arc::clone(calls), Mutex::new(0));
    async_function(task_type, move |_: Object| {
        let mut given = given.lock();
        let outcome = outcomes[(*given).min(outcomes.len() - 1)].clone();
        *given += 1;
        let calls = Arc::clone(&calls);
        async move {
            match outcome {
                FakeTask::Returns(output) => Outcome::output(&output),
                FakeTask::Fails(reason) => Err(TaskFailure::new(reason)),
                FakeTask::FailsForGood(reason) => Err(NonRetryable::new(reason).into()),
                FakeTask::GoesOn(wait) => Ok(TaskInProgress::after(wait).into()),
                FakeTask::Never => calls.hang().await,
            }
        }
    })
}
