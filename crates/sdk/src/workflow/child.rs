//! Calls of other workflows.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use longhaul_protocol::Payload;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::activity::CancellationPolicy;
use super::call::{CallFuture, CallKind, FailedHow, Outcome};
use super::journal::Journal;
use super::options::{OptionError, RetryPolicy};
use crate::definition::WorkflowCall;
use crate::duration::timeout_seconds;
use crate::error::{ChildError, FailureKind, TimeoutKind};
use crate::payload;

/// What happens to a child that is open when its parent closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentClosePolicy {
    /// It goes on.
    Abandon,
    /// It is cancelled at once.
    RequestCancel,
    /// It is terminated.
    Terminate,
    /// It is asked to clean up and end.
    RequestCancellation,
}

impl ParentClosePolicy {
    fn wire_name(self) -> &'static str {
        match self {
            Self::Abandon => "abandon",
            Self::RequestCancel => "request_cancel",
            Self::Terminate => "terminate",
            Self::RequestCancellation => "request_cancellation",
        }
    }
}

/// A child workflow about to be started. Await its result, or [`start`](Self::start) it and await it later.
#[must_use = "a call does nothing until it is awaited or started"]
pub struct CallChild<R> {
    journal: Arc<Journal>,
    call: WorkflowCall<R>,
    queue: Option<String>,
    parent_close: Option<ParentClosePolicy>,
    cancellation: Option<CancellationPolicy>,
    retry: Option<RetryPolicy>,
    execution_timeout: Option<Duration>,
    run_timeout: Option<Duration>,
}

impl<R: DeserializeOwned + 'static> CallChild<R> {
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

    /// The queue of the workers that run it; the parent's own by default.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// What happens to it when this workflow closes first; it goes on by default.
    pub fn parent_close(mut self, policy: ParentClosePolicy) -> Self {
        self.parent_close = Some(policy);
        self
    }

    /// What happens to it when this workflow is cancelled while it waits.
    pub fn cancellation(mut self, policy: CancellationPolicy) -> Self {
        self.cancellation = Some(policy);
        self
    }

    /// How often it is run anew when it fails.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long all its runs together may take. Whole seconds.
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.execution_timeout = Some(timeout);
        self
    }

    /// How long one run of it may take. Whole seconds.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.run_timeout = Some(timeout);
        self
    }

    /// Starts it now.
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
            command["parent_close_policy"] = json!(policy.wire_name());
        }
        if let Some(policy) = self.cancellation {
            command["cancellation_policy"] = json!(policy.wire_name());
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

impl<R: DeserializeOwned + 'static> IntoFuture for CallChild<R> {
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

/// A started child workflow. Dropping it gives its result up; the child itself runs on.
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
    /// The child's workflow id and the id of its first run, once it has begun. `None` if it never will.
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
                    format!("its result has another type than expected: {error}"),
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
