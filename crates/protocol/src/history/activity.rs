//! Events of activities: the call, its attempts, its end.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{GroupKeys, LimitBreach, LocalKeys};
use crate::id::{ActivityAttemptId, ActivityExecutionId, CommandId, FailureId, TaskId};
use crate::payload::Payload;
use crate::sequence::CommandSeq;
use crate::time::Timestamp;

/// The keys every event of one activity call repeats.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityCall {
    /// Identifies the logical call; the same for every attempt.
    pub activity_execution_id: ActivityExecutionId,
    /// The registered name of the activity code.
    pub activity_type: String,
    /// Equal to the type; other servers put the class of the code here.
    pub activity_class: String,
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// What a delivered cancellation does to the call; absent means the default of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<crate::workflow_command::CancellationPolicy>,
    /// The parallel group of the call, if it has one.
    #[serde(flatten)]
    pub group: GroupKeys,
    /// Set for a local activity.
    #[serde(flatten)]
    pub local: Option<Box<LocalKeys>>,
}

/// A scheduled activity. Replay compares its snapshot with the workflow code.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityScheduled {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The call as the command described it.
    pub activity: ActivitySnapshot,
}

/// The activity as the command described it. No server default is added, because replay compares this with the command.
#[derive(Clone, Debug, Serialize)]
pub struct ActivitySnapshot {
    /// The activity execution id.
    pub id: ActivityExecutionId,
    /// The key that activity code may pass on to other systems; equal to the execution id.
    pub idempotency_key: ActivityExecutionId,
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The registered name of the activity code.
    #[serde(rename = "type")]
    pub activity_type: String,
    /// Equal to the type.
    pub class: String,
    /// `local` for a local activity, absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<&'static str>,
    /// Whether the activity is a local one.
    pub local_activity: bool,
    /// The state when scheduled: `pending`.
    pub status: &'static str,
    /// Attempts when scheduled: 0.
    pub attempt_count: u64,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// A local activity has none: the Rust client compares it with its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The retry policy of the call, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    /// The worker session as the author wrote it, without defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_session: Option<Box<crate::worker_session::WorkerSessionOptions>>,
    /// The argument list, as one payload.
    pub arguments: Payload,
    /// When the activity was scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// A leased attempt.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityStarted {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The attempt that the event is about.
    pub activity_attempt_id: ActivityAttemptId,
    /// The number of the attempt, from 1.
    pub attempt_number: u64,
    /// When the lease of the attempt ends unless a heartbeat renews it.
    pub lease_expires_at: Timestamp,
    /// The name that the worker gave the attempt, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
}

/// An accepted heartbeat.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityHeartbeatRecorded {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The attempt that the event is about.
    pub activity_attempt_id: ActivityAttemptId,
    /// The number of the attempt, from 1.
    pub attempt_number: u64,
    /// When the heartbeat arrived.
    pub heartbeat_at: Timestamp,
    /// When the renewed lease ends; null if the heartbeat was reported afterwards.
    pub lease_expires_at: Option<Timestamp>,
    /// The progress that the worker sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

/// An attempt that ended without success, and the attempt that will follow.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityRetryScheduled {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The attempt that failed or timed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    /// The task of the next attempt. This key and the next two are absent if the worker waits and retries by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_task_id: Option<TaskId>,
    /// The activity task of the attempt that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of_task_id: Option<TaskId>,
    /// When the next attempt may be leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_available_at: Option<Timestamp>,
    /// The pause before the next attempt.
    pub retry_backoff_seconds: u64,
    /// The attempt that is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_attempt_id: Option<ActivityAttemptId>,
    /// The number of the attempt that is retried.
    pub retry_after_attempt: u64,
    /// Why another attempt follows: `failure`, `timeout` or `cold_replay`.
    pub retry_reason: &'static str,
    /// The allowed number of attempts; null means without limit.
    pub max_attempts: Option<u64>,
    /// The retry policy of the call, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    /// Which time limit ran out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_kind: Option<&'static str>,
    /// The portable name of the error; retry policies match it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    /// The class of the error in the language that raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    /// The error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The numeric or textual code of the error, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
}

/// The result of the activity.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityCompleted {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The attempt that succeeded.
    pub activity_attempt_id: ActivityAttemptId,
    /// The number of the attempt, from 1.
    pub attempt_number: u64,
    /// The value that the activity returned.
    pub result: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
}

/// The final failure of the activity, in the shape that every client language reads.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityFailed {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The last attempt.
    pub activity_attempt_id: ActivityAttemptId,
    /// The number of the attempt, from 1.
    pub attempt_number: u64,
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
    /// The numeric or textual code of the error, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
    /// The whole error as a JSON object, as the worker sent it.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub exception: Map<String, Value>,
    /// Set if a structural limit caused the failure.
    #[serde(flatten)]
    pub limit: Option<LimitBreach>,
}

/// A deadline of the activity passed and no attempt will follow.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityTimedOut {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The last attempt; absent if none began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    /// The number of the last attempt; 0 if none began.
    pub attempt_number: u64,
    /// Identifies this failure; minted when it is recorded.
    pub failure_id: FailureId,
    /// The kind of failure as a word, such as `application`, `timeout` or `structural_limit`.
    pub failure_category: &'static str,
    /// `schedule_to_start`, `start_to_close`, `schedule_to_close` or `heartbeat`.
    pub timeout_kind: &'static str,
    /// The error text.
    pub message: String,
    /// The class of the error in the language that raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    /// The latest start of the attempt, if limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_deadline_at: Option<Timestamp>,
    /// The latest end of the attempt, if limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_deadline_at: Option<Timestamp>,
    /// The latest end of the call, if limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    /// When the next heartbeat was due, if limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_deadline_at: Option<Timestamp>,
}

/// The activity was cancelled, with its run or alone.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityCancelled {
    /// The keys that every event of the call repeats.
    #[serde(flatten)]
    pub call: ActivityCall,
    /// The cancel or terminate command, if one caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    /// The attempt that was running, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    /// The number of that attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_number: Option<u64>,
    /// When the call was cancelled.
    pub cancelled_at: Timestamp,
}
