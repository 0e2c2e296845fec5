//! Turns the events of runners into numbers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_transport::{RequestError, TransportError};
use parking_lot::Mutex;

use super::metric::Metric;
use super::snapshot::Snapshot;
use super::{MetricsError, Surface, text};
use crate::events::{
    PollCompleted, PollFailure, PollStarted, TaskExecutionCompleted, TaskExecutionFailure,
    TaskExecutionStarted, TaskPaused, TaskRunnerEventsListener, TaskUpdateCompleted,
    TaskUpdateError, TaskUpdateFailure,
};
use crate::worker::TaskFailure;

/// Counts what happens in runners. Clones share their numbers.
///
/// ```
/// use longhaul_conductor_sdk::events::EventDispatcher;
/// use longhaul_conductor_sdk::metrics::{MetricsCollector, Surface};
///
/// let metrics = MetricsCollector::new(Surface::Guide);
/// let (events, _dispatching) = EventDispatcher::builder().register(metrics.clone()).start()?;
/// // A runner publishes to `events`.
/// println!("{}", metrics.render());
/// # drop(events);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetricsCollector {
    numbers: Arc<Mutex<Snapshot>>,
}

/// Whether what was measured succeeded. The guide's surface has times of successes only.
#[derive(Clone, Copy)]
enum Status {
    Success,
    Failure,
}

impl MetricsCollector {
    /// Creates a collector for a surface.
    #[must_use]
    pub fn new(surface: Surface) -> Self {
        Self {
            numbers: Arc::new(Mutex::new(Snapshot::new(surface))),
        }
    }

    /// Creates a collector for the surface that `WORKER_CANONICAL_METRICS` names, by default [`Surface::Guide`].
    ///
    /// # Errors
    /// [`MetricsError::Variable`] if the variable is neither true nor false.
    pub fn from_env() -> Result<Self, MetricsError> {
        Ok(Self::new(Surface::from_env()?.unwrap_or_default()))
    }

    /// Returns all metrics as text. [`CONTENT_TYPE`](super::CONTENT_TYPE) is its type.
    #[must_use]
    pub fn render(&self) -> String {
        text::render(&self.snapshot())
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.numbers.lock().clone()
    }

    fn count(&self, metric: Metric, task_type: &str, second: &str) {
        self.numbers.lock().count(metric, (task_type, second), 1);
    }

    fn time(
        &self,
        metric: Metric,
        task_type: &str,
        status: Status,
        took: Duration,
        at: SystemTime,
    ) {
        let mut numbers = self.numbers.lock();
        let second = match (numbers.surface(), status) {
            (Surface::Guide, Status::Success) => "",
            (Surface::Guide, Status::Failure) => return,
            (Surface::Canonical, Status::Success) => "SUCCESS",
            (Surface::Canonical, Status::Failure) => "FAILURE",
        };
        let labels = (task_type, second);
        numbers.observe(metric, labels, took.as_secs_f64(), millis(at));
    }

    /// The function of a task ended.
    fn executed(&self, task_type: &str, status: Status, took: Duration, at: SystemTime) {
        self.time(Metric::TaskExecuteTime, task_type, status, took, at);
        let mut numbers = self.numbers.lock();
        numbers.shift(Metric::ActiveWorkers, (task_type, ""), -1);
    }
}

impl TaskRunnerEventsListener for MetricsCollector {
    fn on_poll_started(&self, event: &PollStarted, _at: SystemTime) {
        self.count(Metric::TaskPollTotal, &event.task_type, "");
    }

    fn on_poll_completed(&self, event: &PollCompleted, at: SystemTime) {
        let (task_type, took) = (&event.task_type, event.duration);
        self.time(Metric::TaskPollTime, task_type, Status::Success, took, at);
    }

    fn on_poll_failure(&self, event: &PollFailure, at: SystemTime) {
        let (task_type, took) = (&event.task_type, event.duration);
        let exception = name_of_request(&event.cause);
        self.count(Metric::TaskPollErrorTotal, task_type, &exception);
        self.time(Metric::TaskPollTime, task_type, Status::Failure, took, at);
    }

    fn on_task_execution_started(&self, event: &TaskExecutionStarted, _at: SystemTime) {
        self.count(Metric::TaskExecutionStartedTotal, &event.task_type, "");
        let mut numbers = self.numbers.lock();
        numbers.shift(Metric::ActiveWorkers, (&event.task_type, ""), 1);
    }

    fn on_task_execution_completed(&self, event: &TaskExecutionCompleted, at: SystemTime) {
        self.executed(&event.task_type, Status::Success, event.duration, at);
        let labels = (&*event.task_type, "");
        // Sizes above 2^53 bytes do not occur.
        let bytes = event.output_size_bytes as f64;
        let mut numbers = self.numbers.lock();
        numbers.observe(Metric::TaskResultSize, labels, bytes, millis(at));
    }

    fn on_task_execution_failure(&self, event: &TaskExecutionFailure, at: SystemTime) {
        let exception = name_of_failure(&event.cause);
        self.count(Metric::TaskExecuteErrorTotal, &event.task_type, &exception);
        self.executed(&event.task_type, Status::Failure, event.duration, at);
    }

    fn on_task_update_failure(&self, event: &TaskUpdateFailure, at: SystemTime) {
        let (task_type, took) = (&event.task_type, event.duration);
        self.count(Metric::TaskUpdateFailedTotal, task_type, "");
        self.time(Metric::TaskUpdateTime, task_type, Status::Failure, took, at);
    }

    fn on_task_update_error(&self, event: &TaskUpdateError, _at: SystemTime) {
        let exception = name_of_request(&event.cause);
        self.count(Metric::TaskUpdateErrorTotal, &event.task_type, &exception);
    }

    fn on_task_update_completed(&self, event: &TaskUpdateCompleted, at: SystemTime) {
        let (task_type, took) = (&event.task_type, event.duration);
        self.time(Metric::TaskUpdateTime, task_type, Status::Success, took, at);
    }

    fn on_task_paused(&self, event: &TaskPaused, _at: SystemTime) {
        self.count(Metric::TaskPausedTotal, &event.task_type, "");
    }
}

/// Returns the type of an error of a worker's function. One that must not be retried is always a `NonRetryable`, whatever it is
/// wrapped in.
fn name_of_failure(failure: &TaskFailure) -> String {
    const TERMINAL: &str = "NonRetryable";
    let name = failure.type_name();
    if failure.is_terminal() && name != TERMINAL {
        format!("{TERMINAL}({name})")
    } else {
        name.to_owned()
    }
}

/// Returns the kind of an error of a request, with the status of a refusal.
fn name_of_request(error: &RequestError) -> String {
    let name = match error {
        RequestError::Transport(TransportError::Unreachable(_)) => "Unreachable",
        RequestError::Transport(TransportError::Interrupted(_)) => "Interrupted",
        RequestError::Transport(TransportError::TimedOut(_)) => "TimedOut",
        RequestError::Transport(_) => "Invalid",
        RequestError::Malformed(_) => "Malformed",
        RequestError::Refused(refusal) => return format!("Refused{}", refusal.status()),
        _ => "RequestError",
    };
    name.to_owned()
}

/// Returns the milliseconds since 1970. Zero for a clock that is set to an earlier time.
fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
