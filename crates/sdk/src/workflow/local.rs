//! Local activities: the worker runs them itself, under the lease of the workflow task.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::activity::{self, ActivityFuture};
use super::call::CallKind;
use super::options::{OptionError, RetryPolicy};
use super::replay::journal::Journal;
use crate::definition::ActivityCall;
use crate::duration::timeout_seconds;
use crate::error::{ActivityError, FailureKind};

/// The progress of a local activity, according to the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalPhase {
    /// Nothing is recorded.
    New,
    /// An attempt began, and its outcome is not recorded.
    Started,
    /// The next attempt belongs to the workflow task with this id.
    Retrying { task_id: Option<String> },
}

/// A local activity that the code waits for.
#[derive(Clone, Debug)]
pub(crate) struct LocalCall {
    pub(crate) sequence: u64,
    pub(crate) activity_type: String,
    /// The command without attempts and outcome.
    pub(crate) descriptor: Value,
    pub(crate) phase: LocalPhase,
}

/// The fields of events about attempts.
#[derive(Debug, Deserialize)]
pub(crate) struct LocalFacts {
    pub(super) sequence: u64,
    pub(super) retry_task_id: Option<String>,
}

/// Retries and timeouts of a local activity. Timeouts are rounded up to whole seconds.
///
/// The default is one attempt without timeouts.
#[derive(Clone, Debug, Default)]
pub struct LocalActivityOptions {
    pub(crate) retry: RetryPolicy,
    pub(crate) start_to_close: Option<Duration>,
    pub(crate) schedule_to_close: Option<Duration>,
    pub(crate) heartbeat: Option<Duration>,
}

impl LocalActivityOptions {
    /// Creates options with one attempt and without timeouts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of attempts and the pauses between them. **The default is one attempt.**
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the timeout of one attempt.
    #[must_use]
    pub fn start_to_close(mut self, timeout: Duration) -> Self {
        self.start_to_close = Some(timeout);
        self
    }

    /// Sets the timeout of all attempts together, with the pauses.
    #[must_use]
    pub fn schedule_to_close(mut self, timeout: Duration) -> Self {
        self.schedule_to_close = Some(timeout);
        self
    }

    /// Sets the longest time between two heartbeats of an attempt.
    #[must_use]
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.heartbeat = Some(timeout);
        self
    }

    /// Returns the fields for the command. Fails if a timeout is longer than one that contains it.
    fn keys(&self) -> Result<Value, OptionError> {
        let start_to_close = self.start_to_close.map(timeout_seconds);
        let schedule_to_close = self.schedule_to_close.map(timeout_seconds);
        let heartbeat = self.heartbeat.map(timeout_seconds);
        let ordered = |inner: Option<u64>, outer: Option<u64>| match (inner, outer) {
            (Some(inner), Some(outer)) => inner <= outer,
            _ => true,
        };
        if !ordered(heartbeat, start_to_close)
            || !ordered(start_to_close, schedule_to_close)
            || !ordered(heartbeat, schedule_to_close)
        {
            return Err(OptionError(
                "the heartbeat timeout must not be longer than start_to_close, and start_to_close not longer than schedule_to_close".to_owned(),
            ));
        }
        let mut keys = json!({});
        if self.retry != RetryPolicy::default() {
            keys["retry_policy"] = self.retry.to_wire()?;
        }
        for (key, value) in [
            ("start_to_close_timeout", start_to_close),
            ("schedule_to_close_timeout", schedule_to_close),
            ("heartbeat_timeout", heartbeat),
        ] {
            if let Some(value) = value {
                keys[key] = json!(value);
            }
        }
        Ok(keys)
    }
}

/// A call of a local activity, with options. Await it, or [`start`](Self::start) it and await it later.
///
/// **A local activity has one attempt by default.** Timeouts are rounded up to whole seconds.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct LocalActivityCallBuilder<R> {
    journal: Arc<Journal>,
    call: ActivityCall<R>,
    options: LocalActivityOptions,
}

impl<R: DeserializeOwned + 'static> LocalActivityCallBuilder<R> {
    pub(super) fn new(journal: Arc<Journal>, call: ActivityCall<R>) -> Self {
        Self {
            journal,
            call,
            options: LocalActivityOptions::default(),
        }
    }

    /// Replaces all options.
    pub fn with_options(mut self, options: LocalActivityOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the number of attempts and the pauses between them. **The default is one attempt.**
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.options = self.options.retry(retry);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn start_to_close(mut self, timeout: Duration) -> Self {
        self.options = self.options.start_to_close(timeout);
        self
    }

    /// Sets the timeout of all attempts together, with the pauses.
    pub fn schedule_to_close(mut self, timeout: Duration) -> Self {
        self.options = self.options.schedule_to_close(timeout);
        self
    }

    /// Sets the longest time between two heartbeats of an attempt.
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.options = self.options.heartbeat(timeout);
        self
    }

    /// Makes the call now. The returned future waits for its result.
    pub fn start(self) -> ActivityFuture<R> {
        self.into_future().start()
    }
}

impl<R: DeserializeOwned + 'static> IntoFuture for LocalActivityCallBuilder<R> {
    type Output = Result<R, ActivityError>;
    type IntoFuture = ActivityFuture<R>;

    fn into_future(self) -> ActivityFuture<R> {
        let name = self.call.name().to_owned();
        let problem =
            |problem: String| ActivityError::new(self.call.name(), FailureKind::Codec, problem);
        let keys = match self.options.keys() {
            Ok(keys) => keys,
            Err(error) => return ActivityFuture::failed(problem(error.to_string())),
        };
        let arguments = match self.call.call.payload() {
            Ok(arguments) => arguments,
            Err(error) => return ActivityFuture::failed(problem(error.to_string())),
        };
        let mut command = json!({
            "type": "record_local_activity",
            "activity_type": name,
            "execution_mode": "local",
            "arguments": arguments,
        });
        activity::merge(&mut command, keys);
        ActivityFuture::calling(self.journal, CallKind::LocalActivity(name), command)
    }
}
