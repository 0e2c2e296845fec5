//! How a run begins and ends, and what operators ask of it (engine.md §5.2).

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ChildRetry, ChildRetryPolicy, ChildTimeoutPolicy};
use crate::id::{ChildCallId, CommandId, FailureId, RunId, TaskId, WorkflowId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// `StartAccepted`, `StartRejected`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct StartDecided {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub workflow_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection_reason: Option<&'static str>,
}

/// The run's first event, or its second after `StartAccepted`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowStarted {
    pub workflow_type: String,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_from_run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    #[serde(flatten)]
    pub parent: Option<ParentKeys>,
    #[serde(flatten)]
    pub retry: Option<ChildRetry>,
    #[serde(flatten)]
    pub declared: Map<String, Value>,
    pub task_queue: String,
}

/// Which call of which run a child belongs to.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ParentKeys {
    pub parent_workflow_instance_id: WorkflowId,
    pub parent_workflow_run_id: RunId,
    pub parent_sequence: u64,
    pub workflow_link_id: ChildCallId,
    pub child_call_id: ChildCallId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
}

/// The workflow's result.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowCompleted {
    pub output: Payload,
    pub payload_codec: &'static str,
}

/// Why the workflow failed.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowFailed {
    pub failure_id: FailureId,
    pub source_kind: &'static str,
    pub source_id: RunId,
    pub failure_category: &'static str,
    pub non_retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    pub message: String,
    pub exception: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_step_sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_activity_execution_id: Option<String>,
    #[serde(flatten)]
    pub limit: Option<LimitBreach>,
}

/// Which structural limit was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitBreach {
    /// The limit's name.
    #[serde(rename = "structural_limit_kind")]
    pub kind: &'static str,
    /// What was asked for.
    #[serde(rename = "structural_limit_value")]
    pub value: u64,
    /// What is allowed.
    #[serde(rename = "structural_limit_configured")]
    pub configured: u64,
}

/// A deadline of the run passed.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowTimedOut {
    pub failure_id: FailureId,
    pub timeout_kind: &'static str,
    pub failure_category: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
}

/// Where the work goes on.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowContinuedAsNew {
    pub sequence: u64,
    pub continued_to_run_id: RunId,
    pub continued_to_run_number: u64,
    pub workflow_link_id: CommandId,
    pub closed_reason: &'static str,
}

/// `CancelRequested`, `TerminateRequested`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct CloseRequested {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub command_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A second look at an open run.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct RepairRequested {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub command_type: &'static str,
    pub outcome: &'static str,
    pub liveness_state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<&'static str>,
}

/// A closed run is to be kept.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ArchiveRequested {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub command_type: &'static str,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// It is kept from now on.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowArchived {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub archive_command_id: CommandId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `WorkflowCancelled`, `WorkflowTerminated`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct RunStopped {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub closed_reason: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
