//! Events of child workflows in the history of their parent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::GroupKeys;
use crate::id::{ChildCallId, FailureId, RunId, WorkflowId};
use crate::payload::Payload;
use crate::sequence::CommandSeq;
use crate::time::Timestamp;
use crate::workflow_command::{CancellationPolicy, ParentClosePolicy};

/// The keys every event of one child call repeats. The type is always the one that was scheduled: both replayers compare
/// it with the code, even after the child continued as another type.
#[derive(Clone, Debug, Serialize)]
pub struct ChildCall {
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// Identifies the child call; the same for retries and continued runs of the child.
    pub child_call_id: ChildCallId,
    /// Equal to `child_call_id`.
    pub workflow_link_id: ChildCallId,
    /// The workflow id of the child.
    pub child_workflow_instance_id: WorkflowId,
    /// The newest run of the child.
    pub child_workflow_run_id: RunId,
    /// The workflow type that the parent scheduled.
    pub child_workflow_type: String,
    /// What happens to the child if the parent closes first.
    pub parent_close_policy: ParentClosePolicy,
    /// What a delivered cancellation does to the call; absent means the default of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<CancellationPolicy>,
    /// The parallel group of the call, if it has one.
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// A child's retry policy as it is shown in history and kept with the child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRetryPolicy {
    /// The version of this layout; always 1.
    pub snapshot_version: u8,
    /// The allowed number of runs; `None` means without limit.
    pub max_attempts: Option<u64>,
    /// Seconds to wait before each retry; the last value repeats.
    pub backoff_seconds: Vec<u64>,
    /// Error types that are never retried.
    pub non_retryable_error_types: Vec<String>,
}

/// A child's timeouts as the command gave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildTimeoutPolicy {
    /// The version of this layout; always 1.
    pub snapshot_version: u8,
    /// The time limit of the whole chain of runs, in seconds.
    pub execution_timeout_seconds: Option<u64>,
    /// The time limit of one run, in seconds.
    pub run_timeout_seconds: Option<u64>,
}

/// The parent asked for a child.
#[derive(Clone, Debug, Serialize)]
pub struct ChildWorkflowScheduled {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ChildCall,
    /// The retry policy of the call, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    /// The time limits of the call, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
}

/// A run of the child began: the first, a continued one, or a retry.
#[derive(Clone, Debug, Serialize)]
pub struct ChildRunStarted {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ChildCall,
    /// The number of the run in the chain of the child, from 1.
    pub child_run_number: u64,
    /// The retry policy of the call, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    /// The time limits of the call, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
    /// The time limits of this run.
    #[serde(flatten)]
    pub timing: ChildTiming,
    /// Set if this run is a retry of a failed one.
    #[serde(flatten)]
    pub retry: Option<ChildRetry>,
}

/// Time limits of one run of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildTiming {
    /// The time limit of the whole chain of runs, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout_seconds: Option<u64>,
    /// The time limit of one run, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    /// When the chain of runs times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    /// When this run times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
}

/// What makes a run of a child a retry. The child's own `WorkflowStarted` carries the same keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRetry {
    /// The number of the attempt, from 2.
    pub retry_attempt: u64,
    /// The run that is retried.
    pub retry_of_child_workflow_run_id: RunId,
    /// The pause between the two runs.
    pub retry_backoff_seconds: u64,
}

/// The payload of `ChildRunCompleted`, `ChildRunFailed`, `ChildRunCancelled` and `ChildRunTerminated`.
#[derive(Clone, Debug, Serialize)]
pub struct ChildRunClosed {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ChildCall,
    /// The number of the run in the chain of the child, from 1.
    pub child_run_number: u64,
    /// The status in which the child closed.
    pub child_status: &'static str,
    /// Why the child closed, as a word.
    pub closed_reason: &'static str,
    /// When the child closed.
    pub closed_at: Timestamp,
    /// Set if the child completed.
    #[serde(flatten)]
    pub result: Option<ChildResult>,
    /// Set if the child did not complete.
    #[serde(flatten)]
    pub failure: Option<ChildFailure>,
}

/// A child's result, under both names that readers look for.
#[derive(Clone, Debug, Serialize)]
pub struct ChildResult {
    /// The value that the child returned.
    pub result: Payload,
    /// The same value again.
    pub output: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
}

/// How a child failed or was stopped.
#[derive(Clone, Debug, Serialize)]
pub struct ChildFailure {
    /// Identifies this failure; minted when it is recorded.
    pub failure_id: FailureId,
    /// The kind of failure as a word, such as `application`, `timeout` or `structural_limit`.
    pub failure_category: String,
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
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub exception: Map<String, Value>,
}

/// The payload of `ParentClosePolicyApplied` and `ParentClosePolicyFailed`.
#[derive(Clone, Debug, Serialize)]
pub struct ParentClosePolicyDone {
    /// The workflow id of the child.
    pub child_instance_id: WorkflowId,
    /// The run of the child that was open.
    pub child_run_id: RunId,
    /// The policy that was applied.
    pub policy: ParentClosePolicy,
    /// The reason that the child received.
    pub reason: String,
    /// Why the policy could not be applied; only in `ParentClosePolicyFailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
