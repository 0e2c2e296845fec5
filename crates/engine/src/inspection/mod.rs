//! Rules that the stored rows of one run keep, for a check of a whole store. They read rows and decide nothing.
//!
//! `history` folds the events of a run, one by one, so that a long history needs little memory; `calls`, `selections`, `messages` and
//! `family` follow what they are about. `state` compares the state of a run with its parts and names the task rows that it must have.
//! The rules are those of `docs/protocol/invariants.md` that rows alone can show; the numbers in comments are from there.

mod calls;
mod family;
mod history;
mod messages;
mod selections;
mod state;
#[cfg(test)]
mod tests;

pub use family::{Before, ChildCall, check_chain, check_parent};
pub use history::{History, RecordedEvent};
pub use messages::{Messages, check_messages};
pub use state::{OpenTask, check_run, open_tasks, part_matches};

use std::fmt;

use serde::de::DeserializeOwned;

/// Something that is wrong with a stored row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    /// A sentence for people.
    pub detail: String,
}

impl Problem {
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }
}

/// What was found in one run. Of most kinds only the first is kept: one wrong row often makes the following ones wrong.
#[derive(Clone, Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn found(&mut self, kind: ProblemKind, detail: String) {
        let is_known = self.0.iter().any(|known| known.kind == kind);
        if !is_known || kind == ProblemKind::HistoryDiffers {
            self.0.push(Problem::new(kind, detail));
        }
    }

    /// Parses members of a payload. One that cannot be parsed is a problem.
    fn parse<T: DeserializeOwned>(&mut self, event: &RecordedEvent<'_>) -> Option<T> {
        match serde_json::from_str(event.payload) {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                let detail = format!(
                    "the payload of event {} is not valid: {error}",
                    event.sequence
                );
                self.found(ProblemKind::UnreadableRow, detail);
                None
            }
        }
    }

    fn into_list(self) -> Vec<Problem> {
        self.0
    }
}

macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {
        /// What is wrong, for programs. The words stay the same.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ProblemKind {
            $($(#[$doc])* $name,)+
        }

        impl ProblemKind {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the word in the output.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

problem_kinds! {
    /// The database engine found damaged pages or indexes.
    FileDamaged = "file_damaged",
    /// A table, column or index is missing or different.
    SchemaDiffers = "schema_differs",
    /// The content of a row cannot be parsed.
    UnreadableRow = "unreadable_row",
    /// A run has no row in a table that must have one.
    RowMissing = "row_missing",
    /// A row belongs to a run, command or snapshot that is not stored.
    OrphanRow = "orphan_row",
    /// The version of a run, session or document is below 1 or not that of its body.
    VersionWrong = "version_wrong",
    /// A column that lists use differs from the state of the run.
    ListColumnDiffers = "list_column_differs",
    /// The index of search attributes differs from the state of the run.
    AttributeIndexDiffers = "attribute_index_differs",
    /// The stored alarm differs from that of the state.
    AlarmDiffers = "alarm_differs",
    /// Something in the run is due before its alarm.
    AlarmLate = "alarm_late",
    /// Events are not numbered from 1 without gaps (1).
    HistoryGap = "history_gap",
    /// The end, the size or the highest command sequence of the history differs from the state (1, 10).
    HistoryDiffers = "history_differs",
    /// Two events have the same id (2).
    EventIdRepeated = "event_id_repeated",
    /// The recording times of a run decrease (3).
    EventTimeStepsBack = "event_time_steps_back",
    /// A history does not begin with its start, or has several (4, 5).
    StartEventWrong = "start_event_wrong",
    /// A closed run has no terminal event, or another run has one (11).
    TerminalEventWrong = "terminal_event_wrong",
    /// An event follows the terminal event that must not (12).
    EventAfterEnd = "event_after_end",
    /// A call has two opening events, an event without one, an early timer or attempts out of order (6, 7, 8, 16, 36).
    CallWrong = "call_wrong",
    /// A call has two ends (14, 16, 17, 18, 19).
    CallEndedTwice = "call_ended_twice",
    /// The members of a parallel group were not opened together, or an event has another group than its call (9).
    GroupWrong = "group_wrong",
    /// A selection was decided twice, or not by the first member that ended (21).
    SelectionWrong = "selection_wrong",
    /// An update has no end, two ends, or another outcome for its caller (20, 48).
    UpdateWrong = "update_wrong",
    /// A signal or message is lost, doubled or out of order (26, 27, 48).
    SignalWrong = "signal_wrong",
    /// The workflow must look at something and has no task for it (25).
    WakeLost = "wake_lost",
    /// A run is open and waits for nothing (28).
    NothingOpen = "nothing_open",
    /// Status, closing and program of a run contradict each other.
    StatusDiffers = "status_differs",
    /// A part is stored under the key of another kind.
    PartDiffers = "part_differs",
    /// Something is open in a closed run (13).
    OpenPartOfClosedRun = "open_part_of_closed_run",
    /// The number of open parts differs from the state.
    OpenCountDiffers = "open_count_differs",
    /// A run has an open task without a row (22, 29).
    TaskMissing = "task_missing",
    /// A task row differs from the run that has the task (22, 23).
    TaskDiffers = "task_differs",
    /// A task row is open, and its run is closed (13).
    OpenTaskOfClosedRun = "open_task_of_closed_run",
    /// A task row is open, and its run does not have the task (22).
    TaskUnknown = "task_unknown",
    /// A column of a task differs from its body.
    TaskColumnDiffers = "task_column_differs",
    /// A leased task has no owner or no end of its lease (23).
    LeaseIncomplete = "lease_incomplete",
    /// A command is stored under another number, or above the newest number of its workflow.
    CommandDiffers = "command_differs",
    /// A request id does not belong to the command that has it.
    RequestDiffers = "request_differs",
    /// An idempotency key does not belong to its run.
    KeyDiffers = "key_differs",
    /// The numbers of the runs of a workflow have a gap, or two runs have one number (47).
    RunNumberWrong = "run_number_wrong",
    /// A run is open, and a newer run of its workflow exists (46).
    OpenRunNotCurrent = "open_run_not_current",
    /// A continued run has no successor, another one, or another execution deadline (48).
    ChainWrong = "chain_wrong",
    /// A child does not belong to a call of its parent (49).
    ParentWrong = "parent_wrong",
    /// A child of a closed run was not treated once by its close policy (50).
    ClosePolicyWrong = "close_policy_wrong",
    /// A column of a session differs from its body.
    SessionColumnDiffers = "session_column_differs",
    /// A document is stored under another key than its body has, or its kind is not known.
    DocumentKeyDiffers = "document_key_differs",
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
