//! The errors of the client, distinguished by what a caller does about them.

use std::fmt;

use longhaul_protocol::Reason;
use serde::Deserialize;

use crate::payload;
use crate::transport::{Refusal, RequestError};

/// Why a client call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request, or there was no response.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A value cannot be encoded, or has another type than expected.
    #[error(transparent)]
    Payload(#[from] payload::Error),
    /// The server uses another version of the protocol, or lacks a capability.
    #[error("{0}")]
    Incompatible(String),
}

impl Error {
    /// Returns the refusal of the server, if there is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Request(error) => error.refusal(),
            Self::Payload(_) | Self::Incompatible(_) => None,
        }
    }

    /// Returns whether the server refused for this reason.
    #[must_use]
    pub fn is(&self, reason: Reason) -> bool {
        self.refusal().is_some_and(|refusal| refusal.is(reason))
    }

    /// Returns whether the workflow, run or other object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.status() == 404)
    }

    /// Returns whether the workflow is closed and accepts no more messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is(Reason::RunNotActive)
    }

    /// Returns whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_retryable())
    }
}

/// Lets `?` convert request errors into more specific errors.
macro_rules! from_client_errors {
    ($($error:ident)+) => {$(
        impl From<RequestError> for $error {
            fn from(error: RequestError) -> Self {
                Self::Client(error.into())
            }
        }

        impl From<payload::Error> for $error {
            fn from(error: payload::Error) -> Self {
                Self::Client(error.into())
            }
        }
    )+};
}

from_client_errors!(StartError ResultError QueryError UpdateError);

/// Why a start failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A workflow with this id exists, open or closed.
    #[error("workflow {workflow_id} was already started")]
    AlreadyStarted {
        /// The workflow id.
        workflow_id: String,
        /// The id of its newest run.
        run_id: Option<String>,
    },
    /// Another error.
    #[error(transparent)]
    Client(#[from] Error),
}

/// Why a workflow has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// The workflow failed.
    #[error("the workflow failed: {0}")]
    Failed(Box<WorkflowFailure>),
    /// The workflow timed out: `run_timeout` or `execution_timeout`.
    #[error("the workflow timed out ({0})")]
    TimedOut(String),
    /// The workflow was cancelled, with the reason if there is one.
    #[error("the workflow was cancelled{}", because(.0.as_deref()))]
    Cancelled(Option<String>),
    /// The workflow was terminated, with the reason if there is one.
    #[error("the workflow was terminated{}", because(.0.as_deref()))]
    Terminated(Option<String>),
    /// The result could not be fetched or decoded.
    #[error(transparent)]
    Client(#[from] Error),
}

fn because(reason: Option<&str>) -> String {
    reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default()
}

/// The failure of a workflow.
#[derive(Clone, Debug, Default, Deserialize)]
#[non_exhaustive]
pub struct WorkflowFailure {
    /// The message.
    pub message: String,
    /// The type of the failure, set by the workflow code.
    pub exception_type: Option<String>,
    /// The class of the exception, in languages that have classes.
    pub exception_class: Option<String>,
    /// The category, such as `application` or `activity`.
    pub failure_category: Option<String>,
    /// Whether the workflow forbade a retry.
    #[serde(default)]
    pub non_retryable: bool,
}

impl fmt::Display for WorkflowFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exception_type {
            Some(exception_type) => write!(f, "{exception_type}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The workflow has no such query.
    #[error("{0}")]
    Unknown(Refusal),
    /// The handler failed, or the arguments are not valid.
    #[error("{0}")]
    Rejected(Refusal),
    /// No worker can answer the query.
    #[error("{0}")]
    NoWorker(Refusal),
    /// No worker answered in time.
    #[error("{0}")]
    TimedOut(Refusal),
    /// Another error.
    #[error(transparent)]
    Client(#[from] Error),
}

impl QueryError {
    pub(super) fn of(error: RequestError) -> Self {
        let RequestError::Refused(refusal) = error else {
            return error.into();
        };
        match (refusal.status(), refusal.reason()) {
            (404, "rejected_unknown_query") => Self::Unknown(refusal),
            (409, "query_worker_unavailable" | "query_worker_incompatible") => {
                Self::NoWorker(refusal)
            }
            (409, "historical_run_command_rejected") | (404, _) => {
                RequestError::Refused(refusal).into()
            }
            (409, _) | (422, "invalid_query_arguments") => Self::Rejected(refusal),
            (504, _) => Self::TimedOut(refusal),
            _ => RequestError::Refused(refusal).into(),
        }
    }
}

/// Why an update has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The update was refused before it was accepted: the workflow has no such update, or its validator refused it. It had no
    /// effect.
    #[error("{0}")]
    Rejected(Refusal),
    /// The update was accepted, and its handler failed.
    #[error("the update failed: {message}")]
    Failed {
        /// The update id.
        update_id: String,
        /// The failure message of the handler.
        message: String,
    },
    /// The update was accepted and has not completed within the timeout.
    /// [`UpdateHandle::result`](super::UpdateHandle::result) waits longer.
    #[error("the update {update_id} was accepted and has not completed yet")]
    TimedOut {
        /// The update id.
        update_id: String,
    },
    /// Another error.
    #[error(transparent)]
    Client(#[from] Error),
}

impl UpdateError {
    pub(super) fn of(error: RequestError) -> Self {
        let RequestError::Refused(refusal) = error else {
            return error.into();
        };
        if refusal.text("update_status") == Some("failed") {
            return Self::Failed {
                update_id: refusal.text("update_id").unwrap_or_default().to_owned(),
                message: refusal
                    .text("failure_message")
                    .unwrap_or_else(|| refusal.message())
                    .to_owned(),
            };
        }
        match refusal.reason() {
            "unknown_update" | "invalid_update_arguments" | "update_validator_rejected" => {
                Self::Rejected(refusal)
            }
            _ => RequestError::Refused(refusal).into(),
        }
    }
}
