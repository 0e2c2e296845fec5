//! The errors user code meets: what it returns when it fails, and what it gets from a call that failed.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use longhaul_protocol::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::definition::ErasedCall;
use crate::payload::{self, Error as PayloadError};

/// A failure of user code, in the form every language of the protocol understands. Made from any error with `?`.
///
/// It is deliberately not an error type itself, like `anyhow::Error`: that is what makes `?` work on every other one.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) message: String,
    pub(crate) exception_type: String,
    pub(crate) code: Option<i64>,
    pub(crate) non_retryable: bool,
    pub(crate) details: Option<Payload>,
    pub(crate) cancelled: bool,
}

/// What an activity returns.
pub type ActivityResult<T> = Result<T, Failure>;

impl Failure {
    /// A failure with a message for people and the type `Failure`.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of_type("Failure", message)
    }

    /// A failure of a type that retry policies and callers can name.
    pub fn of_type(exception_type: impl Into<String>, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let exception_type: String = exception_type.into();
        Self {
            // The protocol wants a message that says something.
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

    /// Trying again would not help: no further attempt is made, whatever the retry policy says.
    #[must_use]
    pub fn non_retryable(mut self) -> Self {
        self.non_retryable = true;
        self
    }

    /// A number for programs.
    #[must_use]
    pub fn code(mut self, code: i64) -> Self {
        self.code = Some(code);
        self
    }

    /// A value for the caller, read there with [`ActivityError::details`].
    ///
    /// # Errors
    /// When the value has no payload form.
    pub fn details<T: Serialize>(mut self, details: &T) -> Result<Self, PayloadError> {
        self.details = Some(payload::to_payload(details)?);
        Ok(self)
    }

    /// What went wrong, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The stable name of the kind of failure.
    pub fn exception_type(&self) -> &str {
        &self.exception_type
    }

    /// Whether another attempt is pointless.
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
            // Arguments and results do not become readable by trying again.
            non_retryable: error.is::<PayloadError>(),
            ..Self::of_type(short_name::<E>(), chain(error))
        }
    }
}

/// The error and what caused it, in one line.
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

/// `my_crate::payments::CardDeclined` is `CardDeclined` to other languages.
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
        .unwrap_or("without a message")
}

/// The workflow was asked to end, and the call that it waited in was given up. Calls made after it work: that is how a
/// workflow cleans up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// How an activity or child workflow ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Its code failed, for the last time.
    Failed,
    /// One of its timeouts passed.
    TimedOut(TimeoutKind),
    /// It was cancelled, or the workflow was while it waited.
    Cancelled,
    /// A child workflow was terminated.
    Terminated,
    /// The call never left: its arguments have no payload form, or what came back has another type than expected.
    Codec,
}

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// No worker took it in time.
    ScheduleToStart,
    /// One attempt took too long.
    StartToClose,
    /// All attempts together took too long.
    ScheduleToClose,
    /// The attempt was silent for too long.
    Heartbeat,
    /// A kind this release does not know.
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

/// Why a call of an activity (also a local one) gave no result. Reads as an [`ActivityFailure`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("activity {}: {}", .0.activity_type, .0.message)]
pub struct ActivityError(pub(crate) Box<ActivityFailure>);

impl std::ops::Deref for ActivityError {
    type Target = ActivityFailure;

    fn deref(&self) -> &ActivityFailure {
        &self.0
    }
}

/// The failure of an activity, in the words every language of the protocol uses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ActivityFailure {
    /// Which activity.
    pub activity_type: String,
    /// How it ended.
    pub kind: FailureKind,
    /// The protocol's name for the kind of failure: `activity`, `application`, `timeout`, `structural_limit`, …
    pub failure_category: String,
    /// The stable type of the failure, as the activity named it.
    pub exception_type: Option<String>,
    /// What went wrong, for people.
    pub message: String,
    /// The number the activity gave.
    pub code: Option<i64>,
    /// Whether the activity said that trying again is pointless.
    pub non_retryable: bool,
    /// The attempt that ended it, if one ran.
    pub attempt: Option<u64>,
    pub(crate) details: Option<Payload>,
    /// The command sequence of the call.
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

    /// The value the activity attached to its failure.
    ///
    /// # Errors
    /// When the value has another shape.
    pub fn details<T: DeserializeOwned>(&self) -> Option<Result<T, PayloadError>> {
        self.details.as_ref().map(payload::from_payload)
    }

    /// Whether the call was given up because the workflow is to end.
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

/// Why a child workflow gave no result.
#[derive(Clone, Debug, thiserror::Error)]
#[error("child workflow {workflow_type}: {message}")]
#[non_exhaustive]
pub struct ChildError {
    /// Which workflow.
    pub workflow_type: String,
    /// How it ended.
    pub kind: FailureKind,
    /// The stable type of the failure, as the child named it.
    pub exception_type: Option<String>,
    /// What went wrong, for people.
    pub message: String,
    /// Whether the child said that trying again is pointless.
    pub non_retryable: bool,
    /// The workflow itself was cancelled while it waited.
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

/// How a workflow ends without a result. Made from any error with `?`.
#[derive(Debug)]
pub struct WorkflowError(pub(crate) Ending);

/// What a workflow returns.
pub type WorkflowResult<T> = Result<T, WorkflowError>;

#[derive(Debug)]
pub(crate) enum Ending {
    Failed {
        failure: Failure,
        /// The activity whose failure nobody caught.
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
    /// Whether it says that the workflow was asked to end.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Ending::Cancelled)
    }

    /// The failure, unless the workflow ends in another way.
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
            // Arguments and results do not become readable by trying again.
            non_retryable: error.is::<PayloadError>(),
            ..Failure::of_type(short_name::<E>(), chain(error))
        })
    }
}
