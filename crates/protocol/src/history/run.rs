//! Events of the run itself: its start, its close, and operator commands.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ChildRetry, ChildRetryPolicy, ChildTimeoutPolicy};
use crate::id::{ChildCallId, CommandId, FailureId, RunId, TaskId, WorkflowId};
use crate::payload::Payload;
use crate::sequence::CommandSeq;
use crate::time::Timestamp;

/// The payload of `StartAccepted` and `StartRejected`.
#[derive(Clone, Debug, Serialize)]
pub struct StartDecided {
    /// The external command that caused the event.
    pub workflow_command_id: CommandId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The registered name of the workflow code.
    pub workflow_type: String,
    /// A key of the application that lists can search for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    /// `started_new`, `returned_existing_active` or `rejected_duplicate`.
    pub outcome: &'static str,
    /// Why the start was refused; only in `StartRejected`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection_reason: Option<&'static str>,
}

/// The run's first event, or its second after `StartAccepted`.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowStarted {
    /// The registered name of the workflow code.
    pub workflow_type: String,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The start command; absent in child and continued runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    /// A key of the application that lists can search for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    /// The time limit of the whole chain of runs, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_timeout_seconds: Option<u64>,
    /// The time limit of one run, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    /// When the chain of runs times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    /// When this run times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
    /// The run that this run continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_from_run_id: Option<RunId>,
    /// The build that the run is pinned to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// Set in runs of a child workflow.
    #[serde(flatten)]
    pub parent: Option<ParentKeys>,
    /// Set in a retry of a child workflow.
    #[serde(flatten)]
    pub retry: Option<ChildRetry>,
    /// The signals, queries and updates that the worker declared for this workflow type.
    #[serde(flatten)]
    pub declared: Map<String, Value>,
    /// The queue of the workflow tasks.
    pub task_queue: String,
}

/// The call that a child run belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct ParentKeys {
    /// The workflow id of the parent.
    pub parent_workflow_instance_id: WorkflowId,
    /// The run of the parent that made the call.
    pub parent_workflow_run_id: RunId,
    /// The command sequence of the call in the parent.
    pub parent_sequence: CommandSeq,
    /// Equal to `child_call_id`.
    pub workflow_link_id: ChildCallId,
    /// Identifies the child call; the same for retries and continued runs of the child.
    pub child_call_id: ChildCallId,
    /// The retry policy of the call, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    /// The time limits of the call, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
}

/// The workflow's result.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowCompleted {
    /// The value that the workflow returned.
    pub output: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
}

/// Why the workflow failed.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowFailed {
    /// Identifies this failure; minted when it is recorded.
    pub failure_id: FailureId,
    /// What failed: always `workflow_run`.
    pub source_kind: &'static str,
    /// The run that failed.
    pub source_id: RunId,
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
    /// The command sequence of the step that failed, if the worker named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_step_sequence: Option<CommandSeq>,
    /// The activity that failed, if the worker named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_activity_execution_id: Option<String>,
    /// Set if a structural limit caused the failure.
    #[serde(flatten)]
    pub limit: Option<LimitBreach>,
}

/// Which structural limit was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitBreach {
    /// The limit's name.
    #[serde(rename = "structural_limit_kind")]
    pub kind: &'static str,
    /// The value that broke the limit.
    #[serde(rename = "structural_limit_value")]
    pub value: u64,
    /// The configured limit.
    #[serde(rename = "structural_limit_configured")]
    pub configured: u64,
}

/// Which deadline of the run passed.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowTimedOut {
    /// Identifies this failure; minted when it is recorded.
    pub failure_id: FailureId,
    /// `execution_timeout` or `run_timeout`.
    pub timeout_kind: &'static str,
    /// Always `timeout`.
    pub failure_category: &'static str,
    /// The error text.
    pub message: String,
    /// When the chain of runs times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    /// When this run times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
}

/// The run that continues the work.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowContinuedAsNew {
    /// The command sequence of the call that ended the run.
    pub sequence: CommandSeq,
    /// The next run.
    pub continued_to_run_id: RunId,
    /// The number of the next run, from 2.
    pub continued_to_run_number: u64,
    /// The link between the two runs.
    pub workflow_link_id: CommandId,
    /// Always `continued`.
    pub closed_reason: &'static str,
}

/// The payload of `CancelRequested` and `TerminateRequested`: an accepted command that closes the run.
#[derive(Clone, Debug, Serialize)]
pub struct CloseRequested {
    /// The command itself.
    pub workflow_command_id: CommandId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// `cancel` or `terminate`.
    pub command_type: &'static str,
    /// The text that the caller gave, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An accepted repair of an open run.
#[derive(Clone, Debug, Serialize)]
pub struct RepairRequested {
    /// The command itself.
    pub workflow_command_id: CommandId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// Always `repair`.
    pub command_type: &'static str,
    /// Always `repair_dispatched`: a repair that finds nothing to do writes no event.
    pub outcome: &'static str,
    /// The state of the run when the command arrived.
    pub liveness_state: &'static str,
    /// What the run was waiting for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<&'static str>,
    /// The task that the repair made ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The kind of that task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<&'static str>,
}

/// An accepted archive command on a closed run.
#[derive(Clone, Debug, Serialize)]
pub struct ArchiveRequested {
    /// The command itself.
    pub workflow_command_id: CommandId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// Always `archive`.
    pub command_type: &'static str,
    /// Always `archived`: archiving a run twice writes no second event.
    pub outcome: &'static str,
    /// The text that the caller gave, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The record that a closed run is archived.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowArchived {
    /// The external command that caused the event.
    pub workflow_command_id: CommandId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The archive command; equal to `workflow_command_id`.
    pub archive_command_id: CommandId,
    /// The text that the caller gave, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The payload of `WorkflowCancelled` and `WorkflowTerminated`: the run closed because of a command.
#[derive(Clone, Debug, Serialize)]
pub struct RunStopped {
    /// The cancel or terminate command.
    pub workflow_command_id: CommandId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// Identifies this failure; minted when it is recorded.
    pub failure_id: FailureId,
    /// `cancelled` or `terminated`.
    pub failure_category: &'static str,
    /// Why the run closed, as a word.
    pub closed_reason: &'static str,
    /// The error text.
    pub message: String,
    /// The text that the caller gave, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
