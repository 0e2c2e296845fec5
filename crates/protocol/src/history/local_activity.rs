//! What the events of a local activity carry beside the keys of every activity (local-activities.md §5). The snapshot of later
//! events repeats neither arguments nor result: a call with many attempts would write them many times.

use serde::Serialize;
use serde_json::Value;

use crate::id::{ActivityAttemptId, ActivityExecutionId, TaskId, WorkerId};
use crate::time::Timestamp;

/// The one word for activities that run inside the workflow's worker.
pub const EXECUTION_MODE_LOCAL: &str = "local";

/// The marker, the task under whose lease it happened, and how call and attempt stood.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; local-activities.md §5 explains each"
)]
pub struct LocalKeys {
    pub execution_mode: &'static str,
    pub local_activity: bool,
    pub workflow_task_id: TaskId,
    /// Absent on `ActivityScheduled`, which has the whole snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<LocalActivitySnapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt: Option<LocalAttemptSnapshot>,
    /// How an interrupted attempt was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_recovery: Option<Value>,
}

/// The call as it stood.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct LocalActivitySnapshot {
    pub id: ActivityExecutionId,
    pub idempotency_key: ActivityExecutionId,
    pub sequence: u64,
    #[serde(rename = "type")]
    pub activity_type: String,
    pub class: String,
    pub execution_mode: &'static str,
    pub local_activity: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<ActivityAttemptId>,
    pub status: &'static str,
    pub attempt_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

/// The attempt as it stood.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct LocalAttemptSnapshot {
    pub id: ActivityAttemptId,
    pub activity_execution_id: ActivityExecutionId,
    pub task_id: TaskId,
    pub attempt_number: u64,
    pub status: &'static str,
    pub lease_owner: WorkerId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
    pub started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}
