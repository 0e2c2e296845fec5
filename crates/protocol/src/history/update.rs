//! Events of updates. Both published replayers read the arguments from `UpdateAccepted` and change the workflow's state at
//! `UpdateApplied`.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::id::{CommandId, FailureId, RunId, UpdateId, WorkflowId};
use crate::payload::Payload;
use crate::sequence::CommandSeq;
use crate::workflow_command::FieldErrors;

/// The keys every event of one update repeats.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateCall {
    /// The update command.
    pub workflow_command_id: CommandId,
    /// Identifies the accepted update.
    pub update_id: UpdateId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The name of the update.
    pub update_name: String,
}

/// The update was admitted.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateAccepted {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: UpdateCall,
    /// The argument list, as one payload.
    pub arguments: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// Always `ready`.
    pub ordering_state: &'static str,
}

/// The update was refused while the run was open.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateRejected {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: UpdateCall,
    /// The argument list, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Payload>,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// The offending arguments with their messages.
    #[serde(skip_serializing_if = "FieldErrors::is_empty")]
    pub validation_errors: FieldErrors,
    /// Why the update was refused.
    pub rejection_reason: String,
}

/// The handler ran and changed the state of the workflow.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateApplied {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: UpdateCall,
    /// The argument list, as one payload.
    pub arguments: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// The command sequence at which the workflow code applied the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<CommandSeq>,
}

/// The update ended, with a result or with a failure.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateCompleted {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: UpdateCall,
    /// The command sequence at which the workflow code applied the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<CommandSeq>,
    /// The value that the handler returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// Set if the update failed.
    #[serde(flatten)]
    pub failure: Option<UpdateFailure>,
}

/// Why an update failed.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateFailure {
    /// Identifies this failure; minted when it is recorded.
    pub failure_id: FailureId,
    /// The kind of failure as a word, such as `application`, `timeout` or `structural_limit`.
    pub failure_category: &'static str,
    /// Whether the failure forbids further attempts, whatever the retry policy allows.
    pub non_retryable: bool,
    /// The portable name of the error; retry policies match it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    /// The class of the error in the language that raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    /// The error text.
    pub message: String,
    /// The whole error as a JSON object, as the worker sent it.
    pub exception: Map<String, Value>,
    /// Set if the run closed before the handler ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_reason: Option<&'static str>,
}
