//! The description of a schedule.

use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{OverlapPolicy, ScheduleSpec};

/// The description of a schedule.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ScheduleDescription {
    /// The schedule id.
    pub schedule_id: String,
    /// `active`, `paused` or `deleted`.
    pub status: String,
    /// Whether the schedule is paused.
    #[serde(default)]
    pub paused: bool,
    /// The note.
    pub note: Option<String>,
    /// The times.
    pub spec: ScheduleSpec,
    /// The action, as the server returns it.
    pub action: Value,
    /// The overlap policy.
    pub overlap_policy: OverlapPolicy,
    /// The largest random delay of a start.
    pub jitter_seconds: Option<u64>,
    /// The total number of workflows.
    pub max_runs: Option<u64>,
    /// The number of remaining workflows.
    pub remaining_actions: Option<u64>,
    /// The number of starts.
    #[serde(default)]
    pub fires_count: u64,
    /// The number of failed starts. Not in lists.
    #[serde(default)]
    pub failures_count: u64,
    /// The next time.
    pub next_fire_at: Option<Timestamp>,
    /// The last time.
    pub last_fired_at: Option<Timestamp>,
    /// The time of its creation.
    pub created_at: Option<Timestamp>,
    /// The time of its last change.
    pub updated_at: Option<Timestamp>,
}

/// The outcome of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TriggerOutcome {
    /// A workflow was started.
    Triggered {
        /// The workflow id.
        workflow_id: String,
        /// The run id.
        run_id: Option<String>,
    },
    /// The start waits until another workflow closes.
    Buffered {
        /// The number of waiting starts.
        buffer_depth: Option<u64>,
    },
    /// There are too many waiting starts.
    BufferFull {
        /// The machine-readable reason.
        reason: Option<String>,
    },
    /// No workflow was started.
    Skipped {
        /// The machine-readable reason.
        reason: Option<String>,
    },
}

/// The outcome of one time of a backfill.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct BackfillResult {
    /// The time.
    pub fire_time: Timestamp,
    /// The outcome, such as `started` or `skipped`.
    pub outcome: String,
    /// The id of the started workflow.
    pub workflow_id: Option<String>,
    /// The run id.
    pub run_id: Option<String>,
    /// Why no workflow was started.
    pub reason: Option<String>,
}
