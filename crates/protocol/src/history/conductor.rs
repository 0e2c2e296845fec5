//! Events of definition runs. A task is named by its number in the run, `seq`, which is also the order of the task list.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::conductor::{TaskStatus, WorkflowStatus, WorkflowTask};
use crate::id::{RunId, TaskId};
use crate::time::Timestamp;

/// A definition run began.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionStarted {
    /// The name of the definition.
    pub name: String,
    /// The version of the definition.
    pub version: i32,
    /// The hash of the snapshot of the definition.
    pub snapshot: Arc<str>,
    /// The input after the template of the definition was merged in.
    pub input: Arc<Value>,
    /// The variables that the definition begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<Arc<Value>>,
    /// The caller's own name for related runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// 0 to 99, higher is delivered first.
    pub priority: u8,
    /// Domains by task type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub task_to_domain: BTreeMap<String, String>,
    /// The run whose task this run is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// That task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
}

/// A task was added to the run.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionTaskScheduled {
    /// The number of the task.
    pub seq: u64,
    /// The id of the task.
    pub task_id: TaskId,
    /// The reference of its node, with the iteration of a loop.
    pub reference: String,
    /// The type that clients see.
    pub task_type: String,
    /// The name of its task definition.
    pub task_def_name: String,
    /// `SCHEDULED`, `IN_PROGRESS`, or a final status of an operator that ends at once.
    pub status: TaskStatus,
    /// The iteration of its loop; 0 outside of loops.
    #[serde(skip_serializing_if = "is_zero")]
    pub iteration: u32,
    /// The attempt before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_task_id: Option<TaskId>,
    /// 0 for the first attempt.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_count: u32,
    /// When a worker may get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible_at: Option<Timestamp>,
    /// The domain of its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The node, if a dynamic fork brought it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<WorkflowTask>>,
    /// The run that a sub-workflow task started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_workflow_id: Option<RunId>,
    /// The resolved input.
    pub input: Arc<Value>,
    /// A caller asked for the task: nothing of an earlier attempt is carried over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// A worker, or the server, began the task.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionTaskStarted {
    /// The number of the task.
    pub seq: u64,
    /// The worker, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// How often the task was handed out, this time included.
    pub poll_count: u32,
    /// The run that a sub-workflow task started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_workflow_id: Option<RunId>,
}

/// A task got a report and stays open.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionTaskUpdated {
    /// The number of the task.
    pub seq: u64,
    /// The status after the report.
    pub status: TaskStatus,
    /// Seconds until it is delivered again.
    pub callback_after_seconds: i64,
    /// The reason that the report gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The worker, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The iteration that a loop has reached.
    #[serde(skip_serializing_if = "is_zero")]
    pub iteration: u32,
    /// The output so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
}

/// A task ended.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionTaskEnded {
    /// The number of the task.
    pub seq: u64,
    /// The final status.
    pub status: TaskStatus,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The worker, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The output. Absent if it did not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    /// The next attempt, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<TaskId>,
}

/// Variables of the run changed.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionVariablesSet {
    /// All variables after the change.
    pub variables: Arc<Value>,
}

/// A caller pushed a message. It waits in the inbox until a task takes it; the output of that task has it then.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionMessageReceived {
    /// The id of the message.
    pub message_id: String,
    /// What the caller sent.
    pub payload: Arc<Value>,
}

/// The run was paused or resumed.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionPaused {
    /// The reason of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A definition run ended.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionEnded {
    /// The final status.
    pub status: WorkflowStatus,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// References of the tasks that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_references: Vec<String>,
    /// The output.
    pub output: Arc<Value>,
}

/// A definition run that had ended goes on. What follows is its next life.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionReopened {
    /// Who opened it: `restart`, `retry`, `rerun`, or `sub_workflow` if the run of one of its tasks was opened again.
    pub cause: &'static str,
    /// The number of the life that begins, from 1 for the first reopening.
    pub life: u32,
    /// The tasks whose records are removed: the first and the last number of each range.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<(u64, u64)>,
    /// The version of the definition, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
    /// The hash of the snapshot of the definition, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Arc<str>>,
    /// The caller's own name for related runs, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The input, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<Value>>,
    /// The variables, if they begin from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<Arc<Value>>,
}

/// A task that had ended is in progress again.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionTaskReopened {
    /// The number of the task.
    pub seq: u64,
    /// The iteration that a loop goes on with.
    #[serde(skip_serializing_if = "is_zero")]
    pub iteration: u32,
    /// The output from which it goes on.
    pub output: Arc<Value>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
