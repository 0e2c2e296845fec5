//! The neutral form of stored rows. It has what cannot be computed from other rows; each store fills its other columns and its indexes
//! when it writes. Bodies are the stored text, byte for byte, so rows of earlier releases stay as they are.

use std::fmt;

use crate::encode::EventColumns;

/// A kind of rows. The order is that of copying: rows of a run come after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Runs,
    Parts,
    Events,
    Tasks,
    Logs,
    Commands,
    Requests,
    Keys,
    Sessions,
    Documents,
}

impl Table {
    /// All kinds, in the order of copying.
    pub const ALL: [Self; 10] = [
        Self::Runs,
        Self::Parts,
        Self::Events,
        Self::Tasks,
        Self::Logs,
        Self::Commands,
        Self::Requests,
        Self::Keys,
        Self::Sessions,
        Self::Documents,
    ];

    /// Returns the name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Parts => "parts",
            Self::Events => "events",
            Self::Tasks => "tasks",
            Self::Logs => "logs",
            Self::Commands => "commands",
            Self::Requests => "request ids",
            Self::Keys => "idempotency keys",
            Self::Sessions => "sessions",
            Self::Documents => "documents",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    Run {
        run_id: String,
        version: i64,
        spec: String,
        state: String,
    },
    Part {
        run_id: String,
        part: String,
        body: String,
    },
    Event(Box<EventRow>),
    Task {
        task_id: String,
        body: String,
    },
    Log {
        run_id: String,
        task: i64,
        line: i64,
        created_at: i64,
        text: String,
    },
    Command {
        run_id: String,
        sequence: i64,
        body: String,
    },
    Request {
        namespace: String,
        workflow_id: String,
        request_id: String,
        run_id: String,
        sequence: i64,
    },
    Key {
        namespace: String,
        workflow_type: String,
        key: String,
        run_id: String,
    },
    Session {
        namespace: String,
        session_id: String,
        body: String,
    },
    Document {
        kind: String,
        namespace: String,
        name: String,
        qualifier: String,
        version: i64,
        body: String,
    },
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventRow {
    pub(crate) run_id: String,
    pub(crate) sequence: i64,
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) recorded_at: i64,
    pub(crate) workflow_task_id: Option<String>,
    pub(crate) workflow_command_id: Option<String>,
    pub(crate) principal: Option<String>,
    pub(crate) payload: String,
}

impl<'a> From<&'a EventRow> for EventColumns<'a> {
    fn from(event: &'a EventRow) -> Self {
        Self {
            sequence: event.sequence,
            id: &event.id,
            event_type: &event.event_type,
            recorded_at: event.recorded_at,
            workflow_task_id: event.workflow_task_id.as_deref(),
            workflow_command_id: event.workflow_command_id.as_deref(),
            principal: event.principal.as_deref(),
            payload: &event.payload,
        }
    }
}

impl Row {
    /// Returns about how many bytes it has. Names are short, so only texts without a small limit count.
    pub(crate) fn bytes(&self) -> usize {
        /// The names and numbers of a row.
        const NAMES: usize = 256;
        let texts = match self {
            Self::Run { spec, state, .. } => spec.len() + state.len(),
            Self::Event(event) => event.payload.len(),
            Self::Part { body, .. }
            | Self::Task { body, .. }
            | Self::Command { body, .. }
            | Self::Session { body, .. }
            | Self::Document { body, .. } => body.len(),
            Self::Log { text, .. } => text.len(),
            Self::Request { .. } | Self::Key { .. } => 0,
        };
        texts + NAMES
    }
}
