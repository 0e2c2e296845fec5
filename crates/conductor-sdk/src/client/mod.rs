//! The clients of a server: tasks, definitions, workflows and schemas.
//!
//! ```no_run
//! use longhaul_conductor_sdk::{Client, Configuration};
//! use longhaul_conductor_sdk::model::StartWorkflowRequest;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(&Configuration::from_env()?)?;
//! let id = client
//!     .workflows()
//!     .start(&StartWorkflowRequest::new("order").input("item", "pen"))
//!     .await?;
//! let workflow = client.workflows().get(&id).await?;
//! println!("{}", workflow.status.as_str());
//! # Ok(())
//! # }
//! ```

mod metadata;
mod schemas;
mod tasks;
mod workflows;

use std::sync::Arc;

use longhaul_transport::{Transport, TransportError};

pub use metadata::MetadataClient;
pub use schemas::SchemaClient;
pub use tasks::{Poll, TaskClient};
pub use workflows::{Correlated, Execute, Executed, SearchQuery, TaskPage, WorkflowClient};

use crate::configuration::Configuration;
use crate::connection::Connection;

/// All clients of one server. They share connections and tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Creates the clients of a server. Sends no request.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] if the address of the configuration is not valid.
    pub fn new(configuration: &Configuration) -> Result<Self, TransportError> {
        Connection::new(configuration).map(|connection| Self { connection })
    }

    /// Creates clients that use another transport than HTTP, such as a server in the same process. The address of the configuration
    /// is not used.
    pub fn over(configuration: &Configuration, transport: impl Transport) -> Self {
        let connection = Connection::over(configuration, Arc::new(transport));
        Self { connection }
    }

    /// Polls for tasks and reports them.
    #[must_use]
    pub fn tasks(&self) -> TaskClient {
        TaskClient {
            connection: self.connection.clone(),
        }
    }

    /// Registers and reads definitions of tasks and workflows.
    #[must_use]
    pub fn metadata(&self) -> MetadataClient {
        MetadataClient {
            connection: self.connection.clone(),
        }
    }

    /// Starts, reads and controls workflows.
    #[must_use]
    pub fn workflows(&self) -> WorkflowClient {
        WorkflowClient {
            connection: self.connection.clone(),
        }
    }

    /// Registers and reads schemas.
    #[must_use]
    pub fn schemas(&self) -> SchemaClient {
        SchemaClient {
            connection: self.connection.clone(),
        }
    }
}
