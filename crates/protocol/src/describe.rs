//! The worker protocol described to programs: verbs, command types, page sizes, long-poll limits
//! (worker-protocol.md §2.4 and §4.1). The compression of history pages is in `compression`.
//!
//! This is the one list of what is implemented. A later feature adds its command here and nowhere else; the server's
//! manifest is made from it.

use serde::Serialize;

use crate::version::WORKER_PROTOCOL_VERSION;
use crate::worker_session::WORKER_SESSION_VERBS;

mod compression;

pub use compression::{
    COMPRESSION_THRESHOLD_EVENTS, HistoryEncoding, RESTORED_HISTORY_BYTES_MAX, RestoreError,
    compress_history, restore_history,
};

/// What a worker can do with workflow tasks.
pub const WORKFLOW_TASK_VERBS: &[&str] = &["poll", "history", "heartbeat", "complete", "fail"];

/// What a worker can do with activity tasks.
pub const ACTIVITY_TASK_VERBS: &[&str] = &["poll", "complete", "fail", "status", "heartbeat"];

/// What a worker can do with query tasks.
pub const QUERY_TASK_VERBS: &[&str] = &["poll", "complete", "fail"];

/// Every workflow command this release accepts in a task completion.
pub const WORKFLOW_TASK_COMMANDS: &[&str] = &[
    "schedule_activity",
    "start_timer",
    "start_child_workflow",
    "complete_update",
    "fail_update",
    "record_local_activity",
    "record_side_effect",
    "record_version_marker",
    "upsert_search_attributes",
    "upsert_memo",
    "open_condition_wait",
    "open_signal_wait",
    "cancel_selection_operation",
    "complete_workflow",
    "fail_workflow",
    "continue_as_new",
];

/// Those commands that close the run; at most one may stand in a completion.
pub const TERMINAL_COMMANDS: &[&str] = &["complete_workflow", "fail_workflow", "continue_as_new"];

/// Events on a history page when the worker does not say.
pub const HISTORY_PAGE_SIZE_DEFAULT: u32 = 500;

/// Events on the largest history page a worker may ask for.
pub const HISTORY_PAGE_SIZE_MAX: u32 = 1000;

/// How long a poll waits when the worker does not say.
pub const POLL_TIMEOUT_SECONDS_DEFAULT: u64 = 30;

/// The shortest wait as published. A worker may still send 0 to be answered at once.
pub const POLL_TIMEOUT_SECONDS_MIN: u64 = 1;

/// The longest wait; clients set their HTTP timeouts above it.
pub const POLL_TIMEOUT_SECONDS_MAX: u64 = 60;

/// What the protocol offers, ready to be serialized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The advertised version.
    pub version: &'static str,
    /// Verbs on workflow tasks.
    pub workflow_task_verbs: &'static [&'static str],
    /// Verbs on activity tasks.
    pub activity_task_verbs: &'static [&'static str],
    /// Verbs on query tasks.
    pub query_task_verbs: &'static [&'static str],
    /// Verbs on worker sessions.
    pub worker_session_verbs: &'static [&'static str],
    /// Commands that leave the run open.
    pub non_terminal_commands: Vec<&'static str>,
    /// Commands that close the run.
    pub terminal_commands: &'static [&'static str],
    /// Events on a page by default.
    pub history_page_size_default: u32,
    /// Events on a page at most.
    pub history_page_size_max: u32,
    /// How long polls wait.
    pub long_poll: LongPoll,
    /// How history pages can be compressed.
    pub history_compression: HistoryCompression,
}

/// The long-poll limits, under the names of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each field repeats a documented constant")]
pub struct LongPoll {
    pub default_timeout_seconds: u64,
    pub min_timeout_seconds: u64,
    pub max_timeout_seconds: u64,
}

/// The compression of history pages, under the names of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryCompression {
    /// Encodings in order of preference.
    pub supported_encodings: [HistoryEncoding; 2],
    /// The least number of events that is compressed.
    pub compression_threshold: usize,
}

/// Describes the protocol as this release implements it.
#[must_use]
pub fn describe() -> Description {
    Description {
        version: WORKER_PROTOCOL_VERSION,
        workflow_task_verbs: WORKFLOW_TASK_VERBS,
        activity_task_verbs: ACTIVITY_TASK_VERBS,
        query_task_verbs: QUERY_TASK_VERBS,
        worker_session_verbs: WORKER_SESSION_VERBS,
        non_terminal_commands: WORKFLOW_TASK_COMMANDS
            .iter()
            .copied()
            .filter(|command| !TERMINAL_COMMANDS.contains(command))
            .collect(),
        terminal_commands: TERMINAL_COMMANDS,
        history_page_size_default: HISTORY_PAGE_SIZE_DEFAULT,
        history_page_size_max: HISTORY_PAGE_SIZE_MAX,
        long_poll: LongPoll {
            default_timeout_seconds: POLL_TIMEOUT_SECONDS_DEFAULT,
            min_timeout_seconds: POLL_TIMEOUT_SECONDS_MIN,
            max_timeout_seconds: POLL_TIMEOUT_SECONDS_MAX,
        },
        history_compression: HistoryCompression {
            supported_encodings: HistoryEncoding::PREFERRED,
            compression_threshold: COMPRESSION_THRESHOLD_EVENTS,
        },
    }
}

/// How long a poll waits: what the worker asked for, brought into 0..=60. Never refused; 0 answers at once.
#[must_use]
pub fn clamp_poll_timeout_seconds(requested: Option<i64>) -> u64 {
    match requested {
        None => POLL_TIMEOUT_SECONDS_DEFAULT,
        Some(seconds) => u64::try_from(seconds)
            .unwrap_or(0)
            .min(POLL_TIMEOUT_SECONDS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_lists_each_command_once() {
        let json = serde_json::to_value(describe()).unwrap();
        assert_eq!(json["version"], "1.20");
        let count = |list: &str| json[list].as_array().unwrap().len();
        assert_eq!(count("terminal_commands"), 3);
        assert_eq!(count("worker_session_verbs"), 3);
        assert_eq!(
            count("non_terminal_commands") + 3,
            WORKFLOW_TASK_COMMANDS.len()
        );
        assert_eq!(
            json["history_compression"]["supported_encodings"],
            serde_json::json!(["gzip", "deflate"])
        );
        assert_eq!(json["long_poll"]["max_timeout_seconds"], 60);
        let mut names = WORKFLOW_TASK_COMMANDS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKFLOW_TASK_COMMANDS.len());
    }

    #[test]
    fn poll_timeouts_are_clamped_never_refused() {
        let cases = [
            (None, 30),
            (Some(0), 0),
            (Some(1), 1),
            (Some(60), 60),
            (Some(61), 60),
            (Some(-5), 0),
        ];
        for (requested, expected) in cases {
            assert_eq!(clamp_poll_timeout_seconds(requested), expected);
        }
        assert_eq!(clamp_poll_timeout_seconds(Some(i64::MAX)), 60);
        assert_eq!(clamp_poll_timeout_seconds(Some(i64::MIN)), 0);
    }
}
