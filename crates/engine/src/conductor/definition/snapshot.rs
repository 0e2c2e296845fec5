//! The definition that a run keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::{NodeList, NumberOrText, TaskDef, WorkflowDef, WorkflowTask};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::needs::{effective_task_def, unversioned_sub_workflow};
use super::schemas::{Schemas, fill_in, with_schemas};
use super::tree::{DuplicateReference, Tree};
use crate::conductor::budget::depth;
use crate::conductor::expression::Template;
use crate::conductor::limits::DEFINITION_DEPTH_MAX;

/// How deeply a snapshot may be nested: a definition, and the task definitions that were added to its nodes. What is stored must be
/// readable again, and the reader of JSON accepts 127 levels.
const SNAPSHOT_DEPTH_MAX: usize = DEFINITION_DEPTH_MAX + 10;

/// What was found for a definition, see [`super::needed_task_defs`] and [`super::needed_sub_workflows`].
#[derive(Clone, Debug, Default)]
pub struct Lookups {
    /// Registered task definitions by name.
    pub task_defs: BTreeMap<String, Arc<TaskDef>>,
    /// The latest version of each workflow by name.
    pub sub_workflows: BTreeMap<String, i32>,
    /// Registered schemas, see [`super::needed_schemas`].
    pub schemas: Schemas,
}

/// Why a run of a definition cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("No such workflow defined. name={name}, version=null")]
    NoSubWorkflow { name: String },
    #[error("taskReferenceName {0} is used more than once")]
    DuplicateReference(String),
    #[error("the definition is nested too deeply")]
    TooDeep,
    #[error("the definition cannot be stored: {0}")]
    NotStorable(String),
}

/// A definition with everything that was resolved when the run began: every node has its task definition, and every sub-workflow
/// its version. It is written as that definition, and its hash identifies the text.
#[derive(Clone, Debug)]
pub struct Snapshot {
    definition: WorkflowDef,
    text: Arc<RawValue>,
    hash: String,
    tree: Tree,
    output: Template,
    failure_workflow: Option<Template>,
}

impl Snapshot {
    /// Completes a definition with what was found for it, and compiles it.
    pub fn compile(mut definition: WorkflowDef, lookups: &Lookups) -> Result<Self, CompileError> {
        complete(&mut definition.tasks, lookups)?;
        if definition.enforce_schema {
            fill_in(&mut definition.input_schema, &lookups.schemas);
            fill_in(&mut definition.output_schema, &lookups.schemas);
        }
        Self::of_complete(definition)
    }

    /// Compiles a definition that is complete, such as a stored one.
    fn of_complete(definition: WorkflowDef) -> Result<Self, CompileError> {
        let tree = Tree::new(&definition.tasks)
            .map_err(|DuplicateReference(reference)| CompileError::DuplicateReference(reference))?;
        // Maps of JSON are ordered by key, so the text does not depend on the order in which members were given.
        let value = serde_json::to_value(&definition)
            .map_err(|error| CompileError::NotStorable(error.to_string()))?;
        if depth(&value) > SNAPSHOT_DEPTH_MAX {
            return Err(CompileError::TooDeep);
        }
        let text = serde_json::value::to_raw_value(&value)
            .map_err(|error| CompileError::NotStorable(error.to_string()))?;
        let digest = Sha256::digest(text.get());
        Ok(Self {
            output: Template::parse(&Value::Object(definition.output_parameters.clone())),
            hash: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            failure_workflow: definition.failure_workflow().map(failure_workflow),
            text: Arc::from(text),
            definition,
            tree,
        })
    }

    /// Returns the completed definition.
    pub fn definition(&self) -> &WorkflowDef {
        &self.definition
    }

    /// Returns the text of the completed definition. It is what is stored and what clients see.
    pub fn text(&self) -> &Arc<RawValue> {
        &self.text
    }

    /// Returns the SHA-256 of the text in hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the indexed nodes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the template of the output, or `None` if the output is that of the last task.
    pub fn output(&self) -> Option<&Template> {
        (!self.definition.output_parameters.is_empty()).then_some(&self.output)
    }

    /// Returns the template of the name of the workflow to start when a run fails, if there is one.
    pub fn failure_workflow(&self) -> Option<&Template> {
        self.failure_workflow.as_ref()
    }
}

/// Parses the name of a failure workflow. An older form of its expression has no braces: `$workflow.input.KEY`.
fn failure_workflow(name: &str) -> Template {
    match name.strip_prefix('$') {
        Some(path) if path.starts_with("workflow.") => {
            Template::parse_text(&format!("${{{path}}}"))
        }
        Some(_) | None => Template::parse_text(name),
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Snapshot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let definition = WorkflowDef::deserialize(deserializer)?;
        Self::of_complete(definition).map_err(serde::de::Error::custom)
    }
}

/// Gives every node its task definition and its version. The recursion is as deep as the nesting of the lists, which the reader of
/// JSON bounds.
fn complete(list: &mut NodeList, lookups: &Lookups) -> Result<(), CompileError> {
    for node in list {
        let node = Arc::make_mut(node);
        complete_node(node, lookups)?;
        for list in node.decision_cases.values_mut() {
            complete(list, lookups)?;
        }
        complete(&mut node.default_case, lookups)?;
        for list in &mut node.fork_tasks {
            complete(list, lookups)?;
        }
        complete(&mut node.loop_over, lookups)?;
    }
    Ok(())
}

fn complete_node(node: &mut WorkflowTask, lookups: &Lookups) -> Result<(), CompileError> {
    if node.task_definition.is_none() && node.task_type != "DYNAMIC" {
        let found = lookups.task_defs.get(&node.name);
        node.task_definition =
            Some(found.map_or_else(|| Arc::new(effective_task_def(node, None)), Arc::clone));
    }
    if let Some(definition) = &mut node.task_definition {
        *definition = with_schemas(definition, &lookups.schemas);
    }
    if let Some(name) = unversioned_sub_workflow(node).map(str::to_owned) {
        let Some(version) = lookups.sub_workflows.get(&name) else {
            return Err(CompileError::NoSubWorkflow { name });
        };
        if let Some(params) = &mut node.sub_workflow_param {
            params.version = Some(NumberOrText::Number(i64::from(*version)));
        }
    }
    Ok(())
}
