//! Every number that the rules depend on, with its default. The limits arrive with each command, so that a test or an operator can
//! choose others and the engine need not know their source.

use std::sync::Arc;

use longhaul_protocol::history::LimitBreach;

/// The queue of Conductor workflows that code starts, unless a setting names another.
pub const CONDUCTOR_QUEUE: &str = "conductor";

/// Structural limits, budgets and lease times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Base64 text of one payload. 2 MiB keeps one request with several payloads below the body limit.
    pub payload_bytes: u64,
    /// Commands in one completion: a group of 1000 members, which both SDKs allow, and the commands around it.
    pub commands_per_completion: u64,
    /// Events one completion may write.
    pub events_per_transaction: u64,
    /// Events of a run: the Rust SDK reads at most 128 pages of 500, which leaves room for the events of a close.
    pub events_per_run: u64,
    pub pending_activities: u64,
    pub pending_timers: u64,
    pub pending_signals: u64,
    /// Bytes of the arguments of signals that the workflow has not seen. A run is in memory as a whole while it is decided.
    pub pending_signal_bytes: u64,
    pub pending_children: u64,
    pub pending_updates: u64,
    /// Message streams of a workflow. Every transition rewrites their positions, and they stay with the workflow when it continues
    /// as new, so nothing else limits them.
    pub message_streams: u64,
    /// Memo at the start.
    pub memo_start_bytes: u64,
    pub search_attribute_bytes: u64,
    pub search_attribute_count: u64,
    pub search_attribute_key_bytes: u64,
    pub search_attribute_value_bytes: u64,
    /// Events, bytes and fan-out from which a worker is warned that the limit is near; zero turns a dimension off.
    pub budget_soft: Budget,
    /// Thresholds from which a worker is advised to continue as new.
    pub budget_hard: Budget,
    /// Long, because a lost lease ends a Rust worker's process.
    pub workflow_task_lease_seconds: u64,
    pub activity_lease_seconds: u64,
    /// Time for cleanup after a cancellation request that does not name one.
    pub cleanup_seconds: u64,
    /// Back-off after a failed workflow task: one second, doubled each time up to this.
    pub workflow_task_backoff_max_seconds: u64,
    /// At most one heartbeat event per attempt in this time; the newest progress is kept with the attempt.
    pub heartbeat_event_seconds: u64,
    /// Children on this queue are Conductor workflows. Not a limit, but every decision has it at hand.
    pub conductor_queue: Arc<str>,
}

impl Limits {
    /// The share of a run's events that requests from outside may not use.
    const RESERVE_DIVISOR: u64 = 10;

    /// Returns the number of events up to which a run accepts requests from outside. The rest, a tenth and with the defaults as
    /// much as the largest decision, belongs to the workflow: a flood of messages leaves it room to handle them, or to continue as
    /// new.
    pub fn events_for_requests(&self) -> u64 {
        self.events_per_run - self.events_per_run / Self::RESERVE_DIVISOR
    }
}

/// One threshold per dimension of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub events: u64,
    pub bytes: u64,
    pub fan_out: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 2 * 1024 * 1024,
            commands_per_completion: 5000,
            events_per_transaction: 5000,
            events_per_run: 50_000,
            pending_activities: 2000,
            pending_timers: 2000,
            pending_signals: 5000,
            pending_signal_bytes: 128 << 20,
            pending_children: 1000,
            pending_updates: 500,
            message_streams: 1000,
            memo_start_bytes: 256 * 1024,
            search_attribute_bytes: 40_960,
            search_attribute_count: 100,
            search_attribute_key_bytes: 128,
            search_attribute_value_bytes: 2048,
            budget_soft: Budget {
                events: 8000,
                bytes: 4 * 1024 * 1024,
                fan_out: 160,
            },
            budget_hard: Budget {
                events: 10_000,
                bytes: 5 * 1024 * 1024,
                fan_out: 200,
            },
            workflow_task_lease_seconds: 300,
            activity_lease_seconds: 300,
            cleanup_seconds: 600,
            workflow_task_backoff_max_seconds: 60,
            heartbeat_event_seconds: 10,
            conductor_queue: CONDUCTOR_QUEUE.into(),
        }
    }
}

/// Returns an error if `value` is over `configured`.
pub(crate) fn check(kind: &'static str, value: u64, configured: u64) -> Result<(), LimitBreach> {
    if value > configured {
        Err(LimitBreach {
            kind,
            value,
            configured,
        })
    } else {
        Ok(())
    }
}
