//! One node of a workflow definition, and the members that nodes of all types have.

use std::time::Duration;

use longhaul_protocol::conductor::{CacheConfig, TaskDef, WorkflowTask};
use serde::Serialize;

use super::error::{self, FirstError, Place};
use super::expression::{Expression, input_of, output_of};
use super::steps::Steps;

/// One node of a workflow definition. The kind `K` adds the methods of its operator.
#[derive(Clone, Debug)]
#[must_use = "a node does nothing until it is added to a workflow"]
pub struct Node<K = Plain> {
    pub(super) task: WorkflowTask,
    pub(super) errors: FirstError,
    pub(super) kind: K,
}

/// The kind of a [`Node`]. Only the kinds of this module exist.
pub trait Kind: sealed::Finish {}

impl<K: sealed::Finish> Kind for K {}

pub(super) mod sealed {
    use longhaul_protocol::conductor::WorkflowTask;

    /// The last step of a node before it becomes part of a list.
    pub trait Finish: Sized {
        /// Returns the nodes that the list gets.
        fn finish(self, task: WorkflowTask) -> Vec<WorkflowTask> {
            vec![task]
        }
    }
}

/// The kind of a node without methods of its own.
#[derive(Clone, Debug)]
pub struct Plain;

impl sealed::Finish for Plain {}

impl From<WorkflowTask> for Node {
    /// Returns a node that is written as it is.
    fn from(task: WorkflowTask) -> Self {
        Self {
            task,
            errors: FirstError::default(),
            kind: Plain,
        }
    }
}

impl<K> Node<K> {
    /// Returns a node with these members and the defaults of the others.
    pub(super) fn new(
        task_type: impl Into<String>,
        name: impl Into<String>,
        reference: impl Into<String>,
        kind: K,
    ) -> Self {
        let task = WorkflowTask {
            task_type: task_type.into(),
            name: name.into(),
            task_reference_name: reference.into(),
            ..WorkflowTask::default()
        };
        Self {
            task,
            errors: FirstError::default(),
            kind,
        }
    }

    /// Returns a node of an operator. Its name is its reference.
    pub(super) fn operator(task_type: &str, reference: impl Into<String>, kind: K) -> Self {
        let reference = reference.into();
        Self::new(task_type, reference.clone(), reference, kind)
    }

    /// Returns the place of this node for an error.
    pub(super) fn place(&self) -> Place {
        Place::Node(self.task.task_reference_name.clone())
    }

    /// Adds the nodes of a list inside this node.
    pub(super) fn take(
        &mut self,
        steps: impl Into<Steps>,
    ) -> longhaul_protocol::conductor::NodeList {
        let steps = steps.into();
        self.errors.absorb(steps.errors);
        steps.list
    }

    /// Returns the reference of the node.
    pub fn reference(&self) -> &str {
        &self.task.task_reference_name
    }

    /// Returns the expression for a value of the output of this node. An empty path is the whole output.
    pub fn output(&self, path: &str) -> Expression {
        output_of(self.reference(), path)
    }

    /// Returns the expression for a value of the input of this node. An empty path is the whole input.
    pub fn input_value(&self, path: &str) -> Expression {
        input_of(self.reference(), path)
    }

    /// Sets an input member: an [`Expression`], a text with `${…}`, or any value that can be written as JSON.
    pub fn input(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let value = error::json(self.place(), &name, value);
        if let Some(value) = self.errors.keep(value) {
            self.task.input_parameters.insert(name, value);
        }
        self
    }

    /// Sets the name by which the node finds its registered task definition. The name of an operator is its reference by default.
    pub fn task_name(mut self, name: impl Into<String>) -> Self {
        self.task.name = name.into();
        self
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.task.description = Some(description.into());
        self
    }

    /// Lets the workflow continue if the task fails and has no more retries.
    pub fn optional(mut self) -> Self {
        self.task.optional = true;
        self
    }

    /// Lets the workflow continue if the task fails. The workflow then fails when it would complete.
    pub fn permissive(mut self) -> Self {
        self.task.permissive = true;
        self
    }

    /// Keeps the task open after its action succeeded, until a client updates it. HTTP and EVENT use it.
    pub fn async_complete(mut self) -> Self {
        self.task.async_complete = true;
        self
    }

    /// Sets the delay until a worker can get the task: whole seconds.
    pub fn start_delay(mut self, delay: Duration) -> Self {
        let delay = error::seconds(self.place(), "startDelay", delay);
        if let Some(delay) = self.errors.keep(delay) {
            self.task.start_delay = delay;
        }
        self
    }

    /// Sets how many attempts may follow the first one. It replaces the count of the task definition.
    pub fn retry_count(mut self, count: u32) -> Self {
        let count = error::number(self.place(), "retryCount", count);
        self.task.retry_count = self.errors.keep(count);
        self
    }

    /// Sets a task definition for this node only. It replaces the registered one.
    pub fn task_definition(mut self, definition: TaskDef) -> Self {
        self.task.task_definition = Some(definition.into());
        self
    }

    /// Uses the output of an earlier task of the same name and key again, for a time of whole seconds. The key is a text with
    /// expressions over the input of the task, such as `${user}-${amount}`.
    pub fn cache(mut self, key: impl Into<String>, time: Duration) -> Self {
        let time = error::seconds(self.place(), "cacheConfig.ttlInSecond", time);
        if let Some(time) = self.errors.keep(time) {
            self.task.cache_config = Some(CacheConfig {
                key: Some(key.into()),
                ttl_in_second: Some(time),
                ..CacheConfig::default()
            });
        }
        self
    }
}

impl<K: Kind> Node<K> {
    /// Returns a list of this node and what follows it.
    pub fn then(self, next: impl Into<Steps>) -> Steps {
        Steps::from(self).then(next)
    }
}
