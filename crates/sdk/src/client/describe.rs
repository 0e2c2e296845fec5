//! What is known about a run (control-plane.md §8.3 and §8.4), as plain data.

use std::collections::BTreeMap;

use longhaul_protocol::{Payload, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::WorkflowFailure;
use crate::payload;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// No worker has taken it yet.
    Pending,
    /// A worker has it right now.
    Running,
    /// It waits for an activity, a timer, a message or something else.
    Waiting,
    /// It ended as it should, or continued as a new run.
    Completed,
    /// It failed or timed out.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was terminated.
    Terminated,
    /// Something this client does not know.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// Whether the run is over.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Terminated
        )
    }
}

/// Everything about one run.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkflowDescription {
    /// The workflow's id.
    pub workflow_id: String,
    /// This run's id.
    pub run_id: String,
    /// The workflow's type.
    pub workflow_type: String,
    /// The namespace it lives in.
    pub namespace: String,
    /// The business key it was started with.
    pub business_key: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// How it ended, such as `completed`, `continued` or `timed_out`.
    pub closed_reason: Option<String>,
    /// The text given to cancel or terminate, or which timeout it was.
    pub reason: Option<String>,
    /// Its queue.
    pub task_queue: String,
    /// Which run of the workflow this is, from 1.
    pub run_number: u64,
    /// How many runs the workflow has.
    pub run_count: u64,
    /// Whether no run came after it.
    pub is_current_run: bool,
    /// The build it is pinned to.
    pub compatibility: Option<String>,
    /// The budget of all runs together.
    pub execution_timeout_seconds: Option<u64>,
    /// The budget of each run.
    pub run_timeout_seconds: Option<u64>,
    /// When that budget is used up.
    pub execution_deadline_at: Option<Timestamp>,
    /// When this run's budget is used up.
    pub run_deadline_at: Option<Timestamp>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// When something last happened to it.
    pub last_progress_at: Option<Timestamp>,
    /// The number of its newest event, where the server tells it.
    pub last_history_sequence: Option<u64>,
    /// What sort of thing it waits for.
    pub wait_kind: Option<String>,
    /// What it waits for, for people.
    pub wait_reason: Option<String>,
    /// Notes about it, by name.
    #[serde(default)]
    pub memo: Map<String, Value>,
    /// What it can be found by.
    #[serde(default)]
    pub search_attributes: Map<String, Value>,
    /// Why it failed, if it did.
    pub failure: Option<WorkflowFailure>,
    /// The updates among the newest commands it was sent.
    #[serde(default)]
    pub updates: Vec<UpdateRecord>,
    input_envelope: Option<Payload>,
    output_envelope: Option<Payload>,
}

impl WorkflowDescription {
    /// The arguments, as a tuple.
    ///
    /// # Errors
    /// They have other types.
    pub fn arguments<A: DeserializeOwned>(&self) -> Result<A, payload::Error> {
        let none = Payload::empty_list();
        payload::from_arguments(self.input_envelope.as_ref().unwrap_or(&none))
    }

    /// The result, if there is one.
    ///
    /// # Errors
    /// It has another type.
    pub fn output<R: DeserializeOwned>(&self) -> Result<Option<R>, payload::Error> {
        let output = self.output_envelope.as_ref();
        output.map(payload::from_payload).transpose()
    }

    pub(super) fn output_payload(&self) -> Payload {
        self.output_envelope.clone().unwrap_or_else(Payload::null)
    }
}

/// One update that a run was sent.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct UpdateRecord {
    /// The update's id.
    pub id: String,
    /// Its name.
    pub update_name: String,
    /// `accepted`, `rejected`, `completed` or `failed`.
    pub status: String,
    /// The id of the request that sent it.
    pub request_id: Option<String>,
    /// What its handler failed with.
    pub failure_message: Option<String>,
    /// What its validator said, by field.
    #[serde(default)]
    pub validation_errors: BTreeMap<String, Vec<String>>,
    /// When it was accepted.
    pub accepted_at: Option<Timestamp>,
    /// When it was over.
    pub closed_at: Option<Timestamp>,
}

/// One run of a workflow, in short.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkflowRun {
    /// The run's id.
    pub run_id: String,
    /// Which run it is, from 1.
    pub run_number: u64,
    /// The workflow's type in this run.
    pub workflow_type: String,
    /// Where it stands.
    pub status: Status,
    /// Whether no run came after it.
    pub is_current_run: bool,
    /// Its queue.
    pub task_queue: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
}
