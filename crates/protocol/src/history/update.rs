//! Updates (engine.md §5.7). Both replayers read the arguments from `UpdateAccepted`; state changes follow `UpdateApplied`.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::id::{CommandId, FailureId, RunId, UpdateId, WorkflowId};
use crate::payload::Payload;
use crate::workflow_command::FieldErrors;

/// The keys every event of one update repeats.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct UpdateCall {
    pub workflow_command_id: CommandId,
    pub update_id: UpdateId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub update_name: String,
}

/// The update was admitted.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct UpdateAccepted {
    #[serde(flatten)]
    pub call: UpdateCall,
    pub arguments: Payload,
    pub payload_codec: &'static str,
    pub ordering_state: &'static str,
}

/// The update was refused while the run was open.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct UpdateRejected {
    #[serde(flatten)]
    pub call: UpdateCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Payload>,
    pub payload_codec: &'static str,
    #[serde(skip_serializing_if = "FieldErrors::is_empty")]
    pub validation_errors: FieldErrors,
    pub rejection_reason: String,
}

/// The handler ran and its changes count.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct UpdateApplied {
    #[serde(flatten)]
    pub call: UpdateCall,
    pub arguments: Payload,
    pub payload_codec: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// The update is over: with a result, or with a failure.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct UpdateCompleted {
    #[serde(flatten)]
    pub call: UpdateCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    pub payload_codec: &'static str,
    #[serde(flatten)]
    pub failure: Option<UpdateFailure>,
}

/// Why an update failed.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct UpdateFailure {
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub non_retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    pub message: String,
    pub exception: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_reason: Option<&'static str>,
}
