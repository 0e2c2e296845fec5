//! References of nodes are unique, and expressions refer to something that exists.

use std::collections::BTreeSet;

use longhaul_protocol::conductor::WorkflowDef;
use serde_json::Value;

use super::{Check, Rules};
use crate::conductor::expression::{Expression, Root, Template};
use crate::conductor::input::script_of;

/// Names that every server resolves.
const NAMED_VALUES: [&str; 3] = ["CPEWF_TASK_ID", "NETFLIX_ENV", "NETFLIX_STACK"];

/// Checks that no reference is used twice in the tree.
pub(super) fn check_unique(check: &mut Check, at: &str, definition: &WorkflowDef) {
    let mut seen = BTreeSet::new();
    definition.visit_nodes(&mut |path, node| {
        let reference = node.task_reference_name.as_str();
        if !reference.is_empty() && !seen.insert(reference) {
            check.add_value(
                format!("{at}{path}.taskReferenceName"),
                format!(
                    "taskReferenceName: {reference} should be unique across tasks for a given workflowDefinition: {}",
                    definition.name
                ),
                reference,
            );
        }
    });
}

/// Checks the expressions in the inputs of the top-level nodes. Expressions of inner nodes are not checked: other servers accept
/// them, whatever they refer to.
pub(super) fn check_expressions(
    check: &mut Check,
    at: &str,
    definition: &WorkflowDef,
    rules: &Rules<'_>,
) {
    let mut references = BTreeSet::new();
    definition.visit_nodes(&mut |_, node| {
        references.insert(node.task_reference_name.as_str());
    });
    let is_known = |name: &str| {
        references.contains(name)
            || NAMED_VALUES.contains(&name)
            || rules.named_values.contains(&name)
    };
    for (index, node) in definition.tasks.iter().enumerate() {
        for (member, value) in &node.input_parameters {
            let path = format!("{at}tasks[{index}].inputParameters.{member}");
            let script = script_of(node, member, value).map(Value::String);
            check_value(check, &path, script.as_ref().unwrap_or(value), &is_known);
        }
    }
}

fn check_value(check: &mut Check, path: &str, value: &Value, is_known: &dyn Fn(&str) -> bool) {
    Template::parse(value).visit(&mut |expression| match expression {
        Expression::Invalid { source, message } => check.add_value(
            path,
            format!("the expression ${{{source}}} is not a valid path: {message}"),
            source.as_str(),
        ),
        Expression::TooDeep => check.add(path, "expressions are nested too deeply"),
        Expression::Reference(reference) => {
            let name = match reference.root() {
                Root::TaskMember { reference, .. } => reference,
                Root::Name(name) => name,
                Root::Workflow | Root::WorkflowMember(_) | Root::Environment(_) => return,
            };
            if !is_known(name) {
                check.add_value(
                    path,
                    format!(
                        "the expression refers to {name}, which is neither workflow nor a taskReferenceName of the definition"
                    ),
                    name.as_str(),
                );
            }
        }
        Expression::Blank | Expression::Nested(_) | Expression::Secret { .. } => {}
    });
}
