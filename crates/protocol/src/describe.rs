//! A machine-readable description of the worker protocol: verbs, command types, page sizes and long-poll limits. The
//! compression of history pages is in `compression`.
//!
//! The server advertises what is listed here, and `workflow_command` refuses every other command type. A new command needs
//! an entry here, a shape in `workflow_command`, its rules in the engine and a scenario; see the table in CONTRIBUTING.md.

use serde::Serialize;

use crate::version::WORKER_PROTOCOL_VERSION;
use crate::worker_session::WORKER_SESSION_VERBS;

mod compression;

pub use compression::{
    COMPRESSION_THRESHOLD_EVENTS, HistoryEncoding, RESTORED_HISTORY_BYTES_MAX, RestoreError,
    compress_history, restore_history,
};

/// Requests that a worker can make about a workflow task.
pub const WORKFLOW_TASK_VERBS: &[&str] = &["poll", "history", "heartbeat", "complete", "fail"];

/// Requests that a worker can make about an activity task.
pub const ACTIVITY_TASK_VERBS: &[&str] = &["poll", "complete", "fail", "status", "heartbeat"];

/// Requests that a worker can make about a query task.
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

/// The commands that close the run. A completion contains at most one, as its last command.
pub const TERMINAL_COMMANDS: &[&str] = &["complete_workflow", "fail_workflow", "continue_as_new"];

/// Events on a history page if the worker does not name a size.
pub const HISTORY_PAGE_SIZE_DEFAULT: u32 = 500;

/// Events on the largest history page a worker may ask for.
pub const HISTORY_PAGE_SIZE_MAX: u32 = 1000;

/// How long a poll waits if the worker does not name a timeout.
pub const POLL_TIMEOUT_SECONDS_DEFAULT: u64 = 30;

/// The shortest advertised wait. A worker may still send 0 to get an answer at once.
pub const POLL_TIMEOUT_SECONDS_MIN: u64 = 1;

/// The longest wait; clients set their HTTP timeouts above it.
pub const POLL_TIMEOUT_SECONDS_MAX: u64 = 60;

/// The description as the server sends it.
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
    /// The default number of events on a page.
    pub history_page_size_default: u32,
    /// The largest number of events on a page.
    pub history_page_size_max: u32,
    /// How long polls wait.
    pub long_poll: LongPoll,
    /// How history pages can be compressed.
    pub history_compression: HistoryCompression,
}

/// The long-poll limits, under their wire names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LongPoll {
    /// Equal to [`POLL_TIMEOUT_SECONDS_DEFAULT`].
    pub default_timeout_seconds: u64,
    /// Equal to [`POLL_TIMEOUT_SECONDS_MIN`].
    pub min_timeout_seconds: u64,
    /// Equal to [`POLL_TIMEOUT_SECONDS_MAX`].
    pub max_timeout_seconds: u64,
}

/// The compression of history pages, under its wire names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryCompression {
    /// Encodings in order of preference.
    pub supported_encodings: [HistoryEncoding; 2],
    /// The smallest number of events that is compressed.
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

/// Returns how long a poll waits: the requested seconds, limited to 0..=60. No value is refused; 0 answers at once.
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
