//! Local activities: calls that the worker runs itself, under the lease of the workflow task (local-activities.md).

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::activity::{self, ActivityFuture};
use super::call::CallKind;
use super::journal::Journal;
use super::options::{OptionError, RetryPolicy};
use crate::definition::ActivityCall;
use crate::duration::timeout_seconds;
use crate::error::{ActivityError, FailureKind};

/// How far a local activity has come, as the history tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalPhase {
    /// Nothing is recorded.
    New,
    /// An attempt began and nobody knows how it ended.
    Started,
    /// The next attempt belongs to this workflow task.
    Retrying { task_id: Option<String> },
}

/// A local activity that the code waits for.
#[derive(Clone, Debug)]
pub(crate) struct LocalCall {
    pub(crate) sequence: u64,
    pub(crate) activity_type: String,
    /// The command without its outcome.
    pub(crate) descriptor: Value,
    pub(crate) phase: LocalPhase,
}

/// The keys of events about attempts.
#[derive(Debug, Deserialize)]
pub(super) struct LocalFacts {
    pub(super) sequence: u64,
    pub(super) retry_task_id: Option<String>,
}

/// How a local activity is tried. It has no queue and no session: it runs here.
#[derive(Clone, Debug, Default)]
pub struct LocalActivityOptions {
    pub(crate) retry: RetryPolicy,
    pub(crate) start_to_close: Option<Duration>,
    pub(crate) schedule_to_close: Option<Duration>,
    pub(crate) heartbeat: Option<Duration>,
}

impl LocalActivityOptions {
    /// One attempt without timeouts.
    pub fn new() -> Self {
        Self::default()
    }

    /// How often it is tried, and with which pauses.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn start_to_close(mut self, timeout: Duration) -> Self {
        self.start_to_close = Some(timeout);
        self
    }

    /// How long all attempts together may take, pauses included.
    #[must_use]
    pub fn schedule_to_close(mut self, timeout: Duration) -> Self {
        self.schedule_to_close = Some(timeout);
        self
    }

    /// How long an attempt may be silent.
    #[must_use]
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.heartbeat = Some(timeout);
        self
    }

    /// The keys of the command, after the checks of the contract.
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
                "timeouts must not shrink: heartbeat, start_to_close, schedule_to_close".to_owned(),
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

/// A local activity about to be called. Await it, or `start` it and await it later.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct LocalActivity<R> {
    journal: Arc<Journal>,
    call: ActivityCall<R>,
    options: LocalActivityOptions,
}

impl<R: DeserializeOwned + 'static> LocalActivity<R> {
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

    /// How often it is tried, and with which pauses.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.options = self.options.retry(retry);
        self
    }

    /// How long one attempt may take.
    pub fn start_to_close(mut self, timeout: Duration) -> Self {
        self.options = self.options.start_to_close(timeout);
        self
    }

    /// How long all attempts together may take, pauses included.
    pub fn schedule_to_close(mut self, timeout: Duration) -> Self {
        self.options = self.options.schedule_to_close(timeout);
        self
    }

    /// How long an attempt may be silent.
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.options = self.options.heartbeat(timeout);
        self
    }

    /// Calls it now.
    pub fn start(self) -> ActivityFuture<R> {
        self.into_future().start()
    }
}

impl<R: DeserializeOwned + 'static> IntoFuture for LocalActivity<R> {
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
