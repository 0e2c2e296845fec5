//! The rows that a decision writes. They commit together, all or nothing. Wakes follow from the rows after the commit and are hints
//! only: losing one costs latency, never correctness.
//!
//! The order inside one commit matters only for the version check: it comes first, and a stale version writes nothing.

use std::sync::Arc;

use longhaul_protocol::history::{Event, LimitBreach};
use longhaul_protocol::id::{
    ActivityAttemptId, CommandId, FailureId, Namespace, RunId, TaskId, TaskQueue, UpdateId,
    WorkerId, WorkflowId,
};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq, RequestSeq};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_protocol::workflow_command::FieldErrors;
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};

mod cap;
mod document;

pub use cap::{Cap, CapList, CapScope};
pub use document::{Document, DocumentChange, DocumentKey, DocumentKind};

use crate::conductor::execution::index::TaskIndex;
use crate::digest;
use crate::queue::StartLimits;
use crate::run::state::{Core, Part, PartKey, Run, Spec, Status};
use crate::session::Session;

/// All changes of one command: the run it was decided on, the runs it created (a start, children, continue-as-new), and the worker
/// session that an activity is admitted to or renews. No other run is ever written here: a message in the outbox of this run
/// informs the other run. Registry documents have commits of their own.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub run: Option<Box<RunChange>>,
    pub created: Vec<RunChange>,
    /// Worker sessions that change in the same commit, each in the version after the stored one.
    pub sessions: Vec<Session>,
    /// Registry documents, each at most once.
    pub documents: Box<[DocumentChange]>,
    /// Bounds that must hold after the commit. Only for a store that several servers share.
    pub caps: Option<Box<CapList>>,
}

/// The output of a task of a definition run, for later tasks of the same name and key.
#[derive(Clone, Debug, PartialEq)]
pub struct ReusableOutput {
    pub namespace: Namespace,
    /// The name of the task definition.
    pub name: String,
    pub key: String,
    pub output: Arc<serde_json::Value>,
    pub expires_at: Timestamp,
}

/// Slots for the outputs of a namespace. Two keys of one slot replace each other, which costs repeated work only, so a namespace never
/// takes more than about 130 MB and nothing must be cleaned up.
const SLOTS: u64 = 4096;

impl ReusableOutput {
    /// Returns the slot of an output.
    pub fn slot(name: &str, key: &str) -> u32 {
        // FNV-1a; the same on every server.
        let bytes = name.bytes().chain([0]).chain(key.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        u32::try_from(hash % SLOTS).unwrap_or(0)
    }
}

impl Changes {
    /// Returns changes that contain documents only.
    pub fn of_documents(documents: Vec<DocumentChange>) -> Self {
        Self {
            documents: documents.into(),
            ..Self::default()
        }
    }

    /// Returns changes that contain sessions only.
    pub fn of_sessions(sessions: Vec<Session>) -> Self {
        Self {
            sessions,
            ..Self::default()
        }
    }

    /// Returns the bounds that must hold after the commit.
    pub fn caps(&self) -> &[Cap] {
        self.caps.as_ref().map_or(&[], |caps| &caps.0)
    }

    /// Adds bounds that must hold after the commit.
    pub fn add_caps(&mut self, caps: impl IntoIterator<Item = Cap>) {
        let mut caps = caps.into_iter().peekable();
        if caps.peek().is_some() {
            self.caps.get_or_insert_default().0.extend(caps);
        }
    }

    /// Removes all bounds: the only server of a store counts in memory.
    pub fn clear_caps(&mut self) {
        self.caps = None;
    }

    /// Returns every run that is written.
    pub fn runs(&self) -> impl Iterator<Item = &RunChange> {
        self.run.as_deref().into_iter().chain(&self.created)
    }
}

/// The new rows of one run.
#[derive(Clone, Debug)]
pub struct RunChange {
    pub spec: Arc<Spec>,
    /// `None` if the run is new.
    pub base_version: Option<u64>,
    pub core: Core,
    /// `None` deletes the part.
    pub parts: Vec<(PartKey, Option<Part>)>,
    pub events: Vec<Event>,
    pub tasks: Vec<TaskRow>,
    /// Tasks whose rows are deleted: a run that was opened again does not have them any more. None of them is in `tasks`.
    pub deleted_tasks: Vec<TaskId>,
    pub commands: Vec<CommandRow>,
    /// Commands that are deleted, by sequence, together with their request ids.
    pub deleted_commands: Vec<RequestSeq>,
    pub instance: Option<InstanceChange>,
    /// The idempotency key that a new run takes.
    pub key_claim: Option<KeyClaim>,
    /// Whether this change sets search attributes, so that their index entries are rewritten.
    pub sets_search_attributes: bool,
    /// Lines of the logs of tasks; `None` deletes the line.
    pub logs: Vec<(LogKey, Option<LogLine>)>,
    /// Outputs of tasks that other tasks may take. They are kept after the commit; losing one costs repeated work only.
    pub outputs: Vec<ReusableOutput>,
}

/// The place of a line in the logs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    /// The number of the task in its run.
    pub task: u64,
    /// The number of the line in the log of the task, from 1.
    pub line: u64,
}

/// One line of the log of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When the worker wrote it.
    pub created_at: Timestamp,
    pub text: String,
}

impl RunChange {
    /// Returns the version of the run after this change.
    pub fn version(&self) -> u64 {
        self.base_version.map_or(1, |base| base + 1)
    }

    /// Returns the run after this change. `before` is the run it was decided on, or `None` for a new run.
    pub fn apply(&self, before: Option<Run>) -> Run {
        let before = before.unwrap_or_else(|| {
            let (spec, core) = (Arc::clone(&self.spec), self.core.clone());
            Run::new(0, spec, core, std::collections::BTreeMap::new())
        });
        self.apply_to(before).0
    }

    /// Returns the run after this change, and what the change replaced.
    pub fn apply_to(&self, mut run: Run) -> (Run, Replaced) {
        let mut parts = Vec::with_capacity(self.parts.len());
        for (key, part) in &self.parts {
            let before = match part {
                Some(part) => {
                    if let Some(task) = part.as_task() {
                        run.index.add(task);
                    }
                    run.parts.insert(*key, part.clone())
                }
                None => run.parts.remove(key),
            };
            parts.push((*key, before));
        }
        let replaced = Replaced {
            version: std::mem::replace(&mut run.version, self.version()),
            core: std::mem::replace(&mut run.core, self.core.clone()),
            parts,
        };
        if !self.deleted_tasks.is_empty() {
            // An attempt before a deleted one is the newest again.
            run.index = TaskIndex::of(&run.parts);
            return (run, replaced);
        }
        // A task that was filed is still there under another key; a deleted one is not.
        for (key, before) in &replaced.parts {
            let is_removed = !run.parts.contains_key(key);
            if let Some(task) = before
                .as_ref()
                .filter(|_| is_removed)
                .and_then(Part::as_task)
                && run.task(task.seq).is_none()
            {
                run.index.remove(task);
            }
        }
        (run, replaced)
    }
}

/// What a change replaced in a run.
#[derive(Clone, Debug)]
pub struct Replaced {
    version: u64,
    core: Core,
    /// `None` if the change added the part.
    parts: Vec<(PartKey, Option<Part>)>,
}

impl Replaced {
    /// Returns the run before the change.
    pub fn restore(self, run: Run) -> Run {
        let Run {
            spec, mut parts, ..
        } = run;
        // Backwards: a change may write a part twice.
        for (key, before) in self.parts.into_iter().rev() {
            match before {
                Some(part) => parts.insert(key, part),
                None => parts.remove(&key),
            };
        }
        Run::new(self.version, spec, self.core, parts)
    }
}

/// The workflow's row, which names its current run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceChange {
    /// The workflow id must be free.
    Create,
    /// The run becomes the current one.
    MoveCurrent { run_number: u64 },
}

/// A new run takes an idempotency key. Keys belong to a namespace and a workflow type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    pub key: String,
    /// The run that has the key now, and loses it.
    pub earlier: Option<RunId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    Workflow,
    Activity,
    /// A task of a definition run.
    Execution,
}

impl TaskKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Activity => "activity",
            Self::Execution => "execution",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Ready later; the alarm of its run will make it ready.
    Scheduled,
    /// May be leased now.
    Ready,
    Leased,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// Returns the name on the wire, which does not distinguish "later" from "now".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled | Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn is_open(self) -> bool {
        match self {
            Self::Scheduled | Self::Ready | Self::Leased => true,
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }
}

/// The task row for matching, lookups by id and operators. The run decides; this row follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    pub task_id: TaskId,
    pub run_id: RunId,
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub kind: TaskKind,
    pub queue: TaskQueue,
    /// Workflow type or activity type.
    pub type_name: String,
    pub status: TaskStatus,
    pub available_at: Timestamp,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    pub fairness_weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// What the worker must be able to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_capability: Option<String>,
    /// The only worker that may lease it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<WorkerId>,
    /// The session that an activity must run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_session: Option<Box<WorkerSessionOptions>>,
    /// Command sequence of the activity call; 0 for a workflow task.
    pub sequence: CommandSeq,
    /// Attempt of the newest lease.
    pub attempt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_owner: Option<WorkerId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_request_id: Option<String>,
    /// The reply to a repeat of the call that finished the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Box<ClosedTask>>,
    /// The limits of its task definition, if it is a task of a definition run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_limits: Option<StartLimits>,
    /// When a worker last got it. Set only if its starts are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// What searches find it by, if it is a task of a definition run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_by: Option<Box<TaskFacts>>,
}

/// What searches read of a task of a definition run, besides its ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFacts {
    pub task_type: String,
    /// The name of its task definition.
    pub def_name: String,
    pub reference: String,
    pub status: longhaul_protocol::conductor::TaskStatus,
    pub workflow_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    pub scheduled_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub updated_at: Timestamp,
}

/// The record of a finished task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClosedTask {
    /// The call that finished it; `None` if the run or a timeout did.
    #[serde(default, rename = "report", skip_serializing_if = "Option::is_none")]
    pub reply: Option<StoredReply>,
    /// Attempts of this task that may still report late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<ActivityAttemptId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity_status: Option<ActivityEnd>,
    /// Whether the worker has reported that its callback stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

impl ClosedTask {
    /// Returns the record of a workflow task that keeps the reply to a report.
    pub fn with_reply(reply: StoredReply) -> Self {
        Self {
            reply: Some(reply),
            attempts: Vec::new(),
            activity_status: None,
            stopped: false,
        }
    }
}

/// How an activity task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityEnd {
    Completed,
    Failed,
    Cancelled,
}

impl ActivityEnd {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An accepted complete or fail and its outcome, stored to answer a repeat of the same report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredReply {
    pub verb: Verb,
    pub owner: WorkerId,
    /// Attempt of a workflow task. A report on an activity has `attempt_id` instead.
    pub attempt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<ActivityAttemptId>,
    #[serde(rename = "answer")]
    pub outcome: TaskOutcome,
    /// Details of a failure for people, beyond the recorded history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Box<Diagnosis>>,
}

/// The reply to a complete or fail.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReply {
    pub outcome: TaskOutcome,
    /// The same report was accepted before.
    pub duplicate: bool,
}

impl TaskReply {
    pub(crate) fn first(outcome: TaskOutcome) -> Self {
        Self {
            outcome,
            duplicate: false,
        }
    }

    pub(crate) fn repeated(outcome: TaskOutcome) -> Self {
        Self {
            outcome,
            duplicate: true,
        }
    }
}

/// What an accepted report did. Its keys are stored in rows and must stay readable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TaskOutcome {
    WorkflowTaskCompleted(WorkflowTaskCompleted),
    WorkflowTaskFailed(WorkflowTaskFailed),
    ActivityReported(ActivityReported),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTaskCompleted {
    pub task_id: TaskId,
    #[serde(rename = "workflow_task_attempt")]
    pub attempt: u64,
    pub run_id: RunId,
    pub run_status: Status,
    /// Tasks that the decision opened: of this run and of runs that it created.
    pub created_task_ids: Vec<TaskId>,
    /// Set when the decision broke a limit, which failed the run.
    #[serde(flatten)]
    pub limit: Option<ExceededLimit>,
}

/// A structural limit that a decision broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceededLimit {
    #[serde(rename = "limit_kind")]
    pub kind: String,
    #[serde(rename = "current_value")]
    pub value: u64,
    #[serde(rename = "configured_limit")]
    pub configured: u64,
}

impl From<&LimitBreach> for ExceededLimit {
    fn from(breach: &LimitBreach) -> Self {
        Self {
            kind: breach.kind.to_owned(),
            value: breach.value,
            configured: breach.configured,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTaskFailed {
    pub task_id: TaskId,
    #[serde(rename = "workflow_task_attempt")]
    pub attempt: u64,
    pub outcome: FailOutcome,
    pub run_status: Status,
    pub next_task_id: Option<TaskId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailOutcome {
    /// Replay met only work that is still pending. It is not a failure.
    WaitingForHistory,
    /// The task becomes ready again later.
    Failed,
}

impl FailOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitingForHistory => "waiting_for_history",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActivityReported {
    pub task_id: TaskId,
    pub activity_attempt_id: ActivityAttemptId,
    pub outcome: ActivityOutcome,
    /// Set when a result was too large and failed the activity.
    #[serde(default, rename = "reason", skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitReason>,
    /// The retry, or the workflow task that the outcome woke.
    pub next_task_id: Option<TaskId>,
    /// Set by a failure: whether another attempt follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_scheduled: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityOutcome {
    Completed,
    Failed,
}

impl ActivityOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// The one reason that an accepted activity report can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitReason {
    StructuralLimitExceeded,
}

/// Details of a failure that a worker reported for people only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_trace: Option<String>,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Complete,
    Fail,
}

/// What an external command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandType {
    Start,
    Signal,
    Update,
    /// A message of a stream.
    Message,
    Cancel,
    Terminate,
    RequestCancellation,
    Repair,
    Archive,
}

impl CommandType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Signal => "signal",
            Self::Update => "update",
            Self::Message => "message",
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
            Self::RequestCancellation => "request_cancellation",
            Self::Repair => "repair",
            Self::Archive => "archive",
        }
    }
}

/// Whether a command named a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetScope {
    /// The workflow, whichever run is current.
    Instance,
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandStatus {
    Accepted,
    Rejected,
}

/// An external command, for audit and for answering a repeat with the same request id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandRow {
    pub command_id: CommandId,
    /// Increases per workflow.
    pub sequence: RequestSeq,
    #[serde(rename = "type")]
    pub command_type: CommandType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_name: Option<String>,
    pub target_scope: TargetScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Set while an update is open, in the part that holds it. Only command rows that an earlier release wrote contain the
    /// arguments: they can be large, and the event of an accepted command contains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Payload>,
    /// A repeat with the same request id is compared with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_digest: Option<String>,
    pub status: CommandStatus,
    pub outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// How the command arrived: text from the server, stored and never interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    pub at: Timestamp,
    /// Its position in its stream, if it is a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The state of the update, if it is an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Box<UpdateRecord>>,
}

impl CommandRow {
    /// Returns whether the command was refused, or had nothing to do. Such commands write no event, so nothing else limits their
    /// number.
    pub fn is_without_effect(&self) -> bool {
        self.status == CommandStatus::Rejected
            || [
                "returned_existing_active",
                "repair_not_needed",
                "archive_not_needed",
                "cancellation_already_requested",
            ]
            .contains(&self.outcome.as_str())
    }

    /// Returns whether a repeat has the same arguments.
    pub(crate) fn has_arguments(&self, arguments: Option<&Payload>) -> bool {
        match (&self.arguments_digest, arguments) {
            (Some(digest), Some(arguments)) => *digest == digest::of(arguments),
            (Some(_), None) => false,
            (None, _) => digest::same_value(self.arguments.as_ref(), arguments),
        }
    }

    /// Returns the row as it is stored.
    pub(crate) fn without_arguments(self) -> Self {
        Self {
            arguments: None,
            ..self
        }
    }
}

/// An update for its caller and for operators. Rewritten once, when the update has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateRecord {
    pub update_id: UpdateId,
    pub status: UpdateStatus,
    /// The newest wait that was open when the update was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_sequence: Option<CommandSeq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// History sequence of its `UpdateCompleted` event, which also contains the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_event: Option<HistorySeq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<UpdateFailed>,
    #[serde(default, skip_serializing_if = "FieldErrors::is_empty")]
    pub validation_errors: FieldErrors,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateFailed {
    pub failure_id: FailureId,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateStatus {
    Accepted,
    Rejected,
    Completed,
    Failed,
}

impl UpdateStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: Value) -> TaskOutcome {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn stored_replies_of_earlier_releases_are_read() {
        let body = json!({
            "task_id": "t", "workflow_task_attempt": 2, "outcome": "completed", "recorded": true, "run_id": "r",
            "run_status": "failed", "created_task_ids": ["u"], "reason": "structural_limit_exceeded",
            "limit_kind": "payload_size", "current_value": 5, "configured_limit": 4,
        });
        let TaskOutcome::WorkflowTaskCompleted(completed) = read(body) else {
            panic!("not a completed workflow task");
        };
        assert_eq!(
            (completed.attempt, completed.run_status),
            (2, Status::Failed)
        );
        assert_eq!(
            completed.limit,
            Some(ExceededLimit {
                kind: "payload_size".to_owned(),
                value: 5,
                configured: 4,
            })
        );
        let body = json!({
            "task_id": "t", "workflow_task_attempt": 1, "outcome": "waiting_for_history", "recorded": true,
            "run_status": "waiting", "reason": null, "next_task_id": null,
        });
        let TaskOutcome::WorkflowTaskFailed(failed) = read(body) else {
            panic!("not a failed workflow task");
        };
        assert_eq!(failed.outcome, FailOutcome::WaitingForHistory);
        let body = json!({
            "task_id": "t", "activity_attempt_id": "a", "outcome": "failed", "recorded": true, "reason": null,
            "next_task_id": "u", "retry_scheduled": true,
        });
        let TaskOutcome::ActivityReported(reported) = read(body) else {
            panic!("not a reported activity");
        };
        assert_eq!(reported.outcome, ActivityOutcome::Failed);
        assert_eq!(
            (reported.limit, reported.retry_scheduled),
            (None, Some(true))
        );
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written() {
        let outcome = TaskOutcome::WorkflowTaskCompleted(WorkflowTaskCompleted {
            task_id: TaskId::from("t"),
            attempt: 1,
            run_id: RunId::from("r"),
            run_status: Status::Waiting,
            created_task_ids: Vec::new(),
            limit: None,
        });
        assert_eq!(read(serde_json::to_value(&outcome).unwrap()), outcome);
    }
}
