//! The rules that a definition must fulfil when it is registered, and an inline one when it is started.
//!
//! All violations are reported, each with the path of its member. Scripts cannot be checked here, because the engine runs nothing:
//! they are listed for the caller, who asks a script engine for their syntax.

mod node;
mod references;
mod task_def;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::member::shown;
use longhaul_protocol::conductor::{SCHEMA_VERSION, TaskDef, WorkflowDef, WrongMember};
use serde_json::Value;

use super::budget::depth;
use super::limits::{DEFINITION_DEPTH_MAX, NAME_CHARS_MAX, VARIABLES_BYTES_MAX};

pub use task_def::{check_schema_def, check_task_def};

/// How many violations are reported. A definition with more is broken as a whole, and the answer must stay small.
pub const VIOLATIONS_MAX: usize = 100;

/// One rule that a definition breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the wrong member is, such as `tasks[0].retryCount`. Empty for the whole definition.
    pub path: String,
    pub message: String,
    /// The value of the member, if the rule is about one member.
    pub invalid_value: Option<String>,
}

impl From<WrongMember> for Violation {
    fn from(wrong: WrongMember) -> Self {
        Self {
            path: wrong.path,
            message: wrong.message,
            invalid_value: wrong.invalid_value,
        }
    }
}

/// A script whose syntax must be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub path: String,
    pub source: String,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub violations: Vec<Violation>,
    pub scripts: Vec<Script>,
}

/// What is known outside of the definition, and which optional rules apply.
#[derive(Clone, Debug, Default)]
pub struct Rules<'a> {
    /// Registered task definitions. Their input templates can provide members that a node needs.
    pub task_defs: Option<&'a BTreeMap<String, Arc<TaskDef>>>,
    /// Names of environment values that expressions may use.
    pub named_values: &'a [&'a str],
    /// Names of definitions consist of letters, digits and `_<>{}# -`.
    pub plain_names: bool,
    /// Definitions must have an `ownerEmail`.
    pub owner_email: bool,
}

/// Collects violations, up to [`VIOLATIONS_MAX`].
#[derive(Debug, Default)]
struct Check {
    found: Checked,
}

impl Check {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.push(path.into(), message.into(), None);
    }

    fn add_value(
        &mut self,
        path: impl Into<String>,
        message: impl Into<String>,
        value: impl Into<Value>,
    ) {
        self.push(path.into(), message.into(), Some(shown(&value.into())));
    }

    fn push(&mut self, path: String, message: String, invalid_value: Option<String>) {
        if self.found.violations.len() < VIOLATIONS_MAX {
            self.found.violations.push(Violation {
                path,
                message,
                invalid_value,
            });
        }
    }
}

/// Checks a workflow definition. Paths begin at the definition.
pub fn check_workflow_def(definition: &WorkflowDef, rules: &Rules<'_>) -> Checked {
    let mut check = Check::default();
    workflow_def(&mut check, "", definition, rules);
    check.found
}

/// Adds the violations of a definition at a path, which is empty or ends with a dot. The recursion into inline definitions is as
/// deep as the JSON, which its reader bounds.
fn workflow_def(check: &mut Check, at: &str, definition: &WorkflowDef, rules: &Rules<'_>) {
    name(check, at, "WorkflowDef", &definition.name, rules);
    if rules.owner_email && definition.owner_email.as_deref().is_none_or(str::is_empty) {
        check.add(format!("{at}ownerEmail"), "ownerEmail cannot be empty");
    }
    if definition.schema_version != SCHEMA_VERSION {
        check.add_value(
            format!("{at}schemaVersion"),
            "schemaVersion: only version 2 is supported",
            definition.schema_version,
        );
    }
    if definition.tasks.is_empty() {
        check.add(format!("{at}tasks"), "WorkflowTask list cannot be empty");
    }
    let variables = serde_json::to_string(&definition.variables).unwrap_or_default();
    if variables.len() > VARIABLES_BYTES_MAX {
        check.add(
            format!("{at}variables"),
            format!(
                "variables have {} bytes, at most {VARIABLES_BYTES_MAX} are allowed",
                variables.len()
            ),
        );
    }
    match serde_json::to_value(definition) {
        Ok(value) if depth(&value) > DEFINITION_DEPTH_MAX => check.add(
            at.trim_end_matches('.'),
            format!("the definition is nested deeper than {DEFINITION_DEPTH_MAX} levels"),
        ),
        Ok(_) => {}
        Err(error) => check.add(at.trim_end_matches('.'), error.to_string()),
    }
    references::check_unique(check, at, definition);
    node::check_all(check, at, definition, rules);
    references::check_expressions(check, at, definition, rules);
}

/// Returns whether a name is over the limit. Such a value is not repeated in the answer.
fn is_too_long(name: &str) -> bool {
    name.chars().count() > NAME_CHARS_MAX
}

fn name(check: &mut Check, at: &str, model: &str, name: &str, rules: &Rules<'_>) {
    if name.trim().is_empty() {
        check.add_value(
            format!("{at}name"),
            format!("{model} name cannot be null or empty"),
            name,
        );
    }
    if is_too_long(name) {
        let message = format!("{model} name may have at most {NAME_CHARS_MAX} characters");
        check.add(format!("{at}name"), message);
    }
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "_<>{}# -".contains(character);
    if rules.plain_names && !name.chars().all(is_plain) {
        check.add_value(
            format!("{at}name"),
            format!("{model} name may contain letters, digits and the characters _<>{{}}# -"),
            name,
        );
    }
}
