//! The schema registry. Servers without one respond with status 404.

use longhaul_protocol::conductor::SchemaDef;
use longhaul_transport::{Repeat, RequestError};

use crate::connection::Connection;

/// Registers and reads schemas.
#[derive(Clone, Debug)]
pub struct SchemaClient {
    pub(super) connection: Connection,
}

impl SchemaClient {
    /// Registers a version of a schema, or replaces it.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if the server has no registry.
    pub async fn register(&self, schema: &SchemaDef) -> Result<(), RequestError> {
        let call = self.connection.post(&["schema"]).json(schema);
        call.repeat(Repeat::Freely).send_only().await
    }

    /// Registers a schema under the next free version.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if the server has no registry.
    pub async fn register_new_version(&self, schema: &SchemaDef) -> Result<(), RequestError> {
        let call = self.connection.post(&["schema"]).json(schema);
        call.flag("newVersion", true).send_only().await
    }

    /// Returns a schema: that of a version, or the one with the highest version.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such schema.
    pub async fn get(&self, name: &str, version: Option<i32>) -> Result<SchemaDef, RequestError> {
        let Some(version) = version else {
            return self.connection.get(&["schema", name]).send().await;
        };
        let version = version.to_string();
        self.connection
            .get(&["schema", name, &version])
            .send()
            .await
    }

    /// Returns all schemas.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn list(&self) -> Result<Vec<SchemaDef>, RequestError> {
        self.connection.get(&["schema"]).send_many().await
    }

    /// Deletes one version of a schema, or all of them.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is nothing to delete.
    pub async fn delete(&self, name: &str, version: Option<i32>) -> Result<(), RequestError> {
        let Some(version) = version else {
            return self.connection.delete(&["schema", name]).send_only().await;
        };
        let version = version.to_string();
        let call = self.connection.delete(&["schema", name, &version]);
        call.send_only().await
    }
}
