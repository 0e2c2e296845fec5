//! Calls of activities from workflow code.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use longhaul_protocol::Payload;
use longhaul_protocol::workflow_command::CancellationPolicy;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{CallFuture, CallKind, FailedHow, Outcome};
use super::options::{OptionError, RetryPolicy};
use super::replay::event::CallFacts;
use super::replay::journal::Journal;
use super::session::WorkerSessionOptions;
use crate::definition::ActivityCall;
use crate::duration::timeout_seconds;
use crate::error::{ActivityError, FailureKind};
use crate::payload;

/// A call of an activity, with options. Await it, or [`start`](Self::start) it and await it later.
///
/// **An activity has one attempt by default.** Add [`.retry(..)`](Self::retry) to repeat failed attempts. Timeouts are rounded
/// up to whole seconds.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct ActivityCallBuilder<R> {
    journal: Arc<Journal>,
    call: ActivityCall<R>,
    queue: Option<String>,
    retry: Option<RetryPolicy>,
    start_to_close: Option<Duration>,
    schedule_to_start: Option<Duration>,
    schedule_to_close: Option<Duration>,
    heartbeat: Option<Duration>,
    cancellation: Option<CancellationPolicy>,
    session: Option<WorkerSessionOptions>,
}

impl<R: DeserializeOwned + 'static> ActivityCallBuilder<R> {
    pub(super) fn new(journal: Arc<Journal>, call: ActivityCall<R>) -> Self {
        Self {
            journal,
            call,
            queue: None,
            retry: None,
            start_to_close: None,
            schedule_to_start: None,
            schedule_to_close: None,
            heartbeat: None,
            cancellation: None,
            session: None,
        }
    }

    /// Sets the task queue. The default is the task queue of the workflow.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the number of attempts and the pauses between them. **The default is one attempt.**
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn start_to_close(mut self, timeout: Duration) -> Self {
        self.start_to_close = Some(timeout);
        self
    }

    /// Sets the timeout for the wait for a worker.
    pub fn schedule_to_start(mut self, timeout: Duration) -> Self {
        self.schedule_to_start = Some(timeout);
        self
    }

    /// Sets the timeout of all attempts together.
    pub fn schedule_to_close(mut self, timeout: Duration) -> Self {
        self.schedule_to_close = Some(timeout);
        self
    }

    /// Sets the longest time between two heartbeats of an attempt.
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.heartbeat = Some(timeout);
        self
    }

    /// Sets what happens to the activity when the workflow is cancelled.
    pub fn cancellation(mut self, policy: CancellationPolicy) -> Self {
        self.cancellation = Some(policy);
        self
    }

    /// Runs the activity on the worker that holds the session.
    pub fn in_session(mut self, session: &WorkerSessionOptions) -> Self {
        self.session = Some(session.clone());
        self
    }

    /// Makes the call now. The returned future waits for its result.
    pub fn start(self) -> ActivityFuture<R> {
        self.into_future().start()
    }

    fn command(&self) -> Result<Value, OptionError> {
        let arguments = self
            .call
            .call
            .payload()
            .map_err(|error| OptionError(error.to_string()))?;
        let mut command = json!({
            "type": "schedule_activity",
            "activity_type": self.call.name(),
            "arguments": arguments,
        });
        if let Some(queue) = &self.queue {
            command["queue"] = json!(queue);
        }
        if let Some(retry) = &self.retry {
            command["retry_policy"] = retry.to_wire()?;
        }
        for (key, timeout) in [
            ("start_to_close_timeout", self.start_to_close),
            ("schedule_to_start_timeout", self.schedule_to_start),
            ("schedule_to_close_timeout", self.schedule_to_close),
            ("heartbeat_timeout", self.heartbeat),
        ] {
            if let Some(timeout) = timeout {
                command[key] = json!(timeout_seconds(timeout));
            }
        }
        if let Some(policy) = self.cancellation {
            command["cancellation_policy"] = json!(policy);
        }
        if let Some(session) = &self.session {
            command["worker_session"] = session.to_wire();
        }
        Ok(command)
    }
}

impl<R: DeserializeOwned + 'static> IntoFuture for ActivityCallBuilder<R> {
    type Output = Result<R, ActivityError>;
    type IntoFuture = ActivityFuture<R>;

    fn into_future(self) -> ActivityFuture<R> {
        match self.command() {
            Ok(command) => {
                let kind = CallKind::Activity(self.call.name().to_owned());
                ActivityFuture::calling(self.journal, kind, command)
            }
            Err(error) => ActivityFuture::failed(ActivityError::new(
                self.call.name(),
                FailureKind::Codec,
                error.to_string(),
            )),
        }
    }
}

/// The result of a called activity, local or not. Dropping the future does not stop the activity.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct ActivityFuture<R>(Inner<R>);

enum Inner<R> {
    Called(CallFuture<Result<R, ActivityError>>),
    Failed(Option<ActivityError>),
}

impl<R: DeserializeOwned + 'static> ActivityFuture<R> {
    pub(super) fn calling(journal: Arc<Journal>, kind: CallKind, command: Value) -> Self {
        let name = match &kind {
            CallKind::Activity(name) | CallKind::LocalActivity(name) => name.clone(),
            _ => String::new(),
        };
        Self(Inner::Called(CallFuture::new(
            journal,
            kind,
            command,
            move |sequence, outcome| conclude(&name, sequence, outcome),
        )))
    }

    /// Returns a future that fails with the error.
    pub(super) fn failed(error: ActivityError) -> Self {
        Self(Inner::Failed(Some(error)))
    }

    pub(super) fn start(self) -> Self {
        Self(match self.0 {
            Inner::Called(call) => Inner::Called(call.start()),
            failed @ Inner::Failed(_) => failed,
        })
    }
}

impl<R> Unpin for ActivityFuture<R> {}

impl<R> Future for ActivityFuture<R> {
    type Output = Result<R, ActivityError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Called(call) => Pin::new(call).poll(context),
            Inner::Failed(error) => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
}

fn conclude<R: DeserializeOwned>(
    name: &str,
    sequence: u64,
    outcome: Outcome,
) -> Result<R, ActivityError> {
    let mut error = match outcome {
        Outcome::Completed(result) => {
            let result = result.unwrap_or_else(Payload::null);
            match payload::from_payload(&result) {
                Ok(result) => return Ok(result),
                Err(error) => ActivityError::new(
                    name,
                    FailureKind::Codec,
                    format!("the result has another type than expected: {error}"),
                ),
            }
        }
        Outcome::Failed(facts, how) => failure(name, *facts, how),
        Outcome::Interrupted | Outcome::Fired | Outcome::WaitTimedOut => {
            ActivityError::new(name, FailureKind::Cancelled, "cancelled")
        }
    };
    error.0.sequence = sequence;
    Err(error)
}

fn failure(name: &str, facts: CallFacts, how: FailedHow) -> ActivityError {
    let kind = match how {
        FailedHow::Failed => FailureKind::Failed,
        FailedHow::TimedOut(kind) => FailureKind::TimedOut(kind),
        FailedHow::Cancelled => FailureKind::Cancelled,
        FailedHow::Terminated => FailureKind::Terminated,
    };
    let details = facts.details();
    let mut error = ActivityError::new(name, kind, facts.message.unwrap_or_default());
    let failure = &mut error.0;
    if let Some(category) = facts.failure_category {
        failure.failure_category = category;
    }
    failure.exception_type = facts.exception_type.or(facts.exception_class);
    failure.code = facts.code.and_then(|code| code.as_i64());
    failure.non_retryable = facts.non_retryable.unwrap_or(false);
    failure.attempt = facts.attempt_number;
    failure.details = details;
    failure.execution_id = facts.activity_execution_id;
    error
}

/// Adds the keys of one JSON object to another.
pub(crate) fn merge(into: &mut Value, keys: Value) {
    if let (Value::Object(into), Value::Object(keys)) = (into, keys) {
        into.extend(keys);
    }
}
