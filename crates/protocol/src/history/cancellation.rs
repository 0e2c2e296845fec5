//! Cooperative cancellation (engine.md §5.11): a request, and its delivery at one call of the workflow.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{CommandId, RunId, WorkflowId};
use crate::time::Timestamp;

/// The workflow is asked to clean up and end.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct CooperativeCancellationRequested {
    pub workflow_command_id: CommandId,
    pub workflow_run_id: RunId,
    pub workflow_instance_id: WorkflowId,
    pub cleanup_deadline_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Value>,
}

/// The request reached the workflow's code at one call.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct CooperativeCancellationDelivered {
    pub workflow_command_id: CommandId,
    pub workflow_run_id: RunId,
    #[serde(flatten)]
    pub place: DeliveryPlace,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Value>,
}

/// The call at which a cancellation is delivered, as the worker names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct DeliveryPlace {
    pub sequence: u64,
    pub call_kind: String,
    pub sequence_span: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_sequence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_sequence_span: Option<u64>,
}
