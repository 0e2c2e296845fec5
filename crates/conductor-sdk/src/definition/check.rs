//! The checks of a whole workflow definition, in the order in which a reader would fix the mistakes: names, structure, expressions.

use std::collections::BTreeSet;

use longhaul_protocol::conductor::{
    NodeList, NumberOrText, SubWorkflowParams, WorkflowDef, WorkflowTask,
};
use serde_json::Value;

use super::error::{self, DefinitionError, Place};
use super::expression::{Found, find_all};

/// Names that are no references and that every server resolves.
const NAMES: [&str; 4] = ["workflow", "CPEWF_TASK_ID", "NETFLIX_ENV", "NETFLIX_STACK"];

/// Checks a definition. Expressions may refer to its nodes and to `known_names`.
pub(super) fn check(
    definition: &WorkflowDef,
    known_names: &BTreeSet<String>,
) -> Result<(), DefinitionError> {
    let workflow = Place::Workflow(definition.name.clone());
    if is_blank(Some(&definition.name)) {
        return Err(DefinitionError::EmptyName);
    }
    error::version(workflow.clone(), definition.version)?;
    if definition.tasks.is_empty() {
        return Err(DefinitionError::NoTasks {
            workflow: definition.name.clone(),
        });
    }
    let mut nodes: Vec<&WorkflowTask> = Vec::new();
    definition.visit_nodes(&mut |_, node| nodes.push(node));
    let references = references(&nodes)?;
    structure(&definition.tasks, None)?;
    let is_known = |name: &str| {
        references.contains(name) || known_names.contains(name) || NAMES.contains(&name)
    };
    for node in &nodes {
        joins(node, &references)?;
        expressions(node, &is_known)?;
    }
    for (name, value) in &definition.output_parameters {
        let unknown = unknown(value, &is_known, false);
        refuse(unknown, &workflow, || format!("outputParameters.{name}"))?;
    }
    Ok(())
}

/// Returns the references of all nodes.
fn references<'a>(nodes: &[&'a WorkflowTask]) -> Result<BTreeSet<&'a str>, DefinitionError> {
    let mut references = BTreeSet::new();
    for node in nodes {
        let reference = node.task_reference_name.as_str();
        if is_blank(Some(reference)) {
            let name = node.name.clone();
            return Err(DefinitionError::EmptyReference { name });
        }
        if is_blank(Some(&node.name)) {
            let reference = reference.to_owned();
            return Err(DefinitionError::EmptyTaskName { reference });
        }
        if !references.insert(reference) {
            let reference = reference.to_owned();
            return Err(DefinitionError::DuplicateReference { reference });
        }
    }
    Ok(references)
}

/// Checks the nodes of a list and the lists inside them. The recursion is as deep as the lists are nested.
fn structure(list: &NodeList, enclosing_loop: Option<&str>) -> Result<(), DefinitionError> {
    for (index, node) in list.iter().enumerate() {
        let next = list.get(index + 1).map(|next| next.task_type.as_str());
        members(node, next, enclosing_loop)?;
        let enclosing_loop = if node.task_type == "DO_WHILE" {
            Some(node.task_reference_name.as_str())
        } else {
            enclosing_loop
        };
        for (_, list) in node.lists() {
            structure(list, enclosing_loop)?;
        }
    }
    Ok(())
}

/// Checks the members that the type of a node needs.
fn members(
    node: &WorkflowTask,
    next: Option<&str>,
    enclosing_loop: Option<&str>,
) -> Result<(), DefinitionError> {
    let reference = node.task_reference_name.clone();
    let missing = |member| {
        let reference = node.task_reference_name.clone();
        Err(DefinitionError::Missing { reference, member })
    };
    match node.task_type.as_str() {
        "SWITCH" | "DECISION" if node.decision_cases.is_empty() => {
            Err(DefinitionError::NoCases { reference })
        }
        "SWITCH" if is_blank(node.expression.as_deref()) => missing("expression"),
        "FORK_JOIN" if node.fork_tasks.is_empty() => Err(DefinitionError::NoBranches { reference }),
        "FORK_JOIN" if node.fork_tasks.iter().any(Vec::is_empty) => {
            Err(DefinitionError::EmptyBranch { reference })
        }
        "FORK_JOIN" | "FORK_JOIN_DYNAMIC" if next != Some("JOIN") => {
            Err(DefinitionError::NoJoin { reference })
        }
        "DO_WHILE" => match enclosing_loop {
            Some(outer) => {
                let outer = outer.to_owned();
                Err(DefinitionError::LoopInLoop { reference, outer })
            }
            None if node.loop_over.is_empty() => Err(DefinitionError::EmptyLoop { reference }),
            None if is_blank(node.loop_condition.as_deref()) && !has_items(node) => {
                missing("loopCondition")
            }
            None => Ok(()),
        },
        "DYNAMIC" if is_blank(node.dynamic_task_name_param.as_deref()) => {
            missing("dynamicTaskNameParam")
        }
        "SUB_WORKFLOW" => match &node.sub_workflow_param {
            Some(params) if is_blank(Some(&params.name)) => missing("subWorkflowParam.name"),
            Some(_) => Ok(()),
            None => missing("subWorkflowParam"),
        },
        "EVENT" if is_blank(node.sink.as_deref()) => missing("sink"),
        "TERMINATE" if node.optional => Err(DefinitionError::OptionalTerminate { reference }),
        _ => Ok(()),
    }
}

/// Returns whether a loop has a list to iterate over.
fn has_items(node: &WorkflowTask) -> bool {
    let inputs = ["_items", "items"].map(|name| node.input_parameters.get(name));
    let given = [node.items.as_ref()].into_iter().chain(inputs).flatten();
    given
        .into_iter()
        .any(|items| !items.is_null() && items.as_str() != Some(""))
}

/// Checks that a join waits for nodes that exist.
fn joins(node: &WorkflowTask, references: &BTreeSet<&str>) -> Result<(), DefinitionError> {
    let mut joined = node.join_on.iter().chain(&node.default_exclusive_join_task);
    match joined.find(|joined| !references.contains(joined.as_str())) {
        Some(joined) => Err(DefinitionError::UnknownJoin {
            reference: node.task_reference_name.clone(),
            joined: joined.clone(),
        }),
        None => Ok(()),
    }
}

/// Checks the expressions of all members of a node that the server resolves.
fn expressions(
    node: &WorkflowTask,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<(), DefinitionError> {
    let at = Place::Node(node.task_reference_name.clone());
    for (name, value) in &node.input_parameters {
        let is_script = node.task_type == "INLINE" && name == "expression";
        let unknown = unknown(value, is_known, is_script);
        refuse(unknown, &at, || format!("inputParameters.{name}"))?;
    }
    if let Some(items) = &node.items {
        refuse(unknown(items, is_known, false), &at, || "items".to_owned())?;
    }
    if let Some(sink) = &node.sink {
        refuse(unknown_in(sink, is_known), &at, || "sink".to_owned())?;
    }
    if let Some(params) = &node.sub_workflow_param {
        for text in texts(params) {
            let unknown = unknown_in(text, is_known);
            refuse(unknown, &at, || "subWorkflowParam".to_owned())?;
        }
    }
    Ok(())
}

/// Returns the texts of a sub-workflow that can have expressions. A definition that is an object has references of its own.
fn texts(params: &SubWorkflowParams) -> Vec<&str> {
    let mut texts = vec![params.name.as_str()];
    for number in [&params.version, &params.priority].into_iter().flatten() {
        match number {
            NumberOrText::Text(text) => texts.push(text),
            NumberOrText::Number(_) => {}
        }
    }
    texts.extend(params.idempotency_key.as_deref());
    texts.extend(params.idempotency_strategy.as_deref());
    texts.extend(params.workflow_definition.as_ref().and_then(Value::as_str));
    let domains = params.task_to_domain.iter().flat_map(|map| map.values());
    texts.extend(domains.filter_map(Value::as_str));
    texts
}

fn refuse(
    unknown: Option<&str>,
    at: &Place,
    member: impl FnOnce() -> String,
) -> Result<(), DefinitionError> {
    match unknown {
        Some(reference) => Err(DefinitionError::UnknownReference {
            at: at.clone(),
            member: member(),
            reference: reference.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Returns the first name in the expressions of a value that is not known. Keys of maps have no expressions.
fn unknown<'a>(
    value: &'a Value,
    is_known: &dyn Fn(&str) -> bool,
    is_script: bool,
) -> Option<&'a str> {
    match value {
        // A script has template strings of its own. The server replaces only what begins like the input or output of a node.
        Value::String(script) if is_script => find_all(script)
            .into_iter()
            .find(|found| is_task_member(*found) && !is_known(found.root))
            .map(|found| found.root),
        Value::String(text) => unknown_in(text, is_known),
        Value::Array(list) => list
            .iter()
            .find_map(|value| unknown(value, is_known, is_script)),
        Value::Object(map) => map
            .values()
            .find_map(|value| unknown(value, is_known, is_script)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns the first name in the expressions of a text that is not known.
fn unknown_in<'a>(text: &'a str, is_known: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    let found = find_all(text).into_iter().map(|found| found.root);
    found.into_iter().find(|root| !is_known(root))
}

/// Returns whether an expression has the form `name.input…` or `name.output…`.
fn is_task_member(found: Found<'_>) -> bool {
    let member = found.rest.trim_start_matches('.');
    let end = member
        .find(|letter: char| !letter.is_alphanumeric())
        .unwrap_or(member.len());
    !found.root.contains([' ', '$']) && matches!(&member[..end], "input" | "output")
}

fn is_blank(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}
