//! The builder of workflow definitions.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_protocol::conductor::{SchemaDef, WorkflowDef, WorkflowTimeoutPolicy};
use serde::Serialize;

use super::check::check;
use super::error::{self, DefinitionError, FirstError, Place};
use super::steps::Steps;

/// A workflow definition that is being built. The module has an example.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct WorkflowDefBuilder {
    definition: WorkflowDef,
    errors: FirstError,
    /// Names that expressions may refer to besides the nodes.
    known_names: BTreeSet<String>,
}

impl WorkflowDefBuilder {
    /// Begins a definition. Its version is 1, and it has no time-out.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            definition: WorkflowDef {
                name: name.into(),
                ..WorkflowDef::default()
            },
            errors: FirstError::default(),
            known_names: BTreeSet::new(),
        }
    }

    /// Sets the version: 1 or more.
    pub fn version(mut self, version: i32) -> Self {
        self.definition.version = version;
        self
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Sets the email address of the owner. A server can demand it.
    pub fn owner_email(mut self, email: impl Into<String>) -> Self {
        self.definition.owner_email = Some(email.into());
        self
    }

    /// Sets how long a run may take, in whole seconds, and what happens then.
    pub fn timeout(mut self, timeout: Duration, policy: WorkflowTimeoutPolicy) -> Self {
        let timeout = error::seconds(self.place(), "timeoutSeconds", timeout);
        if let Some(timeout) = self.errors.keep(timeout) {
            self.definition.timeout_seconds = timeout;
        }
        self.definition.timeout_policy = policy;
        self
    }

    /// Sets the workflow that starts when this one fails.
    pub fn failure_workflow(mut self, name: impl Into<String>) -> Self {
        self.definition.failure_workflow = Some(name.into());
        self
    }

    /// Sets the version of the failure workflow. The default is the latest one.
    pub fn failure_workflow_version(mut self, version: i32) -> Self {
        let version = error::version(self.place(), version);
        self.definition.failure_workflow_version = self.errors.keep(version);
        self
    }

    /// Sets whether a completed run can be restarted. The default is yes.
    pub fn restartable(mut self, restartable: bool) -> Self {
        self.definition.restartable = restartable;
        self
    }

    /// Sets the names of the inputs. They are documentation: the server does not check them.
    pub fn input_parameters(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.definition.input_parameters = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a value for an input that a start does not set.
    pub fn input_template(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let value = error::json(self.place(), &name, value);
        if let Some(value) = self.errors.keep(value) {
            self.definition.input_template.insert(name, value);
        }
        self
    }

    /// Adds a variable with its first value. Expressions in it are not replaced.
    pub fn variable(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let value = error::json(self.place(), &name, value);
        if let Some(value) = self.errors.keep(value) {
            self.definition.variables.insert(name, value);
        }
        self
    }

    /// Adds an output. Without any, the output of a run is the output of its last task.
    pub fn output(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let value = error::json(self.place(), &name, value);
        if let Some(value) = self.errors.keep(value) {
            self.definition.output_parameters.insert(name, value);
        }
        self
    }

    /// Adds what follows.
    pub fn then(mut self, next: impl Into<Steps>) -> Self {
        let next = next.into();
        self.definition.tasks.extend(next.list);
        self.errors.absorb(next.errors);
        self
    }

    /// Sets the schema of the input: a registered one by name and version, or one with content.
    pub fn input_schema(mut self, schema: SchemaDef) -> Self {
        self.definition.input_schema = Some(schema);
        self
    }

    /// Sets the schema of the output.
    pub fn output_schema(mut self, schema: SchemaDef) -> Self {
        self.definition.output_schema = Some(schema);
        self
    }

    /// Sets whether the server compares input and output with the schemas. By default it does: a start whose input does not match is
    /// refused, and a workflow whose output does not match fails.
    pub fn enforce_schema(mut self, enforce: bool) -> Self {
        self.definition.enforce_schema = enforce;
        self
    }

    /// Allows expressions to refer to names that are not nodes of the definition. Such names are values of the server, or the nodes of
    /// a dynamic fork. The server checks the inputs of the outermost nodes itself, and accepts only values that it knows there.
    pub fn known_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.known_names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Checks the definition and returns it.
    ///
    /// # Errors
    ///
    /// Returns the first mistake: the first one of a method, else the first one of the whole definition.
    pub fn build(self) -> Result<WorkflowDef, DefinitionError> {
        self.errors.check()?;
        check(&self.definition, &self.known_names)?;
        Ok(self.definition)
    }

    fn place(&self) -> Place {
        Place::Workflow(self.definition.name.clone())
    }
}
