//! The settings that a program sets in code.

use std::time::Duration;

/// What a program sets in code for one worker. Environment variables override it. A property that is not set has its default.
///
/// The values are checked by [`resolve`](fn@super::resolve).
///
/// ```
/// use longhaul_conductor_sdk::settings::CodeSettings;
///
/// let code = CodeSettings::new().thread_count(20).domain("europe");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until they are resolved"]
pub struct CodeSettings {
    pub(super) poll_interval: Option<Duration>,
    pub(super) thread_count: Option<usize>,
    pub(super) domain: Option<String>,
    pub(super) worker_id: Option<String>,
    pub(super) poll_timeout: Option<Duration>,
    pub(super) register_task_def: Option<bool>,
    pub(super) overwrite_task_def: Option<bool>,
    pub(super) strict_schema: Option<bool>,
    pub(super) paused: Option<bool>,
    pub(super) lease_extend_enabled: Option<bool>,
    pub(super) register_schema: Option<bool>,
}

impl CodeSettings {
    /// Returns settings in which nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the longest wait between two polls while the queue is empty: at most
    /// [`POLL_INTERVAL_MAX`](super::POLL_INTERVAL_MAX).
    pub const fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// Sets how many tasks the worker runs at once: 1 to [`THREAD_COUNT_MAX`](super::THREAD_COUNT_MAX).
    pub const fn thread_count(mut self, count: usize) -> Self {
        self.thread_count = Some(count);
        self
    }

    /// Sets the domain of the tasks that the worker polls for. An empty domain counts as not set.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets the worker id. An empty id counts as not set.
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> Self {
        self.worker_id = Some(worker_id.into());
        self
    }

    /// Sets how long the server may hold a poll while the queue is empty: at most
    /// [`POLL_TIMEOUT_MAX`](super::POLL_TIMEOUT_MAX).
    pub const fn poll_timeout(mut self, timeout: Duration) -> Self {
        self.poll_timeout = Some(timeout);
        self
    }

    /// Sets whether the worker registers its task definition when it starts.
    pub const fn register_task_def(mut self, register: bool) -> Self {
        self.register_task_def = Some(register);
        self
    }

    /// Sets whether the registration replaces an existing task definition.
    pub const fn overwrite_task_def(mut self, overwrite: bool) -> Self {
        self.overwrite_task_def = Some(overwrite);
        self
    }

    /// Sets whether the registered schemas forbid properties that they do not name.
    pub const fn strict_schema(mut self, strict: bool) -> Self {
        self.strict_schema = Some(strict);
        self
    }

    /// Sets whether the worker is paused: it does not poll.
    pub const fn paused(mut self, paused: bool) -> Self {
        self.paused = Some(paused);
        self
    }

    /// Sets whether the worker extends the lease of a task while the task runs.
    pub const fn lease_extend_enabled(mut self, enabled: bool) -> Self {
        self.lease_extend_enabled = Some(enabled);
        self
    }

    /// Sets whether the registration of the task definition includes its schemas.
    pub const fn register_schema(mut self, register: bool) -> Self {
        self.register_schema = Some(register);
        self
    }
}
