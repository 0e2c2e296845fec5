//! What a worker knows about its task while it runs, and what it may add to the result.

use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::conductor::{Object, Task, TaskExecLog};
use parking_lot::Mutex;
use serde_json::Value;

tokio::task_local! {
    static CURRENT: TaskContext;
}

/// The task that runs: its ids, its counts, and additions to its result. Cheap to clone.
///
/// ```
/// # use longhaul_conductor_sdk::worker::TaskContext;
/// fn note_progress() {
///     if let Some(context) = TaskContext::current() {
///         context.add_log("half of the pages are done");
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct TaskContext {
    task: Arc<Task>,
    additions: Arc<Mutex<Additions>>,
}

/// What a worker adds to the result of its task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Additions {
    pub(crate) logs: Vec<TaskExecLog>,
    pub(crate) callback_after: Option<Duration>,
    pub(crate) output: Object,
}

impl TaskContext {
    pub(crate) fn new(task: Arc<Task>) -> Self {
        Self {
            task,
            additions: Arc::default(),
        }
    }

    /// Returns the context of the task that the caller works on. `None` outside of a task, and in threads and futures that the worker
    /// started itself.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs a future as the work on this task.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// Runs a function as the work on this task.
    pub(crate) fn sync_scope<R>(self, work: impl FnOnce() -> R) -> R {
        CURRENT.sync_scope(self, work)
    }

    /// Returns what the worker added so far, and forgets it.
    pub(crate) fn take_additions(&self) -> Additions {
        std::mem::take(&mut self.additions.lock())
    }

    /// Returns the whole task.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Returns the id of the task.
    #[must_use]
    pub fn task_id(&self) -> &str {
        &self.task.task_id
    }

    /// Returns the id of the workflow.
    #[must_use]
    pub fn workflow_instance_id(&self) -> &str {
        &self.task.workflow_instance_id
    }

    /// Returns which attempt this is: 0 for the first.
    #[must_use]
    pub fn retry_count(&self) -> i32 {
        self.task.retry_count
    }

    /// Returns how often the task was delivered. A task that goes on in parts counts them by it.
    #[must_use]
    pub fn poll_count(&self) -> i32 {
        self.task.poll_count
    }

    /// Returns the input of the task.
    #[must_use]
    pub fn input(&self) -> &Object {
        &self.task.input_data
    }

    /// Adds a line to the log of the task. It is sent with the result.
    pub fn add_log(&self, line: impl Into<String>) {
        self.additions
            .lock()
            .logs
            .push(log(&self.task, line.into()));
    }

    /// Sets when the task is delivered again, if the worker returns that it goes on. It replaces the time that the worker returns.
    pub fn set_callback_after(&self, wait: Duration) {
        self.additions.lock().callback_after = Some(wait);
    }

    /// Adds a member to the output. A member of the same name in the returned output replaces it.
    pub fn set_output(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.additions
            .lock()
            .output
            .insert(name.into(), value.into());
    }
}

/// Returns a line of the log of a task, with the time of now.
pub(crate) fn log(task: &Task, line: String) -> TaskExecLog {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = now.map_or(0, |since| since.as_millis());
    TaskExecLog {
        log: line,
        task_id: Some(task.task_id.clone()),
        created_time: i64::try_from(millis).unwrap_or(i64::MAX),
    }
}
