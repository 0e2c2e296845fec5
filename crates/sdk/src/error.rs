//! The errors of user code: the failures it returns, and the errors of the calls it makes.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use longhaul_protocol::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::definition::ErasedCall;
use crate::payload::{self, Error as PayloadError};

/// A failure of user code. `?` converts any error into it.
///
/// It does not implement `std::error::Error`, like `anyhow::Error`: that is what allows `?` to convert every other error.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) message: String,
    pub(crate) exception_type: String,
    pub(crate) code: Option<i64>,
    pub(crate) non_retryable: bool,
    pub(crate) details: Option<Payload>,
    pub(crate) cancelled: bool,
}

/// The result of an activity.
pub type ActivityResult<T> = Result<T, Failure>;

impl Failure {
    /// Creates a failure with a message and the type `Failure`.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of_type("Failure", message)
    }

    /// Creates a failure with a type, which retry policies and callers can refer to.
    pub fn of_type(exception_type: impl Into<String>, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let exception_type: String = exception_type.into();
        Self {
            // The protocol requires a message that is not blank.
            message: if message.trim().is_empty() {
                exception_type.clone()
            } else {
                message
            },
            exception_type,
            code: None,
            non_retryable: false,
            details: None,
            cancelled: false,
        }
    }

    /// Forbids a retry, even if the retry policy allows one.
    #[must_use]
    pub fn non_retryable(mut self) -> Self {
        self.non_retryable = true;
        self
    }

    /// Adds an error code.
    #[must_use]
    pub fn code(mut self, code: i64) -> Self {
        self.code = Some(code);
        self
    }

    /// Adds a value, which the caller reads with [`ActivityError::details`].
    ///
    /// # Errors
    /// [`payload::Error`](crate::payload::Error) if the value cannot be encoded as a payload.
    pub fn details<T: Serialize>(mut self, details: &T) -> Result<Self, PayloadError> {
        self.details = Some(payload::to_payload(details)?);
        Ok(self)
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the type of the failure.
    pub fn exception_type(&self) -> &str {
        &self.exception_type
    }

    /// Returns whether a retry is forbidden.
    pub fn is_non_retryable(&self) -> bool {
        self.non_retryable
    }

    pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> Self {
        Self::of_type("Panic", format!("{what} panicked: {}", panic_text(panic)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.exception_type, self.message)
    }
}

impl<E: StdError + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: &(dyn StdError + 'static) = &error;
        if let Some(activity) = error.downcast_ref::<ActivityError>() {
            return activity.to_failure();
        }
        if let Some(child) = error.downcast_ref::<ChildError>() {
            return child.to_failure();
        }
        if error.is::<Cancelled>() {
            return Self {
                cancelled: true,
                non_retryable: true,
                ..Self::of_type("ActivityCancelled", error.to_string())
            };
        }
        Self {
            // A retry would get the same arguments and results.
            non_retryable: error.is::<PayloadError>(),
            ..Self::of_type(short_name::<E>(), chain(error))
        }
    }
}

/// Returns the message of the error and of its causes, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text = format!("{text}: {next_text}");
        }
        cause = next.source();
    }
    text
}

/// Returns the last segment of the type name: `CardDeclined` for `my_crate::payments::CardDeclined`.
fn short_name<E>() -> &'static str {
    let path = std::any::type_name::<E>();
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The cancellation of the workflow was requested, and the call it waited for was cancelled. Later calls work, so that the
/// workflow can clean up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// How an activity or child workflow ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// Its code failed, and there is no further attempt.
    Failed,
    /// It timed out.
    TimedOut(TimeoutKind),
    /// It was cancelled, or the calling workflow was cancelled while it waited.
    Cancelled,
    /// The child workflow was terminated.
    Terminated,
    /// The call could not be made, because an argument cannot be encoded or an option is not valid; or the result has another
    /// type than expected.
    Codec,
}

/// Which timeout was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutKind {
    /// No worker took the task in time.
    ScheduleToStart,
    /// One attempt took too long.
    StartToClose,
    /// All attempts together took too long.
    ScheduleToClose,
    /// The attempt sent no heartbeat in time.
    Heartbeat,
    /// Another timeout.
    Other,
}

impl TimeoutKind {
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "schedule_to_start" => Self::ScheduleToStart,
            "start_to_close" => Self::StartToClose,
            "schedule_to_close" => Self::ScheduleToClose,
            "heartbeat" => Self::Heartbeat,
            _ => Self::Other,
        }
    }
}

/// Why a call of an activity, local or not, has no result. Dereferences to an [`ActivityFailure`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("activity {}: {}", .0.activity_type, .0.message)]
pub struct ActivityError(pub(crate) Box<ActivityFailure>);

impl std::ops::Deref for ActivityError {
    type Target = ActivityFailure;

    fn deref(&self) -> &ActivityFailure {
        &self.0
    }
}

/// The failure of an activity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ActivityFailure {
    /// The activity type.
    pub activity_type: String,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The category of the protocol: `activity`, `application`, `timeout`, `structural_limit`, …
    pub failure_category: String,
    /// The type of the failure, set by the activity.
    pub exception_type: Option<String>,
    /// The message.
    pub message: String,
    /// The error code, set by the activity.
    pub code: Option<i64>,
    /// Whether the activity forbade a retry.
    pub non_retryable: bool,
    /// The number of the last attempt, if there was one.
    pub attempt: Option<u64>,
    pub(crate) details: Option<Payload>,
    /// The number of the call.
    pub(crate) sequence: u64,
    pub(crate) execution_id: Option<String>,
}

impl ActivityError {
    pub(crate) fn new(activity_type: &str, kind: FailureKind, message: impl Into<String>) -> Self {
        Self(Box::new(ActivityFailure {
            activity_type: activity_type.to_owned(),
            kind,
            failure_category: match kind {
                FailureKind::TimedOut(_) => "timeout",
                FailureKind::Cancelled => "cancelled",
                _ => "activity",
            }
            .to_owned(),
            exception_type: None,
            message: message.into(),
            code: None,
            non_retryable: false,
            attempt: None,
            details: None,
            sequence: 0,
            execution_id: None,
        }))
    }

    /// Returns the value that the activity added to its failure.
    ///
    /// # Errors
    /// [`payload::Error`](crate::payload::Error) if the value is not a `T`.
    pub fn details<T: DeserializeOwned>(&self) -> Option<Result<T, PayloadError>> {
        self.details.as_ref().map(payload::from_payload)
    }

    /// Returns whether the call was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.kind == FailureKind::Cancelled
    }

    fn to_failure(&self) -> Failure {
        Failure {
            message: self.message.clone(),
            exception_type: self
                .exception_type
                .clone()
                .unwrap_or_else(|| match self.kind {
                    FailureKind::TimedOut(_) => "ActivityTimedOut".to_owned(),
                    FailureKind::Cancelled => "ActivityCancelled".to_owned(),
                    _ => "ActivityFailed".to_owned(),
                }),
            code: self.code,
            non_retryable: self.non_retryable,
            details: self.details.clone(),
            cancelled: self.is_cancelled(),
        }
    }
}

/// Why a child workflow has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[error("child workflow {workflow_type}: {message}")]
#[non_exhaustive]
pub struct ChildError {
    /// The workflow type.
    pub workflow_type: String,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The type of the failure, set by the child.
    pub exception_type: Option<String>,
    /// The message.
    pub message: String,
    /// Whether the child forbade a retry.
    pub non_retryable: bool,
    /// The parent was cancelled while it waited.
    pub(crate) interrupted: bool,
}

impl ChildError {
    pub(crate) fn new(workflow_type: &str, kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            workflow_type: workflow_type.to_owned(),
            kind,
            exception_type: None,
            message: message.into(),
            non_retryable: false,
            interrupted: false,
        }
    }

    fn to_failure(&self) -> Failure {
        let exception_type = self.exception_type.as_deref().unwrap_or(match self.kind {
            FailureKind::TimedOut(_) => "ChildWorkflowTimedOut",
            FailureKind::Cancelled => "ChildWorkflowCancelled",
            FailureKind::Terminated => "ChildWorkflowTerminated",
            FailureKind::Failed | FailureKind::Codec => "ChildWorkflowFailed",
        });
        Failure {
            non_retryable: self.non_retryable,
            ..Failure::of_type(exception_type, self.message.as_str())
        }
    }
}

/// How a workflow ends without a result: it fails, is cancelled, or continues as new. `?` converts any error into it.
///
/// It does not implement `std::error::Error`, for the same reason as [`Failure`]: a type that converts from every error cannot
/// be an error itself, because Rust already converts every type from itself. It is opaque because workflow code only passes it
/// on; [`is_cancelled`](Self::is_cancelled) and [`failure`](Self::failure) are for tests of workflow code.
#[derive(Debug)]
pub struct WorkflowError(pub(crate) Ending);

/// The result of a workflow.
pub type WorkflowResult<T> = Result<T, WorkflowError>;

#[derive(Debug)]
pub(crate) enum Ending {
    Failed {
        failure: Failure,
        /// The number and the execution id of the activity whose failure ended the workflow.
        step: Option<(u64, Option<String>)>,
    },
    Cancelled,
    ContinueAsNew(Box<ContinueAsNew>),
}

#[derive(Debug)]
pub(crate) struct ContinueAsNew {
    pub(crate) call: ErasedCall,
    pub(crate) queue: Option<String>,
}

impl WorkflowError {
    /// Returns whether the workflow ends because of a cancellation.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Ending::Cancelled)
    }

    /// Returns the failure, unless the workflow ends in another way.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.0 {
            Ending::Failed { failure, .. } => Some(failure),
            Ending::Cancelled | Ending::ContinueAsNew(_) => None,
        }
    }
}

impl From<Failure> for WorkflowError {
    fn from(failure: Failure) -> Self {
        Self(if failure.cancelled {
            Ending::Cancelled
        } else {
            Ending::Failed {
                failure,
                step: None,
            }
        })
    }
}

impl<E: StdError + 'static> From<E> for WorkflowError {
    fn from(error: E) -> Self {
        let error: &(dyn StdError + 'static) = &error;
        if error.is::<Cancelled>() {
            return Self(Ending::Cancelled);
        }
        if let Some(activity) = error.downcast_ref::<ActivityError>() {
            return Self(if activity.is_cancelled() {
                Ending::Cancelled
            } else {
                Ending::Failed {
                    failure: activity.to_failure(),
                    step: (activity.sequence > 0)
                        .then(|| (activity.sequence, activity.execution_id.clone())),
                }
            });
        }
        if let Some(child) = error.downcast_ref::<ChildError>() {
            return if child.interrupted {
                Self(Ending::Cancelled)
            } else {
                Self::from(child.to_failure())
            };
        }
        Self::from(Failure {
            // A retry would get the same arguments and results.
            non_retryable: error.is::<PayloadError>(),
            ..Failure::of_type(short_name::<E>(), chain(error))
        })
    }
}
