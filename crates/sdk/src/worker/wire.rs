//! The responses and tasks that a worker reads. Unknown fields are ignored: a newer server may add some.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use longhaul_protocol::describe::restore_history;
use longhaul_protocol::{Payload, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::transport::RequestError;
use crate::workflow::HistoryEvent;

/// The response to a registration.
#[derive(Debug, Deserialize)]
pub(super) struct Registered {
    pub(super) heartbeat_interval_seconds: Option<u64>,
    #[serde(default)]
    pub(super) server_capabilities: Capabilities,
}

/// The capabilities of a server that a worker uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Capabilities {
    pub(super) default_history_page_size: Option<u64>,
    pub(super) durable_local_activities: bool,
    pub(super) query_tasks: bool,
    pub(super) update_validation_tasks: bool,
    pub(super) cooperative_cancellation: serde_json::Value,
    pub(super) sticky_execution: serde_json::Value,
    pub(super) worker_sessions: serde_json::Value,
    pub(super) workflow_memo_updates: serde_json::Value,
    pub(super) local_activities: serde_json::Value,
}

impl Capabilities {
    /// Returns whether a capability is supported: it is a flag, or an object with the flag `supported`.
    pub(super) fn has(capability: &serde_json::Value) -> bool {
        capability.as_bool().unwrap_or(false) || capability["supported"].as_bool().unwrap_or(false)
    }
}

/// The response to a poll.
#[derive(Debug, Deserialize)]
pub(super) struct Polled {
    pub(super) poll_status: Option<String>,
    pub(super) task: Option<Box<RawValue>>,
    pub(super) retry_after_seconds: Option<u64>,
}

/// The field of a polled task that names its kind.
#[derive(Debug, Deserialize)]
pub(super) struct TaskKind {
    pub(super) task_kind: Option<String>,
}

/// A workflow task.
#[derive(Debug, Deserialize)]
pub(crate) struct WorkflowTask {
    pub(crate) task_id: String,
    pub(crate) workflow_id: String,
    pub(crate) run_id: String,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    pub(crate) workflow_type: String,
    pub(crate) workflow_task_attempt: u64,
    pub(crate) lease_owner: String,
    #[serde(default)]
    pub(crate) task_queue: Option<String>,
    pub(crate) payload_codec: String,
    #[serde(default)]
    pub(crate) arguments: Option<Payload>,
    #[serde(default)]
    history_events: Vec<HistoryEvent>,
    #[serde(default)]
    history_events_compressed: Option<String>,
    #[serde(default)]
    history_events_encoding: Option<String>,
    #[serde(default)]
    next_history_page_token: Option<String>,
    #[serde(default)]
    pub(crate) continue_as_new_recommended: Option<bool>,
    #[serde(default)]
    pub(crate) workflow_update_id: Option<String>,
    #[serde(default)]
    pub(crate) cancellation_request: Option<CancellationRequest>,
}

impl WorkflowTask {
    /// Takes the first page of its history.
    pub(crate) fn take_history(&mut self) -> HistoryPage {
        HistoryPage {
            history_events: std::mem::take(&mut self.history_events),
            history_events_compressed: self.history_events_compressed.take(),
            history_events_encoding: self.history_events_encoding.take(),
            next_history_page_token: self.next_history_page_token.take(),
        }
    }
}

/// A cancellation request that was not delivered to the code yet.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CancellationRequest {
    pub(crate) request_id: String,
    #[serde(default)]
    pub(crate) history_refresh_page_token: Option<String>,
}

/// A page of a history.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct HistoryPage {
    #[serde(default)]
    pub(crate) history_events: Vec<HistoryEvent>,
    #[serde(default)]
    pub(crate) history_events_compressed: Option<String>,
    #[serde(default)]
    pub(crate) history_events_encoding: Option<String>,
    #[serde(default)]
    pub(crate) next_history_page_token: Option<String>,
}

impl HistoryPage {
    /// Returns an empty page whose token points to the events after a position.
    pub(crate) fn rest_after(position: u64) -> Self {
        Self {
            next_history_page_token: Some(BASE64_STANDARD.encode(position.to_string())),
            ..Self::default()
        }
    }

    /// Takes the events, and decompresses them if needed.
    pub(crate) fn take_events(&mut self) -> Result<Vec<HistoryEvent>, RequestError> {
        let (Some(packed), Some(encoding)) = (
            self.history_events_compressed.take(),
            self.history_events_encoding.take(),
        ) else {
            return Ok(std::mem::take(&mut self.history_events));
        };
        let malformed = |problem: String| RequestError::Malformed(problem);
        let events =
            restore_history(&encoding, &packed).map_err(|error| malformed(error.to_string()))?;
        serde_json::from_slice(&events).map_err(|error| malformed(error.to_string()))
    }
}

/// A query task.
#[derive(Debug, Deserialize)]
pub(super) struct QueryTask {
    pub(super) query_task_id: String,
    pub(super) query_task_attempt: u64,
    pub(super) query_name: String,
    #[serde(default)]
    pub(super) query_arguments: Option<Payload>,
    #[serde(flatten)]
    pub(super) run: QuestionedRun,
    #[serde(default)]
    pub(super) history_events: Vec<HistoryEvent>,
}

/// An update validation task.
#[derive(Debug, Deserialize)]
pub(super) struct ValidationTask {
    pub(super) update_validation_task_id: String,
    pub(super) update_validation_attempt: u64,
    pub(super) update_name: String,
    #[serde(default)]
    pub(super) update_arguments: Option<Payload>,
    #[serde(flatten)]
    pub(super) run: QuestionedRun,
    #[serde(default)]
    pub(super) history_events: Vec<HistoryEvent>,
}

/// The run of a query or validation task.
#[derive(Debug, Deserialize)]
pub(super) struct QuestionedRun {
    pub(super) lease_owner: String,
    pub(super) workflow_id: String,
    pub(super) run_id: String,
    pub(super) workflow_type: String,
    #[serde(default)]
    pub(super) workflow_arguments: Option<Payload>,
}

/// An activity task.
#[derive(Debug, Deserialize)]
pub(super) struct ActivityTask {
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) workflow_id: Option<String>,
    #[serde(default)]
    pub(super) run_id: Option<String>,
    pub(super) activity_execution_id: String,
    pub(super) activity_attempt_id: String,
    pub(super) attempt_number: u64,
    pub(super) activity_type: String,
    pub(super) payload_codec: String,
    #[serde(default)]
    pub(super) arguments: Option<Payload>,
    #[serde(default)]
    pub(super) task_queue: Option<String>,
    pub(super) lease_owner: String,
    #[serde(default)]
    pub(super) heartbeat_timeout: Option<u64>,
    #[serde(default)]
    pub(super) deadlines: Option<Deadlines>,
    #[serde(default)]
    pub(super) worker_session: Option<SessionFacts>,
}

/// The deadlines of an attempt.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Deadlines {
    pub(super) start_to_close: Option<Timestamp>,
    pub(super) schedule_to_close: Option<Timestamp>,
}

/// A session in a task or in the response to a session request.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SessionFacts {
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) lease_owner: Option<String>,
    #[serde(default)]
    pub(super) lease_seconds: Option<u64>,
}

/// The response to a heartbeat of an activity.
#[derive(Debug, Deserialize)]
pub(super) struct HeartbeatResponse {
    pub(super) can_continue: bool,
    #[serde(default)]
    pub(super) cancel_requested: bool,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// The response to a delivery of a cancellation.
#[derive(Debug, Deserialize)]
pub(super) struct Delivered {
    pub(super) delivered: bool,
}
