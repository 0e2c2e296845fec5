//! Nodes without nodes inside: tasks of workers, waits, scripts, variables, and the end of a workflow.

use std::time::Duration;

use serde::Serialize;

use super::error;
use super::node::{Node, Plain, sealed};

/// The input member with the name of the task that a DYNAMIC node runs. Builders of other languages use the same one.
const DYNAMIC_NAME: &str = "taskToExecute";

/// Returns a task for workers that poll `name`. The reference is unique in the workflow.
pub fn simple(name: impl Into<String>, reference: impl Into<String>) -> Node {
    Node::new("SIMPLE", name, reference, Plain)
}

/// Returns a node of any type, such as a type that only your workers know. Workers of an unknown type poll the type.
pub fn raw(
    task_type: impl Into<String>,
    name: impl Into<String>,
    reference: impl Into<String>,
) -> Node {
    Node::new(task_type, name, reference, Plain)
}

/// Returns a task whose name is a value of the run.
pub fn dynamic(reference: impl Into<String>, task_name: impl Serialize) -> Node {
    let mut node = Node::operator("DYNAMIC", reference, Plain);
    node.task.dynamic_task_name_param = Some(DYNAMIC_NAME.to_owned());
    node.input(DYNAMIC_NAME, task_name)
}

/// Returns a node that writes each of its inputs to the variable of the same name.
pub fn set_variable(reference: impl Into<String>) -> Node {
    Node::operator("SET_VARIABLE", reference, Plain)
}

/// Returns a node that waits until a client updates its task.
pub fn wait(reference: impl Into<String>) -> Node {
    Node::operator("WAIT", reference, Plain)
}

/// Returns a node that waits for a duration of whole seconds.
pub fn wait_for(reference: impl Into<String>, duration: Duration) -> Node {
    let mut node = wait(reference);
    let seconds = error::seconds::<u64>(node.place(), "inputParameters.duration", duration);
    match node.errors.keep(seconds) {
        Some(seconds) => node.input("duration", format!("{seconds}s")),
        None => node,
    }
}

/// Returns a node that waits until a time: a text such as `2026-11-16 04:30 Europe/Berlin`, or an expression for one.
pub fn wait_until(reference: impl Into<String>, time: impl Serialize) -> Node {
    wait(reference).input("until", time)
}

/// Returns a node that waits until a person completes its task.
pub fn human(reference: impl Into<String>) -> Node {
    Node::operator("HUMAN", reference, Plain)
}

/// Returns a node that does nothing.
pub fn noop(reference: impl Into<String>) -> Node {
    Node::operator("NOOP", reference, Plain)
}

/// Returns a node that runs JavaScript. The script reads its inputs as members of `$`, and its value is the output `result`.
pub fn inline(reference: impl Into<String>, script: impl Into<String>) -> Node {
    Node::operator("INLINE", reference, Plain)
        .input("evaluatorType", "javascript")
        .input("expression", script.into())
}

/// Returns a node that runs a jq query over its inputs. The first value is the output `result`, all values are `resultList`.
///
/// longhaul does not run such tasks yet. It queues them under their type, for workers.
pub fn jq(reference: impl Into<String>, query: impl Into<String>) -> Node {
    Node::operator("JSON_JQ_TRANSFORM", reference, Plain).input("queryExpression", query.into())
}

/// The kind of a node that ends the workflow.
#[derive(Clone, Debug)]
pub struct Terminate;

impl sealed::Finish for Terminate {}

/// The state in which a TERMINATE node ends the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationStatus {
    /// The workflow is completed.
    Completed,
    /// The workflow has failed. Its failure workflow starts.
    Failed,
    /// The workflow is terminated. Its failure workflow starts.
    Terminated,
}

impl TerminationStatus {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Terminated => "TERMINATED",
        }
    }
}

/// Returns a node that ends the workflow.
pub fn terminate(reference: impl Into<String>, status: TerminationStatus) -> Node<Terminate> {
    Node::operator("TERMINATE", reference, Terminate).input("terminationStatus", status.as_str())
}

impl Node<Terminate> {
    /// Sets why the workflow ends.
    pub fn reason(self, reason: impl Serialize) -> Self {
        self.input("terminationReason", reason)
    }

    /// Sets the output of the workflow. It replaces the outputs of the definition.
    pub fn workflow_output(self, output: impl Serialize) -> Self {
        self.input("workflowOutput", output)
    }
}
