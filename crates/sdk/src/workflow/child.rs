//! Child workflows.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use longhaul_protocol::Payload;
use longhaul_protocol::workflow_command::{CancellationPolicy, ParentClosePolicy};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{CallFuture, CallKind, FailedHow, Outcome};
use super::options::{OptionError, RetryPolicy};
use super::replay::journal::Journal;
use crate::definition::WorkflowCall;
use crate::duration::timeout_seconds;
use crate::error::{ChildError, FailureKind, TimeoutKind};
use crate::payload;

/// A call of a child workflow, with options. Await it, or [`start`](Self::start) it and await it later.
///
/// A child workflow runs once by default. Timeouts are rounded up to whole seconds.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct ChildWorkflowCallBuilder<R> {
    journal: Arc<Journal>,
    call: WorkflowCall<R>,
    queue: Option<String>,
    parent_close: Option<ParentClosePolicy>,
    cancellation: Option<CancellationPolicy>,
    retry: Option<RetryPolicy>,
    execution_timeout: Option<Duration>,
    run_timeout: Option<Duration>,
}

impl<R: DeserializeOwned + 'static> ChildWorkflowCallBuilder<R> {
    pub(super) fn new(journal: Arc<Journal>, call: WorkflowCall<R>) -> Self {
        Self {
            journal,
            call,
            queue: None,
            parent_close: None,
            cancellation: None,
            retry: None,
            execution_timeout: None,
            run_timeout: None,
        }
    }

    /// Sets the task queue. The default is the task queue of the parent.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets what happens to the child when the parent closes first. By default the child continues.
    pub fn parent_close(mut self, policy: ParentClosePolicy) -> Self {
        self.parent_close = Some(policy);
        self
    }

    /// Sets what happens to the child when the parent is cancelled while it waits for it.
    pub fn cancellation(mut self, policy: CancellationPolicy) -> Self {
        self.cancellation = Some(policy);
        self
    }

    /// Sets how often a failed child is run again. The default is one run.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets the timeout of all runs together.
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.execution_timeout = Some(timeout);
        self
    }

    /// Sets the timeout of one run.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.run_timeout = Some(timeout);
        self
    }

    /// Starts the child now. The returned future waits for its result.
    pub fn start(self) -> ChildFuture<R> {
        let mut future = self.into_future();
        if let Inner::Called { call, .. } = &mut future.0
            && let Some(unstarted) = call.take()
        {
            *call = Some(unstarted.start());
        }
        future
    }

    fn command(&self) -> Result<Value, OptionError> {
        let arguments = self
            .call
            .call
            .payload()
            .map_err(|error| OptionError(error.to_string()))?;
        let mut command = json!({
            "type": "start_child_workflow",
            "workflow_type": self.call.name(),
            "arguments": arguments,
        });
        if let Some(queue) = &self.queue {
            command["queue"] = json!(queue);
        }
        if let Some(policy) = self.parent_close {
            command["parent_close_policy"] = json!(policy);
        }
        if let Some(policy) = self.cancellation {
            command["cancellation_policy"] = json!(policy);
        }
        if let Some(retry) = &self.retry {
            command["retry_policy"] = retry.to_wire()?;
        }
        for (key, timeout) in [
            ("execution_timeout_seconds", self.execution_timeout),
            ("run_timeout_seconds", self.run_timeout),
        ] {
            if let Some(timeout) = timeout {
                command[key] = json!(timeout_seconds(timeout));
            }
        }
        Ok(command)
    }
}

impl<R: DeserializeOwned + 'static> IntoFuture for ChildWorkflowCallBuilder<R> {
    type Output = Result<R, ChildError>;
    type IntoFuture = ChildFuture<R>;

    fn into_future(self) -> ChildFuture<R> {
        let name = self.call.name().to_owned();
        match self.command() {
            Ok(command) => {
                let kind = CallKind::Child(name.clone());
                let call =
                    CallFuture::new(self.journal.clone(), kind, command, move |_, outcome| {
                        conclude(&name, outcome)
                    });
                ChildFuture(Inner::Called {
                    journal: self.journal,
                    call: Some(call),
                })
            }
            Err(error) => ChildFuture(Inner::Failed(Some(ChildError::new(
                &name,
                FailureKind::Codec,
                error.to_string(),
            )))),
        }
    }
}

/// The result of a child workflow. Dropping the future does not stop the child.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct ChildFuture<R>(Inner<R>);

enum Inner<R> {
    Called {
        journal: Arc<Journal>,
        call: Option<CallFuture<Result<R, ChildError>>>,
    },
    Failed(Option<ChildError>),
}

impl<R> ChildFuture<R> {
    /// Waits until the child has started, and returns its workflow id and the id of its first run. Returns `None` if the child
    /// could not be started.
    pub async fn started(&self) -> Option<(String, String)> {
        let Inner::Called {
            journal,
            call: Some(call),
        } = &self.0
        else {
            return None;
        };
        let sequence = call.sequence()?;
        poll_fn(
            |context| match journal.child_ids(sequence, context.waker()) {
                Some(ids) => Poll::Ready(ids.ok()),
                None => Poll::Pending,
            },
        )
        .await
    }
}

impl<R> Unpin for ChildFuture<R> {}

impl<R> Future for ChildFuture<R> {
    type Output = Result<R, ChildError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Called {
                call: Some(call), ..
            } => Pin::new(call).poll(context),
            Inner::Failed(error) if error.is_some() => Poll::Ready(Err(error
                .take()
                .unwrap_or_else(|| ChildError::new("", FailureKind::Codec, "")))),
            Inner::Called { .. } | Inner::Failed(_) => Poll::Pending,
        }
    }
}

fn conclude<R: DeserializeOwned>(name: &str, outcome: Outcome) -> Result<R, ChildError> {
    match outcome {
        Outcome::Completed(result) => {
            let result = result.unwrap_or_else(Payload::null);
            payload::from_payload(&result).map_err(|error| {
                ChildError::new(
                    name,
                    FailureKind::Codec,
                    format!("the result has another type than expected: {error}"),
                )
            })
        }
        Outcome::Failed(facts, how) => {
            let kind = match how {
                FailedHow::TimedOut(_) => FailureKind::TimedOut(TimeoutKind::Other),
                FailedHow::Cancelled => FailureKind::Cancelled,
                FailedHow::Terminated => FailureKind::Terminated,
                FailedHow::Failed => FailureKind::Failed,
            };
            Err(ChildError {
                exception_type: facts.exception_type.or(facts.exception_class),
                non_retryable: facts.non_retryable.unwrap_or(false),
                ..ChildError::new(name, kind, facts.message.unwrap_or_default())
            })
        }
        Outcome::Interrupted | Outcome::Fired | Outcome::WaitTimedOut => Err(ChildError {
            interrupted: true,
            ..ChildError::new(name, FailureKind::Cancelled, "cancelled")
        }),
    }
}
