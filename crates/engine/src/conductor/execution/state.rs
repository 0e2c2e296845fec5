//! The state of a definition run beside the core of every run: [`Execution`], which each transition rewrites and which stays small,
//! and one [`ExecutionTask`] per attempt of a task.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{TaskDef, TaskStatus, TimeoutPolicy, WorkflowTask};
use longhaul_protocol::id::{RunId, TaskId, WorkflowId};
use longhaul_protocol::sequence::HistorySeq;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::conductor::definition::{bare_reference, reference_in_loop};
use crate::conductor::expression::{EventMember, ValueRef};
use crate::queue::StartLimits;
use crate::visibility::execution::CLASSIFIER_DEFAULT;

/// Values up to this many bytes of JSON are kept in the run. A larger one is stored once, in the event that brought it.
pub const INLINE_BYTES_MAX: usize = 2048;

/// What every transition of a definition run may rewrite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    pub version: i32,
    /// The hash of the snapshot of the definition.
    pub snapshot: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// 0 to 99, higher first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u8,
    #[serde(default, skip_serializing_if = "domains_are_empty")]
    pub task_to_domain: Arc<BTreeMap<String, String>>,
    /// How many runs are above this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Number of the newest task.
    pub last_seq: u64,
    /// Tasks that have not ended.
    pub open_tasks: u64,
    /// Tasks that the next pass works on: they ended and their successors are not scheduled, or they begin as soon as possible. It
    /// is empty unless the run is paused or the last pass reached its bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backlog: Vec<u64>,
    /// The first pass has not begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The time-out of the run counts from here, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_retried_at: Option<Timestamp>,
    /// When the run times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tasks that failed, by number; the names that clients see are those of the tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<u64>,
    /// Permissive tasks that failed for good: the run fails when it would complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permitted_failures: Vec<u64>,
    /// Set at the end of the run, for lists: the references of the failed tasks, joined by commas. Long lists are cut.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failed_references: String,
    /// Set at the end of the run, for lists: the definition names of the failed tasks. Long lists are cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_names: Vec<String>,
    /// What kind of workflow the definition calls itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<String>,
    /// The run has expanded a dynamic fork, so that a later one names its branches after itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_dynamic_fork: bool,
    /// EXCLUSIVE_JOIN tasks that wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusive_joins: Vec<u64>,
    /// The number of the newest message in the inbox.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_message: u64,
    /// How often the run was opened again. A message to another run names the life that it is about.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub life: u32,
    /// When the run began from its start again, if it did. All its tasks are younger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_at: Option<Timestamp>,
    /// Number of the newest task before the run began from its start again. Numbers are never used again; clients see them counted from here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_seq: u64,
    /// Code started the run: the first pass finds its definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<CalledDefinition>,
    pub updated_at: Timestamp,
}

/// The definition that code named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalledDefinition {
    pub name: String,
    /// `None` for the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
}

impl CalledDefinition {
    /// Reads the type of a child workflow: `name` or `name@version`.
    pub(crate) fn read(workflow_type: &str) -> Self {
        let versioned = workflow_type.rsplit_once('@').and_then(|(name, version)| {
            let version = version.parse().ok().filter(|version| *version > 0)?;
            (!name.is_empty()).then(|| (name.to_owned(), version))
        });
        match versioned {
            Some((name, version)) => Self {
                name,
                version: Some(version),
            },
            None => Self {
                name: workflow_type.to_owned(),
                version: None,
            },
        }
    }
}

impl Execution {
    /// Returns how many tasks were added since the run began, or began from its start again.
    pub fn task_count(&self) -> u64 {
        self.last_seq - self.first_seq.min(self.last_seq)
    }

    /// Returns what kind of workflow the run is.
    pub fn classifier(&self) -> &str {
        self.classifier.as_deref().unwrap_or(CLASSIFIER_DEFAULT)
    }
}

/// One attempt of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionTask {
    pub id: TaskId,
    /// The order of creation in the run, from 1.
    pub seq: u64,
    /// The reference of the node, with the iteration inside a loop.
    pub reference: String,
    pub task_type: String,
    pub def_name: String,
    pub status: TaskStatus,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iteration: u32,
    /// The DO_WHILE task of that iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looped_by: Option<u64>,
    /// The JOIN task that waits for it after a dynamic fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_by: Option<u64>,
    /// The outermost node that a dynamic fork brought. `None` for a node of the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<ForkedNode>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_count: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub poll_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_task_id: Option<TaskId>,
    /// A newer attempt has replaced this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
    pub scheduled_at: Timestamp,
    /// When the first attempt was scheduled.
    pub first_scheduled_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_delay_seconds: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub callback_after_seconds: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_workflow_id: Option<RunId>,
    /// The life of that run which the task waits for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub child_life: u32,
    /// The workflow of code that the task started. Its newest run is in `waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_workflow_id: Option<WorkflowId>,
    #[serde(default, skip_serializing_if = "TaskTimeouts::is_none")]
    pub timeouts: TaskTimeouts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_limits: Option<StartLimits>,
    /// Its definition enforces schemas of its input or output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_schemas: bool,
    /// Its node publishes events when its status changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub announces: bool,
    /// How its output is kept for later tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Box<Reuse>>,
    /// When a worker last got it. Set only if its starts are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// Lines that its log has had.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_lines: u64,
    #[serde(default, skip_serializing_if = "Waiting::is_nothing")]
    pub waiting: Waiting,
    pub input: Stored,
    #[serde(default, skip_serializing_if = "Stored::is_empty")]
    pub output: Stored,
}

/// A node that a dynamic fork brought.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ForkedNode(pub Arc<WorkflowTask>);

impl PartialEq for ForkedNode {
    fn eq(&self, other: &Self) -> bool {
        // Two nodes are the same if their JSON is.
        let json = |node: &WorkflowTask| serde_json::to_string(node).ok();
        Arc::ptr_eq(&self.0, &other.0) || json(&self.0) == json(&other.0)
    }
}

/// How the output of a task is kept for later tasks of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reuse {
    /// What must be equal, resolved.
    pub key: String,
    pub seconds: u64,
}

/// A message that waits in the inbox of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
    pub id: String,
    pub received_at: Timestamp,
    pub payload: Arc<Value>,
    /// The length of the payload as JSON.
    pub bytes: u64,
}

/// What an open task waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// The task has ended, or nothing in particular moves it: an update from outside.
    #[default]
    Nothing,
    /// A worker gets it from this time on.
    Queued {
        visible_at: Timestamp,
        /// The time has come and the queue has it.
        offered: bool,
    },
    /// A worker has it.
    Leased,
    /// A server has it. If the server does not report or renew before this time, the task goes back into its queue.
    Serving { until: Timestamp },
    /// The time of a WAIT, or of a delayed start of a sub-workflow.
    Time(Timestamp),
    /// Tasks that a JOIN waits for.
    Tasks(u64),
    /// Open tasks in the present iteration of a loop.
    Iteration(u64),
    /// The run of a sub-workflow.
    Child(RunId),
}

impl Waiting {
    fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }

    /// Returns the time at which it is or was visible to workers, or that it waits for.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Queued { visible_at, .. } | Self::Time(visible_at) => Some(*visible_at),
            Self::Nothing
            | Self::Leased
            | Self::Serving { .. }
            | Self::Tasks(_)
            | Self::Iteration(_)
            | Self::Child(_) => None,
        }
    }

    /// Returns whether a worker or a server has the task.
    pub fn is_leased(&self) -> bool {
        matches!(self, Self::Leased | Self::Serving { .. })
    }

    /// Returns when the lease of a server ends.
    pub(crate) fn served_until(&self) -> Option<Timestamp> {
        match self {
            Self::Serving { until } => Some(*until),
            Self::Nothing
            | Self::Queued { .. }
            | Self::Leased
            | Self::Time(_)
            | Self::Tasks(_)
            | Self::Iteration(_)
            | Self::Child(_) => None,
        }
    }

    fn is_queued(&self) -> bool {
        matches!(self, Self::Queued { .. })
    }
}

/// The time-outs of a task, in seconds; 0 is none. They are copied from the task definition when the attempt is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTimeouts {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub execution: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub poll: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub response: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TimeoutPolicy>,
}

impl TaskTimeouts {
    /// Returns the time-outs of a task definition.
    pub fn of(definition: &TaskDef) -> Self {
        let seconds = |value: i64| u64::try_from(value).unwrap_or(0);
        Self {
            total: seconds(definition.total_timeout_seconds),
            execution: seconds(definition.timeout_seconds),
            poll: definition
                .poll_timeout_seconds
                .map_or(0, |value| seconds(value.into())),
            response: seconds(definition.response_timeout_seconds),
            policy: Some(definition.timeout_policy),
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A JSON object of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stored {
    /// Kept here.
    Inline(Arc<Value>),
    /// Kept in the event that brought it.
    Event {
        sequence: HistorySeq,
        member: EventMember,
        /// The length as JSON.
        bytes: u64,
    },
}

impl Default for Stored {
    fn default() -> Self {
        Self::Inline(empty_object())
    }
}

impl Stored {
    /// Returns how to keep a value that an event of this number contains.
    pub(crate) fn of(
        value: &Arc<Value>,
        bytes: usize,
        sequence: HistorySeq,
        member: EventMember,
    ) -> Self {
        if bytes <= INLINE_BYTES_MAX {
            Self::Inline(Arc::clone(value))
        } else {
            Self::Event {
                sequence,
                member,
                bytes: bytes as u64,
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Inline(value) if value.as_object().is_some_and(Map::is_empty))
    }

    /// Returns the value, or where it is stored.
    pub fn get(&self) -> Result<&Arc<Value>, ValueRef> {
        match self {
            Self::Inline(value) => Ok(value),
            Self::Event {
                sequence, member, ..
            } => Err(ValueRef {
                event: *sequence,
                member: *member,
            }),
        }
    }

    /// Returns the length as JSON.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(value) => super::value::json_bytes(value) as u64,
            Self::Event { bytes, .. } => *bytes,
        }
    }
}

/// Returns `{}`, which all runs share.
pub(crate) fn empty_object() -> Arc<Value> {
    static EMPTY: LazyLock<Arc<Value>> = LazyLock::new(|| Arc::new(Value::Object(Map::new())));
    Arc::clone(&EMPTY)
}

impl ExecutionTask {
    /// Returns whether a caller passed over it before the flow reached it.
    pub fn is_skipped(&self) -> bool {
        self.status == TaskStatus::Skipped
    }

    /// Returns whether it has not ended.
    pub fn is_open(&self) -> bool {
        !self.status.is_terminal()
    }

    /// Returns the reference of its node, without the iteration of the loop that the task is in.
    pub fn node_reference(&self) -> &str {
        match self.looped_by {
            Some(_) => bare_reference(&self.reference, self.iteration),
            // A loop counts its iterations itself; as a task it is outside of its own body.
            None => &self.reference,
        }
    }

    /// Returns the reference of the task of another node in the same iteration.
    pub(crate) fn reference_beside(&self, bare: &str) -> String {
        match self.looped_by {
            Some(_) => reference_in_loop(bare, self.iteration),
            None => bare.to_owned(),
        }
    }

    /// Returns whether it is a loop that has not ended. The output of such a loop is put together from its body.
    pub(crate) fn is_open_loop(&self) -> bool {
        matches!(self.waiting, Waiting::Iteration(_))
    }

    /// Returns a phrase that completes "waits for".
    pub(crate) fn describe_wait(&self) -> String {
        let name = &self.reference;
        match &self.waiting {
            Waiting::Queued {
                visible_at,
                offered: false,
            } => format!("task {name} until it is queued at {visible_at}"),
            Waiting::Queued { .. } => format!(
                "task {name}: a worker must poll {}",
                super::record::queue_name(&self.task_type, self.domain.as_deref())
            ),
            Waiting::Leased => format!(
                "task {name} at worker {}",
                self.worker_id.as_deref().unwrap_or("without a name")
            ),
            Waiting::Serving { until } => format!(
                "task {name}: server {} runs it and holds it until {until}",
                self.worker_id.as_deref().unwrap_or("without a name")
            ),
            Waiting::Time(at) => format!("task {name} until {at}"),
            Waiting::Tasks(count) => format!("join {name}: {count} more tasks"),
            Waiting::Iteration(count) => {
                format!(
                    "loop {name}: {count} open tasks of iteration {}",
                    self.iteration
                )
            }
            Waiting::Child(run_id) => format!("task {name}: child workflow {run_id}"),
            Waiting::Nothing => format!("task {name}: an update or a signal from outside"),
        }
    }

    /// Returns when time next changes the task.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        if !self.is_open() {
            return None;
        }
        let is_offered = matches!(self.waiting, Waiting::Queued { offered: true, .. });
        let waits = self.waiting.time().filter(|_| !is_offered);
        let deadlines = self.deadlines().into_iter().flatten().map(|(_, at)| at);
        let lease = self.waiting.served_until();
        waits.into_iter().chain(lease).chain(deadlines).min()
    }

    /// Returns the deadlines of the open task, in the order in which they are checked. A policy that only alerts sets none, except
    /// for the response.
    pub(crate) fn deadlines(&self) -> [Option<(Deadline, Timestamp)>; 4] {
        let limits = &self.timeouts;
        let alerts = limits.policy == Some(TimeoutPolicy::AlertOnly);
        let after = |seconds: u64, from: Option<Timestamp>| {
            from.filter(|_| seconds > 0)
                .map(|from| from.plus_seconds(seconds))
        };
        let enforced = |deadline: Option<Timestamp>| deadline.filter(|_| !alerts);
        let queued_at = self.waiting.time().filter(|_| self.waiting.is_queued());
        // A server renews its lease without a change of this time: however long it holds the task, the time-out counts.
        let leased_at = self.waiting.is_leased().then_some(self.updated_at);
        [
            enforced(after(limits.total, Some(self.first_scheduled_at)))
                .map(|at| (Deadline::Total, at)),
            enforced(after(limits.execution, self.started_at)).map(|at| (Deadline::Execution, at)),
            enforced(after(limits.poll, queued_at)).map(|at| (Deadline::Poll, at)),
            after(limits.response, leased_at).map(|at| (Deadline::Response, at)),
        ]
    }
}

/// Which time-out of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    Total,
    Execution,
    Poll,
    Response,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

fn domains_are_empty(domains: &Arc<BTreeMap<String, String>>) -> bool {
    domains.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_called_definition_may_have_a_version() {
        let read = |text: &str| {
            let called = CalledDefinition::read(text);
            (called.name, called.version)
        };
        assert_eq!(read("pack"), ("pack".to_owned(), None));
        assert_eq!(read("pack@2"), ("pack".to_owned(), Some(2)));
        assert_eq!(read("a@b@3"), ("a@b".to_owned(), Some(3)));
        for whole in ["pack@", "pack@0", "pack@-1", "pack@x", "@1"] {
            assert_eq!(read(whole), (whole.to_owned(), None));
        }
    }
}
