//! Events of cooperative cancellation: a request, and its delivery at one call of the workflow.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{CommandId, RunId, WorkflowId};
use crate::sequence::CommandSeq;
use crate::time::Timestamp;

/// An accepted request that the workflow clean up and end.
#[derive(Clone, Debug, Serialize)]
pub struct CooperativeCancellationRequested {
    /// The external command that caused the event.
    pub workflow_command_id: CommandId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// When the run is cancelled if its cleanup has not ended.
    pub cleanup_deadline_at: Timestamp,
    /// The text that the caller gave, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The request as the worker sees it: scope, source and ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Value>,
}

/// The request reached the workflow's code at one call.
#[derive(Clone, Debug, Serialize)]
pub struct CooperativeCancellationDelivered {
    /// The cancellation request that was delivered.
    pub workflow_command_id: CommandId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The call at which the workflow code saw the request.
    #[serde(flatten)]
    pub place: DeliveryPlace,
    /// The request as the worker sees it: scope, source and ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Value>,
}

/// The call at which a cancellation is delivered, as the worker names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryPlace {
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The kind of call, such as `activity` or `timer`.
    pub call_kind: String,
    /// How many command sequences the call covers.
    pub sequence_span: u64,
    /// The first command sequence of the interrupted operation inside a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_sequence: Option<CommandSeq>,
    /// How many command sequences that operation covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_sequence_span: Option<u64>,
}
