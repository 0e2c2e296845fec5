//! The settings of a worker: where each value comes from, and what it is.
//!
//! Each property is looked up in this order. The first value that is found is used.
//!
//! 1. An environment variable for the worker:
//!    1. `conductor.worker.{task_name}.{property}`
//!    2. `CONDUCTOR_WORKER_{TASK_NAME}_{PROPERTY}`. The task name is in upper case. It is tried unchanged first, then with `_` in
//!       place of every character outside `A-Z` and `0-9`: the task `process-order` is found as `PROCESS_ORDER`.
//!    3. `conductor_worker_{task_name}_{property}`
//!    4. `CONDUCTOR_WORKER_{task_name}_{PROPERTY}`
//! 2. An environment variable for all workers:
//!    1. `conductor.worker.all.{property}`
//!    2. `CONDUCTOR_WORKER_ALL_{PROPERTY}`
//!    3. `CONDUCTOR_WORKER_{PROPERTY}`
//!    4. `conductor_worker_{property}`
//! 3. The value that the program sets in code, with [`CodeSettings`].
//! 4. The default, see [`Settings`].
//!
//! Blanks around a text are removed. An empty text counts as not set, in a variable and in code.
//!
//! For a task with the name `all`, some variables of the worker have the same names as variables for all workers. Such a variable
//! applies to all workers. The worker has `conductor_worker_all_{property}` and `CONDUCTOR_WORKER_all_{PROPERTY}` for itself.

mod code;
mod error;
mod property;
mod resolve;
#[cfg(test)]
mod tests;
mod value;
mod variables;
mod worker_id;

use std::time::Duration;

pub use code::CodeSettings;
pub use error::SettingsError;
pub use property::Property;
pub use resolve::{Resolved, Source, resolve, resolve_from_environment};

/// The largest thread count. A larger number is more likely a mistake than a wish: every slot can hold a task in memory.
pub const THREAD_COUNT_MAX: usize = 10_000;

/// The longest poll interval: one hour. A longer one is more likely a number in the wrong unit.
pub const POLL_INTERVAL_MAX: Duration = Duration::from_secs(60 * 60);

/// The longest poll timeout: five seconds. Conductor servers refuse a poll with a longer one.
pub const POLL_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// The values of all properties of one worker.
///
/// The fields are the result of [`resolve()`]. [`Settings::default`] returns the system defaults with a new worker id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The longest wait between two polls while the queue is empty. The default is 100 milliseconds.
    pub poll_interval: Duration,
    /// How many tasks the worker runs at once. The default is 1.
    pub thread_count: usize,
    /// The domain of the tasks that the worker polls for. It is never empty. The default is `None`.
    pub domain: Option<String>,
    /// The name of the worker at the server. It is never empty. By default it is made of the host name, the process id and four
    /// random characters, and it is unique.
    pub worker_id: String,
    /// How long the server may hold a poll while the queue is empty. The default is 100 milliseconds.
    pub poll_timeout: Duration,
    /// Whether the worker registers its task definition when it starts. The default is `false`.
    pub register_task_def: bool,
    /// Whether the registration replaces an existing task definition. The default is `true`.
    pub overwrite_task_def: bool,
    /// Whether the registered schemas forbid properties that they do not name. The default is `false`.
    pub strict_schema: bool,
    /// Whether the worker is paused: it does not poll. The default is `false`.
    pub paused: bool,
    /// Whether the worker extends the lease of a task while the task runs. The default is `false`.
    pub lease_extend_enabled: bool,
    /// Whether the registration of the task definition includes its schemas. The default is `true`.
    pub register_schema: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(100),
            thread_count: 1,
            domain: None,
            worker_id: worker_id::generate(),
            poll_timeout: Duration::from_millis(100),
            register_task_def: false,
            overwrite_task_def: true,
            strict_schema: false,
            paused: false,
            lease_extend_enabled: false,
            register_schema: true,
        }
    }
}
