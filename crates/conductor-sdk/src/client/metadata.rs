//! Definitions of tasks and workflows.

use longhaul_protocol::conductor::{TaskDef, WorkflowDef};
use longhaul_transport::{Repeat, RequestError};
use serde::Serialize;

use crate::connection::Connection;

/// Registers and reads definitions of tasks and workflows.
#[derive(Clone, Debug)]
pub struct MetadataClient {
    pub(super) connection: Connection,
}

impl MetadataClient {
    /// Registers task definitions. Definitions of the same names are replaced.
    ///
    /// # Errors
    /// [`RequestError`]. A refusal names the wrong members.
    pub async fn register_tasks(&self, definitions: &[TaskDef]) -> Result<(), RequestError> {
        self.register_tasks_with(definitions).await
    }

    /// Registers task definitions in any form that the server reads.
    pub(crate) async fn register_tasks_with(
        &self,
        definitions: &[impl Serialize],
    ) -> Result<(), RequestError> {
        let call = self.connection.post(&["metadata", "taskdefs"]);
        // The second of two registrations replaces the first with the same.
        call.json(definitions)
            .repeat(Repeat::Freely)
            .send_only()
            .await
    }

    /// Replaces a task definition.
    ///
    /// # Errors
    /// [`RequestError`]. Some servers respond with status 404 if there is no definition of this name.
    pub async fn update_task(&self, definition: &TaskDef) -> Result<(), RequestError> {
        self.update_task_with(definition).await
    }

    /// Replaces a task definition by one in any form that the server reads.
    pub(crate) async fn update_task_with(
        &self,
        definition: &impl Serialize,
    ) -> Result<(), RequestError> {
        let call = self.connection.put(&["metadata", "taskdefs"]);
        call.json(definition).send_only().await
    }

    /// Returns a task definition.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no definition of this name.
    pub async fn task(&self, name: &str) -> Result<TaskDef, RequestError> {
        let call = self.connection.get(&["metadata", "taskdefs", name]);
        call.send().await
    }

    /// Returns the address of the page that shows a task definition to people. `None` if the name cannot be part of an address.
    #[must_use]
    pub fn task_page(&self, name: &str) -> Option<String> {
        self.connection.page(&["taskDef", name]).ok()
    }

    /// Returns all task definitions.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn tasks(&self) -> Result<Vec<TaskDef>, RequestError> {
        let call = self.connection.get(&["metadata", "taskdefs"]);
        call.send_many().await
    }

    /// Deletes a task definition.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no definition of this name.
    pub async fn delete_task(&self, name: &str) -> Result<(), RequestError> {
        let call = self.connection.delete(&["metadata", "taskdefs", name]);
        call.send_only().await
    }

    /// Registers a new version of a workflow.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 409 if the version exists.
    pub async fn register_workflow(&self, definition: &WorkflowDef) -> Result<(), RequestError> {
        let call = self.connection.post(&["metadata", "workflow"]);
        call.json(definition).send_only().await
    }

    /// Registers a version of a workflow, or replaces it. Running workflows keep the definition that they began with.
    ///
    /// # Errors
    /// [`RequestError`]. A refusal names the wrong members.
    pub async fn register_or_replace_workflow(
        &self,
        definition: &WorkflowDef,
    ) -> Result<(), RequestError> {
        let call = self.connection.post(&["metadata", "workflow"]);
        call.flag("overwrite", true)
            .json(definition)
            .repeat(Repeat::Freely)
            .send_only()
            .await
    }

    /// Checks a definition without registering it.
    ///
    /// # Errors
    /// [`RequestError`]. A refusal names the wrong members.
    pub async fn validate_workflow(&self, definition: &WorkflowDef) -> Result<(), RequestError> {
        let call = self.connection.post(&["metadata", "workflow", "validate"]);
        call.json(definition)
            .repeat(Repeat::Freely)
            .send_only()
            .await
    }

    /// Returns a definition: that of a version, or the one with the highest version.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such definition.
    pub async fn workflow(
        &self,
        name: &str,
        version: Option<i32>,
    ) -> Result<WorkflowDef, RequestError> {
        let version = version.map(|version| version.to_string());
        let call = self.connection.get(&["metadata", "workflow", name]);
        call.query("version", version.as_deref()).send().await
    }

    /// Returns all definitions in all versions.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn workflows(&self) -> Result<Vec<WorkflowDef>, RequestError> {
        let call = self.connection.get(&["metadata", "workflow"]);
        call.send_many().await
    }

    /// Deletes one version of a definition. Running workflows go on.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such definition.
    pub async fn delete_workflow(&self, name: &str, version: i32) -> Result<(), RequestError> {
        let version = version.to_string();
        let segments = ["metadata", "workflow", name, &version];
        self.connection.delete(&segments).send_only().await
    }
}
