//! Errors of a replay: the history and the code in this worker do not match.

use std::fmt;

/// Why a workflow task cannot be completed. The run itself does not change: the server dispatches the task again, until a
/// worker whose code matches takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// The code makes another call than the recorded one.
    NonDeterministic(Box<Divergence>),
    /// The payload of an event is not what its type requires.
    Damaged {
        /// The event's position in the history.
        position: u64,
        /// Its type.
        event_type: String,
        /// What is missing or has another type.
        problem: String,
    },
    /// The code panicked.
    Panicked {
        /// Its message.
        message: String,
    },
    /// The code waits for something that is not a call of the context: a timer of the runtime, a socket, a channel.
    Stuck,
    /// The worker has no workflow of this type.
    UnknownWorkflow {
        /// The type.
        workflow_type: String,
    },
    /// The server refused the commands of the code.
    Refused {
        /// The message of the server.
        problem: String,
    },
    /// The code uses a capability that the server does not advertise.
    MissingCapability {
        /// Its name in the server's list of capabilities.
        capability: &'static str,
    },
    /// A local activity was called while other calls were open, and the server records local activities only at the end of a
    /// task.
    LocalBesideOthers,
    /// A handler of a query or update, or a validator, made a call.
    CallInHandler {
        /// The call.
        call: String,
    },
    /// The workflow uses a message that it does not list.
    UnlistedMessage {
        /// The kind of message.
        kind: MessageKind,
        /// The name of the message.
        name: String,
    },
    /// The workflow lists a query or update, and had no handler for it at its first wait.
    MissingHandler {
        /// The kind of message.
        kind: MessageKind,
        /// The name of the message.
        name: String,
    },
}

/// The kinds of messages that a workflow lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// A [`Signal`](crate::Signal).
    Signal,
    /// A [`Query`](crate::Query).
    Query,
    /// An [`Update`](crate::Update).
    Update,
}

impl MessageKind {
    /// Returns the key of its list in `#[workflow(..)]`.
    fn list(self) -> &'static str {
        match self {
            Self::Signal => "signals",
            Self::Query => "queries",
            Self::Update => "updates",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Signal => "signal",
            Self::Query => "query",
            Self::Update => "update",
        })
    }
}

/// The first difference between the calls of the code and the history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The number of the call, counted from 1 in the order in which the code makes calls.
    pub sequence: u64,
    /// The position of the recorded event in the history, if there is one.
    pub position: Option<u64>,
    /// The call of the code.
    pub code: String,
    /// The call in the history.
    pub history: String,
}

impl Divergence {
    fn hint(&self) -> &'static str {
        if self.history == NOTHING {
            "the code makes a call that it did not make when the history was written; guard it with ctx.patched(..)"
        } else if self.code == NOTHING {
            "a call was removed from the code, or a condition around it changed; keep the old path with ctx.patched(..)"
        } else {
            "calls were added, removed or reordered since the run began; guard the change with ctx.patched(..), or run the \
             old build for old runs"
        }
    }
}

/// The text for a missing call.
pub(crate) const NOTHING: &str = "nothing";

impl ReplayError {
    /// Returns the failure type that the worker reports to the server.
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
            Self::UnlistedMessage { .. } => "UnlistedMessage",
            Self::MissingHandler { .. } => "MissingHandler",
        }
    }

    /// Returns the number of the first call that differs from the history.
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
                "the workflow waits for something that is not a call of its context: await only what the context returns \
                 (timers, activities, signals, …) and move everything else into an activity"
            ),
            Self::UnknownWorkflow { workflow_type } => write!(
                out,
                "this worker has no workflow `{workflow_type}`; register it, or start its runs on another task queue"
            ),
            Self::Refused { problem } => write!(out, "the server refused the commands: {problem}"),
            Self::MissingCapability { capability } => write!(
                out,
                "the code uses `{capability}`, which this server does not support; use another server, or change the code"
            ),
            Self::LocalBesideOthers => write!(
                out,
                "a local activity was called while other calls are open; this server records local activities only at the end of \
                 a task, so their order would be lost: await the other calls first, or use an ordinary activity"
            ),
            Self::CallInHandler { call } => write!(
                out,
                "a handler of a query or update, or a validator, made a call ({call}); handlers may only read and change state"
            ),
            Self::UnlistedMessage { kind, name } => write!(
                out,
                "the workflow uses the {kind} `{name}` and does not list it; add its constant to `#[workflow({}(..))]`",
                kind.list()
            ),
            Self::MissingHandler { kind, name } => write!(
                out,
                "the workflow lists the {kind} `{name}` in `#[workflow({}(..))]` and has no handler for it; call \
                 {} before the first `.await`",
                kind.list(),
                if *kind == MessageKind::Update {
                    "`ctx.on_update` or `ctx.on_validated_update`"
                } else {
                    "`ctx.on_query`"
                }
            ),
        }
    }
}

impl std::error::Error for ReplayError {}
