//! What is known about a schedule (control-plane.md §14.3 and §14.4), as plain data.

use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{OverlapPolicy, ScheduleSpec};

/// Everything about one schedule.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ScheduleDescription {
    /// The schedule's id.
    pub schedule_id: String,
    /// `active`, `paused` or `deleted`.
    pub status: String,
    /// Whether it rests.
    #[serde(default)]
    pub paused: bool,
    /// A note for people.
    pub note: Option<String>,
    /// When it acts.
    pub spec: ScheduleSpec,
    /// What it starts, as the server tells it.
    pub action: Value,
    /// What happens when the last workflow still runs.
    pub overlap_policy: OverlapPolicy,
    /// How much later than due, at most.
    pub jitter_seconds: Option<u64>,
    /// How many workflows it starts in all.
    pub max_runs: Option<u64>,
    /// How many are left of them.
    pub remaining_actions: Option<u64>,
    /// How often it acted.
    #[serde(default)]
    pub fires_count: u64,
    /// How often the workflow could not be started. Not in lists.
    #[serde(default)]
    pub failures_count: u64,
    /// When it acts next.
    pub next_fire_at: Option<Timestamp>,
    /// When it last acted.
    pub last_fired_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When it was last changed.
    pub updated_at: Option<Timestamp>,
}

/// What came of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TriggerOutcome {
    /// A workflow was started.
    Triggered {
        /// Its id.
        workflow_id: String,
        /// Its first run.
        run_id: Option<String>,
    },
    /// The start waits for the end of another.
    Buffered {
        /// How many wait.
        buffer_depth: Option<u64>,
    },
    /// Too many wait already.
    BufferFull {
        /// Why, as a stable word.
        reason: Option<String>,
    },
    /// Nothing was started.
    Skipped {
        /// Why, as a stable word.
        reason: Option<String>,
    },
}

/// What came of one moment of a backfill.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct BackfillResult {
    /// The moment.
    pub fire_time: Timestamp,
    /// `started`, `skipped` or what else became of it.
    pub outcome: String,
    /// The workflow that was started.
    pub workflow_id: Option<String>,
    /// Its first run.
    pub run_id: Option<String>,
    /// Why none was.
    pub reason: Option<String>,
}
