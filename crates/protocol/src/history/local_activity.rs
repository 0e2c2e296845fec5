//! The keys that only events of local activities have. The snapshot of later events repeats neither arguments nor result: a
//! call with many attempts would write them many times.

use serde::Serialize;
use serde_json::Value;

use crate::id::{ActivityAttemptId, ActivityExecutionId, TaskId, WorkerId};
use crate::sequence::CommandSeq;
use crate::time::Timestamp;

/// The execution mode of activities that run inside the worker of the workflow.
pub const EXECUTION_MODE_LOCAL: &str = "local";

/// Marks a local activity, names the workflow task it ran under, and holds snapshots of the call and the attempt.
#[derive(Clone, Debug, Serialize)]
pub struct LocalKeys {
    /// Always `local`.
    pub execution_mode: &'static str,
    /// Always true.
    pub local_activity: bool,
    /// The workflow task under whose lease the activity ran.
    pub workflow_task_id: TaskId,
    /// The call at the time of the event. Absent on `ActivityScheduled`, which has the whole snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<LocalActivitySnapshot>,
    /// The attempt at the time of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt: Option<LocalAttemptSnapshot>,
    /// How the server resolved an attempt whose worker was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_recovery: Option<Value>,
}

/// A local activity call at the time of an event.
#[derive(Clone, Debug, Serialize)]
pub struct LocalActivitySnapshot {
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
    /// Always `local`.
    pub execution_mode: &'static str,
    /// Always true.
    pub local_activity: bool,
    /// The newest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<ActivityAttemptId>,
    /// The state at the time of the event.
    pub status: &'static str,
    /// How many attempts have begun.
    pub attempt_count: u64,
    /// When the newest heartbeat arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// When it was scheduled.
    pub created_at: Timestamp,
    /// When the newest attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

/// An attempt of a local activity at the time of an event.
#[derive(Clone, Debug, Serialize)]
pub struct LocalAttemptSnapshot {
    /// The attempt id.
    pub id: ActivityAttemptId,
    /// The call that the attempt belongs to.
    pub activity_execution_id: ActivityExecutionId,
    /// The workflow task under whose lease the attempt ran.
    pub task_id: TaskId,
    /// The number of the attempt, from 1.
    pub attempt_number: u64,
    /// The state at the time of the event.
    pub status: &'static str,
    /// The worker that ran the attempt.
    pub lease_owner: WorkerId,
    /// The name that the worker gave the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// When the newest heartbeat arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// When the lease of the attempt ended or will end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}
