//! The state of a run between two commands: its fixed specification, its small core, and one part per open thing.
//!
//! The split follows how often things change. [`Spec`] is written once. [`Core`] is rewritten by every transition, so it stays
//! small whatever the run does. Everything that can be many (activities, timers, waits, signals) is a [`Part`] of its own, written
//! when it changes and deleted when it ends: the cost of a transition depends on its changes, not on what is open.

pub mod budget;
mod part;
pub(crate) mod retry_policy;
pub(crate) mod room;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use longhaul_protocol::id::{
    ActivityAttemptId, ActivityExecutionId, ChildCallId, CommandId, Namespace, RunId, SignalId,
    TaskId, TaskQueue, TimerId, UpdateId, WaitId, WorkerId, WorkflowId,
};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq, RequestSeq};
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::change::StoredReply;
use crate::conductor::execution::index::TaskIndex;
use crate::conductor::execution::state::{Execution, ExecutionTask};
use crate::run::cancellation::Cancellation;
use crate::run::family::child::Parent;
use crate::run::local_activity::LocalActivity;
use crate::run::local_activity::attempt::EndedAttempt;
use crate::run::local_activity::checkpoint::Checkpoint;
use crate::run::message::stream::Streams;
use crate::run::workflow_task::sticky::Sticky;
pub use part::{
    Activity, Attempt, Member, Message, OpenGroup, Outcome, Part, PartKey, PartKeyError,
    PastAttempt, RunFailure, Signal, Timer, TimerKind, Update, Wait, WaitFor,
};
pub use retry_policy::RetryPolicy;

/// A run and everything open in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Increases by one with every commit; the store refuses a commit based on another version.
    pub version: u64,
    pub spec: Arc<Spec>,
    pub core: Core,
    pub parts: BTreeMap<PartKey, Part>,
    /// Finds the tasks of a definition run. Derived from the parts.
    pub index: TaskIndex,
}

/// Which program decides the next step of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A worker that replays the history.
    #[default]
    Code,
    /// The server, from a JSON definition.
    Definition,
}

impl Program {
    /// Returns the name in lists, metrics and the debug view.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Definition => "definition",
        }
    }

    fn is_code(&self) -> bool {
        *self == Self::Code
    }
}

/// Facts that are fixed at the start and never change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub run_number: u64,
    #[serde(default, skip_serializing_if = "Program::is_code")]
    pub program: Program,
    pub workflow_type: String,
    pub task_queue: TaskQueue,
    pub arguments: Payload,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<RunId>,
    /// The call of the parent, if the run is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
    pub routing: Routing,
    /// Handlers that the workers declared when the workflow started, as the `declared_*` keys of `WorkflowStarted`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub declared: Map<String, Value>,
}

/// Which workers may lease the run's tasks, and in what order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routing {
    /// 0 is the most urgent, 9 the least.
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    pub fairness_weight: u32,
    /// The build the run is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
}

impl Routing {
    /// The middle of 0 to 9.
    pub const PRIORITY_DEFAULT: u8 = 5;
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            priority: Self::PRIORITY_DEFAULT,
            fairness_key: None,
            fairness_weight: 1,
            compatibility: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Created; no workflow task claimed yet.
    Pending,
    /// A workflow task is leased.
    Running,
    /// Open, and no workflow task is leased.
    Waiting,
    Completed,
    Failed,
    Cancelled,
    Terminated,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
        }
    }

    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Waiting => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Terminated => true,
        }
    }

    /// Returns `running`, `completed` or `failed`: the coarse state for list filters.
    pub fn bucket(self) -> &'static str {
        match self {
            Self::Pending | Self::Running | Self::Waiting => "running",
            Self::Completed => "completed",
            Self::Failed | Self::Cancelled | Self::Terminated => "failed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedReason {
    Completed,
    Continued,
    Failed,
    TimedOut,
    Cancelled,
    Terminated,
}

impl ClosedReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Continued => "continued",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
        }
    }

    pub fn status(self) -> Status {
        match self {
            Self::Completed | Self::Continued => Status::Completed,
            Self::Failed | Self::TimedOut => Status::Failed,
            Self::Cancelled => Status::Cancelled,
            Self::Terminated => Status::Terminated,
        }
    }

    /// Returns whether a caller from outside stopped the run.
    pub fn was_stopped(self) -> bool {
        match self {
            Self::Cancelled | Self::Terminated => true,
            Self::Completed | Self::Continued | Self::Failed | Self::TimedOut => false,
        }
    }
}

/// How and when the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    pub reason: ClosedReason,
    pub at: Timestamp,
    /// The reason in cancel or terminate, or the kind of timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The run that continues it: by continue-as-new, or as the retry of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_to: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<Box<Archived>>,
}

/// The record that an operator archived the closed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    pub at: Timestamp,
    pub command_id: CommandId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The part of a run that every transition rewrites.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Core {
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
    /// Sequence of the newest event.
    pub last_history_sequence: HistorySeq,
    /// Highest command sequence of a durable call.
    pub last_command_sequence: CommandSeq,
    /// Highest history sequence that a completed plain task had observed.
    pub handled_sequence: HistorySeq,
    /// Length of every event type and payload so far.
    pub history_size_bytes: u64,
    /// Largest parallel group seen.
    pub history_fan_out: u64,
    /// Recording time of the newest event: a clock that steps back does not make history step back.
    pub last_event_at: Timestamp,
    /// Number of the newest external command of this workflow, over all its runs.
    pub instance_command_sequence: RequestSeq,
    /// The newest commands that had no effect, by number, oldest first; older ones are deleted.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub idle_commands: VecDeque<RequestSeq>,
    /// Number of the newest outbox message.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outbox_sequence: u64,
    /// The open workflow task, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_task: Option<Box<WorkflowTask>>,
    /// The oldest wake that no task covers yet: it arrived while a task was leased, or while an update had its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_wake: Option<Box<Wake>>,
    /// The worker that keeps the run's history in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// Set when the workflow was asked to clean up and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Box<Cancellation>>,
    /// Number of parts of each kind that limits count.
    pub open: OpenCounts,
    /// `UpdateRejected` events of the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejected_updates: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memo: Option<Payload>,
    #[serde(default, skip_serializing_if = "map_is_empty")]
    pub search_attributes: Arc<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "map_is_empty")]
    pub search_attribute_types: Arc<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "streams_are_empty")]
    pub streams: Streams,
    #[serde(default, skip_serializing_if = "markers_are_empty")]
    pub version_markers: Arc<BTreeMap<String, i32>>,
    /// The state of a definition run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<Execution>>,
    /// When the run next needs attention without a call: a timer, a deadline, a lease, a retry. The stored alarm may be earlier
    /// than needed, never later; an early one costs one check and is set again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<Timestamp>,
}

fn map_is_empty(map: &Arc<Map<String, Value>>) -> bool {
    map.is_empty()
}

fn streams_are_empty(map: &Streams) -> bool {
    map.is_empty()
}

/// Every transition writes the core: fields that most runs never use cost nothing.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn markers_are_empty(map: &Arc<BTreeMap<String, i32>>) -> bool {
    map.is_empty()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCounts {
    pub activities: u64,
    pub timers: u64,
    /// Signals that no completed plain task has seen yet, and those still buffered.
    pub unseen_signals: u64,
    /// Bytes of the arguments of those signals.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen_signal_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub local_activities: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub updates: u64,
}

/// Something the workflow must look at, and its position in history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    pub sequence: HistorySeq,
    pub resume: Resume,
}

/// The one open workflow task of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTask {
    pub id: TaskId,
    pub available_at: Timestamp,
    /// How often it has been leased.
    pub attempt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<WorkflowLease>,
    pub resume: Resume,
    /// Failures in a row, for the back-off.
    #[serde(default)]
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Replay itself failed: an operator should check the deployed code.
    #[serde(default)]
    pub replay_blocked: bool,
    /// Whether the task is ready for matching.
    pub offered: bool,
    /// The worker it is reserved for, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Sticky>,
    /// The lease that ran out, until the next claim: its holder gets this reason, whether or not the sweep came first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<Box<WorkflowLease>>,
    /// The failure that made it ready again, kept for a repeat of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "last_reply")]
    pub last_reply: Option<Box<StoredReply>>,
    /// How local activities ended under the present lease, for a repeat of those calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_receipts: Vec<EndedAttempt>,
}

/// A worker's hold on a workflow task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowLease {
    pub owner: WorkerId,
    pub leased_at: Timestamp,
    pub expires_at: Timestamp,
    /// The end of history when the lease was granted: every page that the worker reads ends there.
    pub observed_sequence: HistorySeq,
    /// Command sequence of the signal that this lease delivers to a recorded wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_signal: Option<RequestSeq>,
    /// The wait it is delivered to, by command sequence of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_to: Option<CommandSeq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_request_id: Option<String>,
    /// The worker wrote into history under this lease, and reads to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refreshed: bool,
    /// The commands that were recorded before a local activity, for a repeat of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<Checkpoint>>,
    /// Condition waits that the newest checkpoint named: they are not satisfied yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_waits: Vec<CommandSeq>,
}

/// Why a workflow task exists, with the names of the wire. Absent keys are sent as null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resume {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_wait_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_wait_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_source_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_source_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_signal_id: Option<SignalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_wait_id: Option<WaitId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_execution_id: Option<ActivityExecutionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_sequence: Option<CommandSeq>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_id: Option<TimerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_wait_id: Option<WaitId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_definition_fingerprint: Option<String>,
    /// Set for a task that runs one update handler and nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_update_id: Option<UpdateId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_call_id: Option<ChildCallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_workflow_run_id: Option<RunId>,
    /// `local` when it is about a local activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<String>,
}

impl WorkflowTask {
    /// Returns whether it runs an update handler instead of the workflow.
    pub fn is_update(&self) -> bool {
        self.resume.workflow_update_id.is_some()
    }
}

impl Run {
    /// Returns a run that was read.
    pub fn new(version: u64, spec: Arc<Spec>, core: Core, parts: BTreeMap<PartKey, Part>) -> Self {
        let index = TaskIndex::of(&parts);
        Self {
            version,
            spec,
            core,
            parts,
            index,
        }
    }

    /// Returns a task of a definition run, open or ended.
    pub fn task(&self, number: u64) -> Option<&Arc<ExecutionTask>> {
        self.parts
            .get(&PartKey::Task(number))
            .or_else(|| self.parts.get(&PartKey::Past(number)))
            .and_then(Part::as_task)
    }

    /// Returns the stored reply to the report that ended an earlier claim of a local activity's retry task.
    pub(crate) fn retry_reply(&self, task_id: &TaskId) -> Option<&StoredReply> {
        if self.core.open.local_activities == 0 {
            return None;
        }
        self.parts
            .values()
            .filter_map(Part::as_local)
            .filter_map(|local| local.retry_task.as_ref())
            .find(|task| task.id == *task_id)
            .and_then(|task| task.last_reply.as_deref())
    }

    /// Returns whether the task is open in this run; a finished one has a row only.
    pub fn has_open_task(&self, task_id: &TaskId, sequence: CommandSeq) -> bool {
        self.core
            .workflow_task
            .as_ref()
            .is_some_and(|task| task.id == *task_id)
            || self
                .activity(sequence)
                .is_some_and(|activity| activity.task_id == *task_id)
            || self.local_activity(sequence).is_some_and(|local| {
                local
                    .retry_task
                    .as_ref()
                    .is_some_and(|task| task.id == *task_id)
            })
    }

    pub fn run_id(&self) -> &RunId {
        &self.spec.run_id
    }

    pub fn activity(&self, sequence: CommandSeq) -> Option<&Activity> {
        match self.parts.get(&PartKey::Activity(sequence)) {
            Some(Part::Activity(activity)) => Some(activity),
            _ => None,
        }
    }

    pub fn local_activity(&self, sequence: CommandSeq) -> Option<&LocalActivity> {
        match self.parts.get(&PartKey::LocalActivity(sequence)) {
            Some(Part::LocalActivity(local)) => Some(local),
            _ => None,
        }
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        match self.parts.get(&PartKey::Outcome) {
            Some(Part::Outcome(outcome)) => Some(outcome),
            _ => None,
        }
    }
}
