//! Why a history and the code in this worker do not fit together.

use std::fmt;

/// A workflow task that cannot be answered. The run itself stays as it is: the server gives the task out again, to a worker
/// whose code fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The code makes another call than the one that is recorded.
    NonDeterministic(Box<Divergence>),
    /// An event does not hold what its type says.
    Damaged {
        /// The event's position in the history.
        position: u64,
        /// Its type.
        event_type: String,
        /// What is missing or mistyped.
        problem: String,
    },
    /// The code panicked.
    Panicked {
        /// Its message.
        message: String,
    },
    /// The code waits for something that is no call of the workflow: a timer of the runtime, a socket, a channel.
    Stuck,
    /// This worker has no workflow of the type.
    UnknownWorkflow {
        /// The type.
        workflow_type: String,
    },
    /// The server did not accept what the code wants.
    Refused {
        /// Its words.
        problem: String,
    },
    /// The code uses something that the server has not announced.
    MissingCapability {
        /// Its name in the server's list of capabilities.
        capability: &'static str,
    },
    /// A local activity was called while other calls were open, on a server that cannot record it in their order.
    LocalBesideOthers,
    /// A handler of a query, update or validator tried to make a call.
    CallInHandler {
        /// What it called.
        call: String,
    },
}

/// Where replay and history part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Number of the call, counted from 1 in the order the code makes them.
    pub sequence: u64,
    /// Position of the recorded event in the history, if there is one.
    pub position: Option<u64>,
    /// What the code does there.
    pub code: String,
    /// What the history holds there.
    pub history: String,
}

impl Divergence {
    fn hint(&self) -> &'static str {
        if self.history == NOTHING {
            "the code makes a call that was not there when the history was written; guard it with ctx.patched(..)"
        } else if self.code == NOTHING {
            "a call was removed from the code, or a condition around it changed; keep the old path with ctx.patched(..)"
        } else {
            "calls were added, removed or reordered since the run began; guard the change with ctx.patched(..), or run the \
             old build for old runs"
        }
    }
}

/// Stands for a call that is not there.
pub(super) const NOTHING: &str = "nothing";

impl ReplayError {
    /// The failure type reported to the server.
    pub fn failure_type(&self) -> &'static str {
        match self {
            Self::NonDeterministic(_) => "NonDeterministicReplay",
            Self::Damaged { .. } => "DamagedHistory",
            Self::Panicked { .. } => "WorkflowPanicked",
            Self::Stuck => "WorkflowStuck",
            Self::UnknownWorkflow { .. } => "UnknownWorkflowType",
            Self::Refused { .. } => "CommandsRefused",
            Self::MissingCapability { .. } => "MissingCapability",
            Self::LocalBesideOthers => "LocalActivityBesideOthers",
            Self::CallInHandler { .. } => "CallInHandler",
        }
    }

    /// The number of the call where code and history part.
    pub fn sequence(&self) -> Option<u64> {
        match self {
            Self::NonDeterministic(divergence) => Some(divergence.sequence),
            _ => None,
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonDeterministic(divergence) => {
                write!(
                    out,
                    "at call {} the history has {}",
                    divergence.sequence, divergence.history
                )?;
                if let Some(position) = divergence.position {
                    write!(out, " (event {position})")?;
                }
                write!(
                    out,
                    ", but the code does {}: {}",
                    divergence.code,
                    divergence.hint()
                )
            }
            Self::Damaged {
                position,
                event_type,
                problem,
            } => write!(
                out,
                "event {position} ({event_type}) cannot be read: {problem}"
            ),
            Self::Panicked { message } => write!(out, "the workflow panicked: {message}"),
            Self::Stuck => write!(
                out,
                "the workflow waits for something that is not the workflow's: await only what the context gives (timers, \
                 activities, signals, …) and move everything else into an activity"
            ),
            Self::UnknownWorkflow { workflow_type } => write!(
                out,
                "this worker has no workflow `{workflow_type}`; register it, or give its runs another task queue"
            ),
            Self::Refused { problem } => write!(out, "the server refused the answer: {problem}"),
            Self::MissingCapability { capability } => write!(
                out,
                "the code uses `{capability}`, which this server has not announced; use another server, or do without"
            ),
            Self::LocalBesideOthers => write!(
                out,
                "a local activity was called while other calls are open; this server records local activities only at the end of \
                 a task, and their order would be lost: await the other calls first, or use an ordinary activity"
            ),
            Self::CallInHandler { call } => write!(
                out,
                "a handler of a query, update or validator made a call ({call}); handlers read and change state only"
            ),
        }
    }
}

impl std::error::Error for ReplayError {}
