//! What must be looked up before a definition is compiled, and what is used where nothing was found.

use std::collections::BTreeSet;

use longhaul_protocol::conductor::{TaskDef, WorkflowDef, WorkflowTask};

use super::kind;

/// Returns the names of the task definitions that the nodes of a definition use. Nodes with a definition of their own are left out,
/// and so are DYNAMIC nodes, whose definition is looked up when the task is scheduled.
pub fn needed_task_defs(definition: &WorkflowDef) -> Vec<String> {
    let mut names = BTreeSet::new();
    definition.visit_nodes(&mut |_, node| {
        if node.task_definition.is_none() && node.task_type != "DYNAMIC" && !node.name.is_empty() {
            names.insert(node.name.clone());
        }
    });
    names.into_iter().collect()
}

/// Returns the names of the workflows whose latest version is fixed when a run of this definition begins: those of SUB_WORKFLOW
/// nodes without a version and without a definition of their own.
pub fn needed_sub_workflows(definition: &WorkflowDef) -> Vec<String> {
    let mut names = BTreeSet::new();
    definition.visit_nodes(&mut |_, node| {
        names.extend(unversioned_sub_workflow(node).map(str::to_owned));
    });
    names.into_iter().collect()
}

/// Returns the name of the workflow whose latest version this node uses, unless the name itself is an expression.
pub(super) fn unversioned_sub_workflow(node: &WorkflowTask) -> Option<&str> {
    use longhaul_protocol::conductor::NumberOrText;
    if node.task_type != "SUB_WORKFLOW" {
        return None;
    }
    let params = node.sub_workflow_param.as_ref()?;
    let by_expression = matches!(params.version, Some(NumberOrText::Text(_)));
    let has_version = params.fixed_version().is_some() || by_expression;
    let is_plain = !params.name.is_empty() && !params.name.contains("${");
    (!has_version && is_plain && params.workflow_definition.is_none()).then_some(&params.name)
}

/// Returns the definition that applies to a node: its own, else the registered one, else the defaults of its type. Only tasks for
/// workers are retried and have a response time-out by default.
pub fn effective_task_def(node: &WorkflowTask, registered: Option<&TaskDef>) -> TaskDef {
    if let Some(own) = &node.task_definition {
        return (**own).clone();
    }
    if let Some(registered) = registered {
        return registered.clone();
    }
    let mut definition = TaskDef {
        name: node.name.clone(),
        ..TaskDef::default()
    };
    if !kind::is_worker_task(&node.task_type) {
        definition.retry_count = 0;
        definition.response_timeout_seconds = 0;
    }
    definition
}
