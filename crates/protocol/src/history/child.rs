//! Child workflows as their parent's history shows them (engine.md §5.9).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::GroupKeys;
use crate::id::{ChildCallId, FailureId, RunId, WorkflowId};
use crate::payload::Payload;
use crate::time::Timestamp;
use crate::workflow_command::{CancellationPolicy, ParentClosePolicy};

/// The keys every event of one child call repeats. The type is always the one that was scheduled: both replayers compare
/// it with the code, even after the child continued as another type.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildCall {
    pub sequence: u64,
    pub child_call_id: ChildCallId,
    pub workflow_link_id: ChildCallId,
    pub child_workflow_instance_id: WorkflowId,
    pub child_workflow_run_id: RunId,
    pub child_workflow_type: String,
    pub parent_close_policy: ParentClosePolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<CancellationPolicy>,
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// A child's retry policy as it is shown in history and kept with the child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildRetryPolicy {
    pub snapshot_version: u8,
    /// None means without limit.
    pub max_attempts: Option<u64>,
    pub backoff_seconds: Vec<u64>,
    pub non_retryable_error_types: Vec<String>,
}

/// A child's timeouts as the command gave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildTimeoutPolicy {
    pub snapshot_version: u8,
    pub execution_timeout_seconds: Option<u64>,
    pub run_timeout_seconds: Option<u64>,
}

/// The parent asked for a child.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildWorkflowScheduled {
    #[serde(flatten)]
    pub call: ChildCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
}

/// A run of the child began: the first, a continued one, or a retry.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildRunStarted {
    #[serde(flatten)]
    pub call: ChildCall,
    pub child_run_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
    #[serde(flatten)]
    pub timing: ChildTiming,
    #[serde(flatten)]
    pub retry: Option<ChildRetry>,
}

/// Time limits of one run of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildTiming {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
}

/// What makes a run of a child a retry. The child's own `WorkflowStarted` carries the same keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildRetry {
    pub retry_attempt: u64,
    pub retry_of_child_workflow_run_id: RunId,
    pub retry_backoff_seconds: u64,
}

/// `ChildRunCompleted`, `ChildRunFailed`, `ChildRunCancelled`, `ChildRunTerminated`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildRunClosed {
    #[serde(flatten)]
    pub call: ChildCall,
    pub child_run_number: u64,
    pub child_status: &'static str,
    pub closed_reason: &'static str,
    pub closed_at: Timestamp,
    #[serde(flatten)]
    pub result: Option<ChildResult>,
    #[serde(flatten)]
    pub failure: Option<ChildFailure>,
}

/// A child's result, under both names that readers look for.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildResult {
    pub result: Payload,
    pub output: Payload,
    pub payload_codec: &'static str,
}

/// How a child failed or was stopped.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ChildFailure {
    pub failure_id: FailureId,
    pub failure_category: String,
    pub non_retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub exception: Map<String, Value>,
}

/// `ParentClosePolicyApplied`, `ParentClosePolicyFailed`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ParentClosePolicyDone {
    pub child_instance_id: WorkflowId,
    pub child_run_id: RunId,
    pub policy: ParentClosePolicy,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
