//! Branches: one of several with SWITCH, all of them with forks and their joins.

use std::fmt::Display;
use std::sync::Arc;

use longhaul_protocol::conductor::WorkflowTask;
use serde::Serialize;

use super::error::DefinitionError;
use super::expression::{Expression, output_of};
use super::node::{Node, Plain, sealed};
use super::plain::noop;
use super::steps::Steps;

/// The input member with the case. Builders of other languages use the same one.
const CASE_VALUE: &str = "switchCaseValue";

/// The input members with the nodes of a dynamic fork and with their inputs.
const DYNAMIC_TASKS: &str = "dynamicTasks";
const DYNAMIC_INPUTS: &str = "dynamicTasksInputs";

/// The kind of a node that selects one of its cases.
#[derive(Clone, Debug)]
pub struct Switch;

impl sealed::Finish for Switch {}

/// Returns a node that selects the case that is equal to a value. Values are compared as text.
pub fn switch(reference: impl Into<String>, value: impl Serialize) -> Node<Switch> {
    let mut node = Node::operator("SWITCH", reference, Switch);
    node.task.evaluator_type = Some("value-param".to_owned());
    node.task.expression = Some(CASE_VALUE.to_owned());
    node.input(CASE_VALUE, value)
}

/// Returns a node that selects the case that a JavaScript expression returns. The script reads the inputs as members of `$`.
pub fn switch_script(reference: impl Into<String>, script: impl Into<String>) -> Node<Switch> {
    let mut node = Node::operator("SWITCH", reference, Switch);
    node.task.evaluator_type = Some("javascript".to_owned());
    node.task.expression = Some(script.into());
    node
}

impl Node<Switch> {
    /// Adds a case. An empty list of nodes does nothing.
    pub fn case(mut self, case: impl Display, steps: impl Into<Steps>) -> Self {
        let case = case.to_string();
        let list = self.take(steps);
        let earlier = self.task.decision_cases.insert(case.clone(), list);
        if earlier.is_some() {
            let reference = self.task.task_reference_name.clone();
            let error = DefinitionError::DuplicateCase { reference, case };
            self.errors.keep::<()>(Err(error));
        }
        self
    }

    /// Sets the nodes for a value without a case. Without them such a value does nothing.
    pub fn default_case(mut self, steps: impl Into<Steps>) -> Self {
        self.task.default_case = self.take(steps);
        self
    }
}

/// The kind of a node that runs its branches in parallel. The node adds the join that follows it.
#[derive(Clone, Debug)]
pub struct Fork {
    join_reference: String,
    /// The references that the join waits for, if they are not the last ones of the branches.
    join_on: Option<Vec<String>>,
}

impl sealed::Finish for Fork {
    fn finish(self, task: WorkflowTask) -> Vec<WorkflowTask> {
        let ends = || {
            let last = task.fork_tasks.iter().filter_map(|branch| branch.last());
            last.map(|node| node.task_reference_name.clone()).collect()
        };
        let join_on = self.join_on.unwrap_or_else(ends);
        vec![task, join(self.join_reference, join_on)]
    }
}

/// Returns a node that runs its branches in parallel, and a join that waits for all of them. The reference of the join is the one of
/// the fork with `_join` behind it.
pub fn fork(reference: impl Into<String>) -> Node<Fork> {
    let reference = reference.into();
    let kind = Fork {
        join_reference: join_reference(&reference),
        join_on: None,
    };
    Node::operator("FORK_JOIN", reference, kind)
}

impl Node<Fork> {
    /// Adds a branch. The join waits for its last node.
    ///
    /// A SWITCH ends before the nodes of its case. So a branch that ends with one gets a NOOP after it, whose reference is the one of
    /// the SWITCH with `_end` behind it.
    pub fn branch(mut self, steps: impl Into<Steps>) -> Self {
        let mut list = self.take(steps);
        match list.last() {
            None => {
                let reference = self.task.task_reference_name.clone();
                let error = DefinitionError::EmptyBranch { reference };
                self.errors.keep::<()>(Err(error));
            }
            Some(last) if matches!(last.task_type.as_str(), "SWITCH" | "DECISION") => {
                let end = noop(format!("{}_end", last.task_reference_name));
                list.push(Arc::new(end.task));
            }
            Some(_) => {}
        }
        self.task.fork_tasks.push(list);
        self
    }

    /// Sets the reference of the join.
    pub fn join_reference(mut self, reference: impl Into<String>) -> Self {
        self.kind.join_reference = reference.into();
        self
    }

    /// Sets the nodes that the join waits for. The default is the last node of each branch.
    pub fn join_on(mut self, references: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kind.join_on = Some(references.into_iter().map(Into::into).collect());
        self
    }

    /// Returns the expression for a value of the output of the join. Its members are the outputs of the joined nodes, by reference.
    pub fn join_output(&self, path: &str) -> Expression {
        output_of(&self.kind.join_reference, path)
    }
}

/// The kind of a fork whose branches are a value of the run. The node adds the join that follows it.
#[derive(Clone, Debug)]
pub struct DynamicFork {
    join_reference: String,
}

impl sealed::Finish for DynamicFork {
    fn finish(self, task: WorkflowTask) -> Vec<WorkflowTask> {
        // The server knows the branches, so the join names none.
        vec![task, join(self.join_reference, Vec::new())]
    }
}

/// Returns a node that runs the nodes of a list in parallel, and a join that waits for all of them.
///
/// `tasks` is a list of nodes as JSON, mostly an expression for one. `inputs` has their inputs by reference. The reference of the join
/// is the one of the fork with `_join` behind it. Later nodes read the results from the output of the join, because the references of
/// the list are not nodes of the workflow.
pub fn dynamic_fork(
    reference: impl Into<String>,
    tasks: impl Serialize,
    inputs: impl Serialize,
) -> Node<DynamicFork> {
    let mut node = dynamic(reference);
    node.task.dynamic_fork_tasks_param = Some(DYNAMIC_TASKS.to_owned());
    node.task.dynamic_fork_tasks_input_param_name = Some(DYNAMIC_INPUTS.to_owned());
    node.input(DYNAMIC_TASKS, tasks)
        .input(DYNAMIC_INPUTS, inputs)
}

/// Returns a node that runs the task `task_name` once for each input of a list in parallel, and a join that waits for all of them.
///
/// `inputs` is a list, mostly an expression for one. The reference of the join is the one of the fork with `_join` behind it.
pub fn fork_each(
    reference: impl Into<String>,
    task_name: impl Serialize,
    inputs: impl Serialize,
) -> Node<DynamicFork> {
    dynamic(reference)
        .input("forkTaskName", task_name)
        .input("forkTaskInputs", inputs)
}

impl Node<DynamicFork> {
    /// Sets the reference of the join.
    pub fn join_reference(mut self, reference: impl Into<String>) -> Self {
        self.kind.join_reference = reference.into();
        self
    }

    /// Returns the expression for a value of the output of the join. Its members are the outputs of the joined nodes, by reference.
    pub fn join_output(&self, path: &str) -> Expression {
        output_of(&self.kind.join_reference, path)
    }
}

fn dynamic(reference: impl Into<String>) -> Node<DynamicFork> {
    let reference = reference.into();
    let kind = DynamicFork {
        join_reference: join_reference(&reference),
    };
    Node::operator("FORK_JOIN_DYNAMIC", reference, kind)
}

fn join_reference(fork: &str) -> String {
    format!("{fork}_join")
}

fn join(reference: String, join_on: Vec<String>) -> WorkflowTask {
    let mut task = Node::operator("JOIN", reference, Plain).task;
    task.join_on = join_on;
    task
}
