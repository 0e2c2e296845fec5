//! Everything that is open in a run, or kept for it: one [`Part`] per thing, by [`PartKey`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use longhaul_protocol::id::{
    ActivityAttemptId, ActivityExecutionId, CommandId, SignalId, TaskId, TaskQueue, TimerId,
    WaitId, WorkerId,
};
use longhaul_protocol::parallel_group::Group;
use longhaul_protocol::sequence::{CommandSeq, HistorySeq, RequestSeq};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_protocol::workflow_command::CancellationPolicy;
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::change::CommandRow;
use crate::conductor::execution::state::{ExecutionTask, InboxMessage, Stored};
use crate::run::family::child::Child;
use crate::run::family::outbox::OutboxMessage;
use crate::run::local_activity::LocalActivity;
use crate::run::message::stream::StreamPosition;
use crate::run::state::RetryPolicy;
use crate::run::wait::selection::Selection;

/// Which part. The number is the command sequence of the call, except for signals, updates and buffered messages, where it is
/// the sequence of the external command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartKey {
    Activity(CommandSeq),
    /// An activity that runs in the workflow's worker.
    LocalActivity(CommandSeq),
    /// An activity's arguments, apart from the activity because they can be large and never change.
    Arguments(CommandSeq),
    Timer(CommandSeq),
    Wait(CommandSeq),
    Signal(RequestSeq),
    Update(RequestSeq),
    Buffered(RequestSeq),
    Child(CommandSeq),
    /// A child of an earlier run of this workflow, kept for its close policy only; numbered in order of arrival.
    Adopted(u64),
    /// A message to another run, until it is delivered; numbered in order of creation.
    Outbox(u64),
    /// By command sequence of the group's first leaf.
    Group(CommandSeq),
    /// A recorded call inside a group, kept until the group is resolved and a task has seen that.
    Member(CommandSeq),
    /// The result or failure of a closed run.
    Outcome,
    /// A task of a definition run that is open, or whose end is not processed.
    Task(u64),
    /// A task of a definition run that has ended.
    Past(u64),
    /// The input of a definition run.
    Input,
    /// The variables of a definition run.
    Variables,
    /// The output of a definition run.
    Output,
    /// A message to a definition run that no task has taken, in order of arrival.
    Inbox(u64),
}

impl fmt::Display for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activity(n) => write!(f, "activity:{n}"),
            Self::LocalActivity(n) => write!(f, "local_activity:{n}"),
            Self::Arguments(n) => write!(f, "arguments:{n}"),
            Self::Timer(n) => write!(f, "timer:{n}"),
            Self::Wait(n) => write!(f, "wait:{n}"),
            Self::Signal(n) => write!(f, "signal:{n}"),
            Self::Update(n) => write!(f, "update:{n}"),
            Self::Buffered(n) => write!(f, "buffered:{n}"),
            Self::Child(n) => write!(f, "child:{n}"),
            Self::Adopted(n) => write!(f, "adopted:{n}"),
            Self::Outbox(n) => write!(f, "outbox:{n}"),
            Self::Group(n) => write!(f, "group:{n}"),
            Self::Member(n) => write!(f, "member:{n}"),
            Self::Outcome => f.write_str("outcome"),
            Self::Task(n) => write!(f, "task:{n}"),
            Self::Past(n) => write!(f, "past:{n}"),
            Self::Input => f.write_str("input"),
            Self::Variables => f.write_str("variables"),
            Self::Output => f.write_str("output"),
            Self::Inbox(n) => write!(f, "inbox:{n}"),
        }
    }
}

/// The text is not the key of a part.
#[derive(Debug, thiserror::Error)]
#[error("not the key of a part of a run: {0}")]
pub struct PartKeyError(String);

impl FromStr for PartKey {
    type Err = PartKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || PartKeyError(text.to_owned());
        match text {
            "outcome" => return Ok(Self::Outcome),
            "input" => return Ok(Self::Input),
            "variables" => return Ok(Self::Variables),
            "output" => return Ok(Self::Output),
            _ => {}
        }
        let (kind, number) = text.split_once(':').ok_or_else(bad)?;
        let number: u64 = number.parse().map_err(|_| bad())?;
        let (call, request) = (CommandSeq::new(number), RequestSeq::new(number));
        Ok(match kind {
            "activity" => Self::Activity(call),
            "local_activity" => Self::LocalActivity(call),
            "arguments" => Self::Arguments(call),
            "timer" => Self::Timer(call),
            "wait" => Self::Wait(call),
            "signal" => Self::Signal(request),
            "update" => Self::Update(request),
            "buffered" => Self::Buffered(request),
            "child" => Self::Child(call),
            "adopted" => Self::Adopted(number),
            "outbox" => Self::Outbox(number),
            "group" => Self::Group(call),
            "member" => Self::Member(call),
            "task" => Self::Task(number),
            "past" => Self::Past(number),
            "inbox" => Self::Inbox(number),
            _ => return Err(bad()),
        })
    }
}

/// One thing that is open in a run, or kept for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Activity(Box<Activity>),
    LocalActivity(Box<LocalActivity>),
    Arguments(Payload),
    Timer(Box<Timer>),
    Wait(Box<Wait>),
    Signal(Box<Signal>),
    Update(Box<Update>),
    Buffered(Box<Message>),
    Child(Box<Child>),
    Adopted(Box<Child>),
    Outbox(Box<OutboxMessage>),
    Group(OpenGroup),
    Member(Box<Member>),
    Outcome(Box<Outcome>),
    Task(Arc<ExecutionTask>),
    Past(Arc<ExecutionTask>),
    /// The input, variables or output of a definition run.
    Value(Stored),
    Inbox(Box<InboxMessage>),
}

impl Part {
    /// Returns a task of a definition run.
    pub fn as_task(&self) -> Option<&Arc<ExecutionTask>> {
        if let Self::Task(task) | Self::Past(task) = self {
            Some(task)
        } else {
            None
        }
    }

    pub(crate) fn as_activity(&self) -> Option<&Activity> {
        if let Self::Activity(activity) = self {
            Some(activity)
        } else {
            None
        }
    }

    pub(crate) fn as_local(&self) -> Option<&LocalActivity> {
        if let Self::LocalActivity(local) = self {
            Some(local)
        } else {
            None
        }
    }

    pub(crate) fn as_timer(&self) -> Option<&Timer> {
        if let Self::Timer(timer) = self {
            Some(timer)
        } else {
            None
        }
    }

    pub(crate) fn as_wait(&self) -> Option<&Wait> {
        if let Self::Wait(wait) = self {
            Some(wait)
        } else {
            None
        }
    }

    /// Returns a signal in history; a buffered one is not in history yet.
    pub(crate) fn as_signal(&self) -> Option<&Signal> {
        if let Self::Signal(signal) = self {
            Some(signal)
        } else {
            None
        }
    }

    pub(crate) fn as_update(&self) -> Option<&Update> {
        if let Self::Update(update) = self {
            Some(update)
        } else {
            None
        }
    }

    /// Returns a child of this run, or of one before it.
    pub(crate) fn as_child(&self) -> Option<&Child> {
        if let Self::Child(child) | Self::Adopted(child) = self {
            Some(child)
        } else {
            None
        }
    }

    pub(crate) fn as_outbox_message(&self) -> Option<&OutboxMessage> {
        if let Self::Outbox(message) = self {
            Some(message)
        } else {
            None
        }
    }

    pub(crate) fn as_buffered(&self) -> Option<&Message> {
        if let Self::Buffered(message) = self {
            Some(message)
        } else {
            None
        }
    }

    pub(crate) fn as_group(&self) -> Option<&OpenGroup> {
        if let Self::Group(group) = self {
            Some(group)
        } else {
            None
        }
    }
}

/// An activity execution that is not finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    pub sequence: CommandSeq,
    pub execution_id: ActivityExecutionId,
    pub activity_type: String,
    pub queue: TaskQueue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<CancellationPolicy>,
    /// Its worker is asked to stop and to acknowledge it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_requested: bool,
    /// The session it must run in, as the author wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_session: Option<Box<WorkerSessionOptions>>,
    /// Absent if the command had neither a policy nor timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    pub scheduled_at: Timestamp,
    /// The current task; a retry creates a new one.
    pub task_id: TaskId,
    pub available_at: Timestamp,
    pub offered: bool,
    /// Number of attempts so far, counted with every claim.
    pub attempt_count: u64,
    /// The newest attempt while it may still report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// Attempts that may no longer report, newest last; only the last few are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_attempts: Vec<PastAttempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
}

/// One attempt of an activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub id: ActivityAttemptId,
    pub number: u64,
    pub owner: WorkerId,
    pub started_at: Timestamp,
    /// `None` after the lease expired: the task is ready again, and until its next claim this attempt may still report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// When a heartbeat was last written to history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_heartbeat_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_request_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastAttempt {
    pub id: ActivityAttemptId,
    pub task_id: TaskId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    pub id: TimerId,
    pub sequence: CommandSeq,
    pub delay_seconds: u64,
    pub fire_at: Timestamp,
    pub kind: TimerKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// A timer that the workflow started.
    Plain,
    ConditionTimeout,
    SignalTimeout,
}

/// An open wait, by the command sequence of its call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    pub id: WaitId,
    pub sequence: CommandSeq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    pub what: WaitFor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    Condition {
        occurrence_id: Option<String>,
        key: Option<String>,
        fingerprint: Option<String>,
    },
    Signal {
        name: String,
        /// Command sequence of the signal that will resolve it.
        bound: Option<RequestSeq>,
    },
}

/// An accepted signal that no wait has consumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    pub command_sequence: RequestSeq,
    pub id: SignalId,
    pub command_id: CommandId,
    pub name: String,
    pub arguments: Payload,
    /// The wait it is bound to; set when the signal enters history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_id: Option<WaitId>,
    /// History sequence of its `SignalReceived` event, which also contains the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<HistorySeq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Set when it carries a message of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamPosition>,
}

/// An accepted update that is still open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// As recorded for its caller; its number in the workflow is the key of the part.
    pub command: CommandRow,
    /// History sequence of its `UpdateAccepted`.
    pub accepted_at: HistorySeq,
}

/// A message that arrived while a workflow task was leased: accepted and durable, not yet in history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Signal(Signal),
    Update(CommandRow),
}

impl Message {
    /// Returns the sequence of the command that it came with.
    pub fn command_sequence(&self) -> RequestSeq {
        match self {
            Self::Signal(signal) => signal.command_sequence,
            Self::Update(command) => command.sequence,
        }
    }
}

/// Progress of an outermost parallel group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenGroup {
    pub size: u64,
    pub unresolved: u64,
    /// Whether a member failed.
    pub failed: bool,
    /// History sequence of the event that resolved the last member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<HistorySeq>,
    /// Set if the group chooses its first member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Box<Selection>>,
}

/// A recorded call of a group, which a worker may send again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub kind: String,
    /// Activity type, signal name or condition key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub group: Group,
}

/// The outcome of a closed run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Output(Payload),
    Failure(Box<RunFailure>),
}

/// The failure of a run for the control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFailure {
    pub message: String,
    pub failure_category: String,
    pub non_retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    #[serde(default)]
    pub exception: Map<String, Value>,
    pub event_sequence: HistorySeq,
}
