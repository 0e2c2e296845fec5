//! Runs a worker: polls for its tasks, executes them and reports the results.
//!
//! One iteration is [`TaskRunner::run_once`]: finished tasks are removed, then the free slots are counted, then one batch is polled
//! for. A task has its slot from the poll until its result is reported, so there are never more tasks in hand than slots.

mod api;
mod execute;
mod lease;
mod pace;
mod register;
mod schemas;
mod update;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_protocol::conductor::{Task, TaskResult};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use api::TaskApi;
use pace::{Failure, Pace};
use register::Registry;
pub use register::{MetadataApi, Registration};
pub use schemas::SchemaApi;

use crate::client::Poll;
use crate::events::{EventDispatcher, PollCompleted, PollFailure, PollStarted, TaskPaused};
use crate::settings::{Resolved, Settings, SettingsError, resolve_from_environment};
use crate::worker::AnyWorker;

/// The most tasks that one poll asks for.
pub const BATCH_MAX: usize = 100;

/// How long a runner without a free slot waits before it looks again.
const AT_CAPACITY: Duration = Duration::from_millis(1);

/// How long a runner that must not poll waits before it looks again.
const HELD_BACK: Duration = Duration::from_millis(100);

/// Runs one worker. [`Self::run`] runs it until it is stopped; the other methods are its parts.
#[derive(Debug)]
pub struct TaskRunner {
    shared: Arc<Shared>,
    resolved: Resolved,
    /// The server for the task definition and its schemas.
    registry: Option<Registry>,
    pace: Pace,
    running: JoinSet<()>,
}

/// What the loop and the tasks in hand share.
#[derive(Debug)]
pub(crate) struct Shared {
    worker: AnyWorker,
    settings: Settings,
    tasks: Arc<dyn TaskApi>,
    events: EventDispatcher,
    control: RunnerControl,
    /// The server has no update that returns the next task.
    plain_updates: AtomicBool,
    /// One for each task that may be executed at once. A server that sends more tasks than were asked for gets no further ones.
    slots: Semaphore,
}

/// Pauses and stops a runner. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RunnerControl {
    inner: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    paused: AtomicBool,
    stopping: AtomicBool,
    changed: tokio::sync::Notify,
}

impl RunnerControl {
    fn new(paused: bool) -> Self {
        Self {
            inner: Arc::new(Control {
                paused: AtomicBool::new(paused),
                stopping: AtomicBool::new(false),
                changed: tokio::sync::Notify::new(),
            }),
        }
    }

    /// Stops polling until [`Self::resume`]. Tasks in hand end and are reported.
    pub fn pause(&self) {
        self.inner.paused.store(true, Ordering::Release);
    }

    /// Polls again.
    pub fn resume(&self) {
        self.inner.paused.store(false, Ordering::Release);
        self.inner.changed.notify_waiters();
    }

    /// Ends [`TaskRunner::run`] when the tasks in hand have ended and are reported.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.changed.notify_waiters();
    }

    /// Returns whether the runner is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.inner.paused.load(Ordering::Acquire)
    }

    /// Returns whether the runner was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    /// Waits until [`Self::stop`].
    async fn stopped(&self) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_stopping() {
                return;
            }
            changed.await;
        }
    }

    /// Waits, but not longer than until the runner is resumed or told to stop.
    async fn sleep(&self, wait: Duration) {
        let changed = self.inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if self.is_stopping() {
            return;
        }
        let _either = tokio::time::timeout(wait, changed).await;
    }
}

impl TaskRunner {
    /// Creates the runner of a worker. Its settings come from the environment and from the worker.
    ///
    /// # Errors
    /// [`SettingsError`] names the setting that is not valid.
    pub fn new(
        worker: AnyWorker,
        tasks: impl TaskApi,
        events: EventDispatcher,
    ) -> Result<Self, SettingsError> {
        let resolved = resolve_from_environment(worker.task_type(), &worker.settings)?;
        Ok(Self::with_settings(worker, tasks, events, resolved))
    }

    /// Creates the runner of a worker with settings that are resolved already.
    pub fn with_settings(
        worker: AnyWorker,
        tasks: impl TaskApi,
        events: EventDispatcher,
        resolved: Resolved,
    ) -> Self {
        let settings = resolved.settings().clone();
        Self {
            pace: Pace::new(settings.poll_interval),
            running: JoinSet::new(),
            shared: Arc::new(Shared {
                worker,
                tasks: Arc::new(tasks),
                events,
                control: RunnerControl::new(settings.paused),
                plain_updates: AtomicBool::new(false),
                slots: Semaphore::new(settings.thread_count),
                settings,
            }),
            resolved,
            registry: None,
        }
    }

    /// Returns what pauses and stops the runner.
    #[must_use]
    pub fn control(&self) -> RunnerControl {
        self.shared.control.clone()
    }

    /// Returns how many tasks are in hand.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Registers the task definition, then polls, executes and reports until [`RunnerControl::stop`]. Then waits for the tasks in
    /// hand.
    pub async fn run(mut self) {
        crate::logging::apply();
        self.resolved.log();
        tokio::select! {
            () = self.register_task_definition() => {}
            () = self.shared.control.stopped() => {}
        }
        while !self.shared.control.is_stopping() {
            self.run_once().await;
        }
        self.drain().await;
    }

    /// Waits for the tasks in hand.
    pub async fn drain(&mut self) {
        while self.running.join_next().await.is_some() {}
    }

    /// Does one iteration: removes finished tasks, polls if a slot is free and it is time, and begins what the poll returned.
    pub async fn run_once(&mut self) {
        while self.running.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        let free = shared
            .settings
            .thread_count
            .saturating_sub(self.running.len());
        if free == 0 {
            return shared.control.sleep(AT_CAPACITY).await;
        }
        if shared.control.is_paused() {
            let task_type = Arc::clone(&shared.worker.task_type);
            shared.events.publish(TaskPaused { task_type });
            return shared.control.sleep(HELD_BACK).await;
        }
        if let Some(wait) = self.pace.wait(Instant::now()) {
            return shared.control.sleep(wait.min(HELD_BACK)).await;
        }
        self.poll_and_begin(free).await;
    }

    /// Polls at once for all free slots and begins what the poll returned, even if the runner is paused or should wait. Returns how
    /// many tasks began. For tests that decide themselves when to poll; [`Self::run`] waits between polls.
    pub async fn poll_now(&mut self) -> usize {
        while self.running.try_join_next().is_some() {}
        let slots = self.shared.settings.thread_count;
        match slots.saturating_sub(self.running.len()) {
            0 => 0,
            free => self.poll_and_begin(free).await,
        }
    }

    async fn poll_and_begin(&mut self, free: usize) -> usize {
        let tasks = self.batch_poll(free).await;
        let count = tasks.len();
        for task in tasks {
            let shared = Arc::clone(&self.shared);
            self.running.spawn(async move {
                let _slot = shared.slots.acquire().await;
                Arc::clone(&shared).handle(task).await;
            });
        }
        count
    }

    /// Waits until one of the tasks in hand has ended. Returns at once if there is none.
    pub async fn task_ended(&mut self) {
        let _ended = self.running.join_next().await;
    }

    /// Runs the function of the worker with a task. Always returns a result: an error or a panic is a failed task. Reports nothing.
    pub async fn execute_task(&self, task: Task) -> TaskResult {
        self.shared.execute(Arc::new(task)).await
    }

    /// Reports a result, with all attempts. Returns the next task, if the server has one and the runner goes on.
    pub async fn update_task(&self, result: TaskResult) -> Option<Task> {
        self.shared.report(result).await
    }

    /// Polls for up to `free` tasks, at most [`BATCH_MAX`]. Empty after an error.
    pub async fn batch_poll(&mut self, free: usize) -> Vec<Task> {
        let settings = &self.shared.settings;
        let task_type = &self.shared.worker.task_type;
        let count = free.min(BATCH_MAX);
        let mut poll = Poll::new(&**task_type)
            .worker_id(&settings.worker_id)
            .count(count)
            .timeout(settings.poll_timeout);
        if let Some(domain) = &settings.domain {
            poll = poll.domain(domain);
        }
        self.shared.events.publish(PollStarted {
            task_type: Arc::clone(task_type),
            worker_id: settings.worker_id.clone(),
            poll_count: count,
        });
        let begun = Instant::now();
        let polled = self.shared.tasks.batch_poll(&poll).await;
        let now = Instant::now();
        let duration = now - begun;
        match polled {
            Ok(tasks) => {
                self.pace.polled(now, tasks.len());
                if !tasks.is_empty() {
                    tracing::debug!(
                        task_type = &**task_type,
                        worker_id = settings.worker_id,
                        asked = count,
                        received = tasks.len(),
                        "a poll returned tasks"
                    );
                }
                self.shared.events.publish(PollCompleted {
                    task_type: Arc::clone(task_type),
                    duration,
                    tasks_received: tasks.len(),
                });
                tasks
            }
            Err(error) => {
                let failure = Failure::of(&error);
                let wait = self.pace.failed(now, failure);
                failure.log(
                    task_type,
                    &settings.worker_id,
                    &error,
                    self.pace.failures(),
                    wait,
                );
                self.shared.events.publish(PollFailure {
                    task_type: Arc::clone(task_type),
                    duration,
                    cause: Arc::new(error),
                });
                Vec::new()
            }
        }
    }
}
