//! What can go wrong for a caller, told apart by what the caller would do about it.

use std::fmt;

use longhaul_protocol::Reason;
use serde::Deserialize;

use crate::payload;
use crate::transport::{Refusal, RequestError};

/// Why a call on the client did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused, or no answer came.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Arguments that cannot be sent, or an answer that is not of the expected type.
    #[error(transparent)]
    Payload(#[from] payload::Error),
    /// The server speaks another protocol, or lacks what was asked for.
    #[error("{0}")]
    Incompatible(String),
}

impl Error {
    /// The server's refusal, if there is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Request(error) => error.refusal(),
            Self::Payload(_) | Self::Incompatible(_) => None,
        }
    }

    /// Whether the server refused for this reason.
    #[must_use]
    pub fn is(&self, reason: Reason) -> bool {
        self.refusal().is_some_and(|refusal| refusal.is(reason))
    }

    /// Whether what was asked about does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.status() == 404)
    }

    /// Whether the workflow is over and takes no more messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is(Reason::RunNotActive)
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_retryable())
    }
}

/// Lets `?` carry what a request failed with into an error that knows more.
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

/// Why a workflow was not started.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is a workflow of this id, running or over.
    #[error("workflow {workflow_id} was started before")]
    AlreadyStarted {
        /// The id.
        workflow_id: String,
        /// Its newest run.
        run_id: Option<String>,
    },
    /// Something else.
    #[error(transparent)]
    Client(#[from] Error),
}

/// Why a workflow has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// It failed.
    #[error("the workflow failed: {0}")]
    Failed(Box<WorkflowFailure>),
    /// It took longer than it may: `run_timeout` or `execution_timeout`.
    #[error("the workflow timed out ({0})")]
    TimedOut(String),
    /// It was cancelled, for the reason given if there was one.
    #[error("the workflow was cancelled{}", because(.0.as_deref()))]
    Cancelled(Option<String>),
    /// It was terminated, for the reason given if there was one.
    #[error("the workflow was terminated{}", because(.0.as_deref()))]
    Terminated(Option<String>),
    /// The result could not be fetched or read.
    #[error(transparent)]
    Client(#[from] Error),
}

fn because(reason: Option<&str>) -> String {
    reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default()
}

/// What a workflow failed with.
#[derive(Clone, Debug, Default, Deserialize)]
#[non_exhaustive]
pub struct WorkflowFailure {
    /// For people.
    pub message: String,
    /// The name that workflow code gave the failure.
    pub exception_type: Option<String>,
    /// The class behind it, in languages that have one.
    pub exception_class: Option<String>,
    /// What sort of failure it is, such as `application` or `activity`.
    pub failure_category: Option<String>,
    /// Whether the workflow said that trying again is pointless.
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
    /// The workflow knows no query of this name.
    #[error("{0}")]
    Unknown(Refusal),
    /// The workflow's code refused the query or failed at it.
    #[error("{0}")]
    Rejected(Refusal),
    /// No worker is there to answer it.
    #[error("{0}")]
    NoWorker(Refusal),
    /// No worker answered in time.
    #[error("{0}")]
    TimedOut(Refusal),
    /// Something else.
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
    /// It was refused before it was accepted: unknown to the workflow, or turned down by its validator. Nothing happened.
    #[error("{0}")]
    Rejected(Refusal),
    /// It was accepted, and its handler failed.
    #[error("the update failed: {message}")]
    Failed {
        /// The update.
        update_id: String,
        /// What the handler said.
        message: String,
    },
    /// It was accepted and is not done yet; [`UpdateHandle::result`](super::UpdateHandle::result) goes on waiting.
    #[error("the update {update_id} was accepted and is not done yet")]
    TimedOut {
        /// The update.
        update_id: String,
    },
    /// Something else.
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
