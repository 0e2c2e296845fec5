//! Activities: one call, its attempts, its end (engine.md §5.3).

use serde::Serialize;
use serde_json::{Map, Value};

use super::{GroupKeys, LimitBreach, LocalKeys};
use crate::id::{ActivityAttemptId, ActivityExecutionId, CommandId, FailureId, TaskId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The keys every event of one activity call repeats.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityCall {
    pub activity_execution_id: ActivityExecutionId,
    pub activity_type: String,
    pub activity_class: String,
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<crate::workflow_command::CancellationPolicy>,
    #[serde(flatten)]
    pub group: GroupKeys,
    /// Set for an activity that ran inside the workflow's worker.
    #[serde(flatten)]
    pub local: Option<Box<LocalKeys>>,
}

/// The call and its snapshot, which replay compares with the code.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityScheduled {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity: ActivitySnapshot,
}

/// The activity as the command asked for it: no server default is merged in.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivitySnapshot {
    pub id: ActivityExecutionId,
    pub idempotency_key: ActivityExecutionId,
    pub sequence: u64,
    #[serde(rename = "type")]
    pub activity_type: String,
    pub class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<&'static str>,
    pub local_activity: bool,
    pub status: &'static str,
    pub attempt_count: u64,
    pub payload_codec: &'static str,
    /// A local activity has none: the Rust client compares it with its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    /// As the author wrote it: no queue and no default is filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_session: Option<Box<crate::worker_session::WorkerSessionOptions>>,
    pub arguments: Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// One attempt began.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityStarted {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub lease_expires_at: Timestamp,
    /// The worker's own name for the attempt, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
}

/// The worker reported progress.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityHeartbeatRecorded {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub heartbeat_at: Timestamp,
    /// Null when the heartbeat was reported afterwards.
    pub lease_expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

/// Another attempt will follow.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityRetryScheduled {
    #[serde(flatten)]
    pub call: ActivityCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    /// Absent, with the two that follow, when the worker kept the back-off itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of_task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_available_at: Option<Timestamp>,
    pub retry_backoff_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_attempt_id: Option<ActivityAttemptId>,
    pub retry_after_attempt: u64,
    pub retry_reason: &'static str,
    pub max_attempts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
}

/// The activity's result.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityCompleted {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub result: Payload,
    pub payload_codec: &'static str,
}

/// The activity's final failure, in the shape every language reads.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityFailed {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub non_retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub exception: Map<String, Value>,
    #[serde(flatten)]
    pub limit: Option<LimitBreach>,
}

/// A deadline of the activity passed for good.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityTimedOut {
    #[serde(flatten)]
    pub call: ActivityCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    pub attempt_number: u64,
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub timeout_kind: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_deadline_at: Option<Timestamp>,
}

/// The activity ended with its run.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityCancelled {
    #[serde(flatten)]
    pub call: ActivityCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_number: Option<u64>,
    pub cancelled_at: Timestamp,
}
