//! The description of a run.

use std::collections::BTreeMap;

use longhaul_protocol::{Payload, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::WorkflowFailure;
use crate::payload;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// No worker has taken its first task yet.
    Pending,
    /// A worker is processing its workflow task.
    Running,
    /// It waits for an activity, a timer, a message or something else.
    Waiting,
    /// It returned a result, or continued as new.
    Completed,
    /// It failed or timed out.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was terminated.
    Terminated,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// Returns whether the run is closed.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Terminated
        )
    }
}

/// The description of a run.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkflowDescription {
    /// The workflow id.
    pub workflow_id: String,
    /// The run id.
    pub run_id: String,
    /// The workflow type.
    pub workflow_type: String,
    /// The namespace.
    pub namespace: String,
    /// The business key.
    pub business_key: Option<String>,
    /// The status.
    pub status: Status,
    /// How the run ended, such as `completed`, `continued` or `timed_out`.
    pub closed_reason: Option<String>,
    /// The reason of the cancellation or termination, or the name of the timeout.
    pub reason: Option<String>,
    /// The task queue.
    pub task_queue: String,
    /// The number of the run in the workflow, from 1.
    pub run_number: u64,
    /// The number of runs of the workflow.
    pub run_count: u64,
    /// Whether this is the newest run.
    pub is_current_run: bool,
    /// The build to which the run is pinned.
    pub compatibility: Option<String>,
    /// The timeout of all runs together.
    pub execution_timeout_seconds: Option<u64>,
    /// The timeout of each run.
    pub run_timeout_seconds: Option<u64>,
    /// The deadline of all runs together.
    pub execution_deadline_at: Option<Timestamp>,
    /// The deadline of this run.
    pub run_deadline_at: Option<Timestamp>,
    /// The start time.
    pub started_at: Option<Timestamp>,
    /// The close time.
    pub closed_at: Option<Timestamp>,
    /// The time of its last progress.
    pub last_progress_at: Option<Timestamp>,
    /// The number of its newest event, if the server returns it.
    pub last_history_sequence: Option<u64>,
    /// The kind of its current wait.
    pub wait_kind: Option<String>,
    /// A text about its current wait.
    pub wait_reason: Option<String>,
    /// The memo.
    #[serde(default)]
    pub memo: Map<String, Value>,
    /// The search attributes.
    #[serde(default)]
    pub search_attributes: Map<String, Value>,
    /// The failure, if it failed.
    pub failure: Option<WorkflowFailure>,
    /// The updates among its newest commands.
    #[serde(default)]
    pub updates: Vec<UpdateRecord>,
    input_envelope: Option<Payload>,
    output_envelope: Option<Payload>,
}

impl WorkflowDescription {
    /// Returns the arguments, as a tuple.
    ///
    /// # Errors
    /// [`payload::Error`] if the arguments are not an `A`.
    pub fn arguments<A: DeserializeOwned>(&self) -> Result<A, payload::Error> {
        let none = Payload::empty_list();
        payload::from_arguments(self.input_envelope.as_ref().unwrap_or(&none))
    }

    /// Returns the result, if there is one.
    ///
    /// # Errors
    /// [`payload::Error`] if the result is not an `R`.
    pub fn output<R: DeserializeOwned>(&self) -> Result<Option<R>, payload::Error> {
        let output = self.output_envelope.as_ref();
        output.map(payload::from_payload).transpose()
    }

    pub(super) fn output_payload(&self) -> Payload {
        self.output_envelope.clone().unwrap_or_else(Payload::null)
    }
}

/// An update of a run.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct UpdateRecord {
    /// The update id.
    pub id: String,
    /// The name of the update.
    pub update_name: String,
    /// `accepted`, `rejected`, `completed` or `failed`.
    pub status: String,
    /// The request id.
    pub request_id: Option<String>,
    /// The failure message of its handler.
    pub failure_message: Option<String>,
    /// The errors of its validation, by field.
    #[serde(default)]
    pub validation_errors: BTreeMap<String, Vec<String>>,
    /// The time when it was accepted.
    pub accepted_at: Option<Timestamp>,
    /// The time when it completed.
    pub closed_at: Option<Timestamp>,
}

/// A summary of a run.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkflowRun {
    /// The run id.
    pub run_id: String,
    /// The number of the run, from 1.
    pub run_number: u64,
    /// The workflow type of this run.
    pub workflow_type: String,
    /// The status.
    pub status: Status,
    /// Whether this is the newest run.
    pub is_current_run: bool,
    /// The task queue.
    pub task_queue: Option<String>,
    /// The start time.
    pub started_at: Option<Timestamp>,
    /// The close time.
    pub closed_at: Option<Timestamp>,
}
