//! Where expressions find their values.

use std::borrow::Cow;

use longhaul_protocol::HistorySeq;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The members of the root `workflow` that a path can select together, as in `workflow..x`.
pub const WORKFLOW_MEMBERS: [&str; 12] = [
    "input",
    "output",
    "variables",
    "status",
    "workflowId",
    "workflowType",
    "version",
    "correlationId",
    "parentWorkflowId",
    "parentWorkflowTaskId",
    "reasonForIncompletion",
    "schemaVersion",
];

/// The members of a task that a path can select together.
pub const TASK_MEMBERS: [&str; 18] = [
    "input",
    "output",
    "status",
    "taskId",
    "taskType",
    "taskDefName",
    "referenceTaskName",
    "workflowInstanceId",
    "retryCount",
    "pollCount",
    "correlationId",
    "scheduledTime",
    "startTime",
    "endTime",
    "callbackAfterSeconds",
    "workerId",
    "reasonForIncompletion",
    "iteration",
];

/// The values of one run, as its templates see them.
pub trait Roots {
    /// Returns a member of the workflow, see [`WORKFLOW_MEMBERS`].
    fn workflow_member(&self, name: &str) -> Found<'_>;

    /// Returns a member of the latest attempt of the task with this reference, see [`TASK_MEMBERS`]. A task of a loop body is named
    /// without its iteration and means the newest one.
    fn task_member(&self, reference: &str, name: &str) -> Found<'_>;

    /// Returns an object with this member of the output of a task, if it is much cheaper than the whole output.
    fn output_with(&self, reference: &str, member: &str) -> Option<Found<'_>> {
        let _ = (reference, member);
        None
    }

    /// Returns whether the run has a task with this reference.
    fn has_task(&self, reference: &str) -> bool;

    /// Returns a value that has a name of its own: `CPEWF_TASK_ID`, or an environment variable of the server that may be read.
    fn named(&self, name: &str) -> Found<'_>;

    /// Returns a text of the environment store.
    fn environment(&self, name: &str) -> Option<Cow<'_, str>>;
}

/// The result of looking up a value.
#[derive(Clone, Debug)]
pub enum Found<'a> {
    /// The value is in memory.
    Value(Cow<'a, Value>),
    /// There is no such value.
    Missing,
    /// The expression stays as it is.
    Literal,
    /// The value exists and must be loaded first.
    Unloaded(ValueRef),
}

impl<'a> Found<'a> {
    /// Returns a value that the caller owns.
    pub fn value(value: impl Into<Value>) -> Self {
        Self::Value(Cow::Owned(value.into()))
    }

    /// Returns a value, or [`Self::Missing`] for `None`.
    pub fn optional(value: Option<&'a Value>) -> Self {
        value.map_or(Self::Missing, |value| Self::Value(Cow::Borrowed(value)))
    }
}

/// A large value that is stored once, in the event that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueRef {
    /// The event of the run.
    pub event: HistorySeq,
    /// The member of the event.
    pub member: EventMember,
}

/// The members of events that can be large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventMember {
    Input,
    Output,
    Variables,
}
