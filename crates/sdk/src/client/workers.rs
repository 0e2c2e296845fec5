//! Registered workers.

use longhaul_protocol::Timestamp;
use serde::Deserialize;

use super::{Client, Error};
use crate::transport::Plane;

/// A registered worker.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkerDescription {
    /// The worker id.
    pub worker_id: String,
    /// The task queue.
    pub task_queue: String,
    /// The runtime, such as `python`.
    pub runtime: String,
    /// The name and version of the SDK.
    pub sdk_version: Option<String>,
    /// The build id.
    pub build_id: Option<String>,
    /// `active`, `draining` or `stale`.
    pub status: String,
    /// The workflow types it runs.
    #[serde(default)]
    pub supported_workflow_types: Vec<String>,
    /// The activity types it runs.
    #[serde(default)]
    pub supported_activity_types: Vec<String>,
    /// Its capabilities.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The most workflow tasks at once.
    pub max_concurrent_workflow_tasks: Option<u64>,
    /// The most activities at once.
    pub max_concurrent_activity_tasks: Option<u64>,
    /// The time of its last heartbeat.
    pub last_heartbeat_at: Option<Timestamp>,
    /// The time of its registration.
    pub registered_at: Option<Timestamp>,
}

/// A list of workers, with filters.
#[derive(Clone, Debug)]
#[must_use = "a list is not fetched until `fetch` is called"]
pub struct ListWorkers {
    client: Client,
    task_queue: Option<String>,
    status: Option<String>,
}

impl ListWorkers {
    /// Filters by task queue.
    pub fn queue(mut self, task_queue: impl Into<String>) -> Self {
        self.task_queue = Some(task_queue.into());
        self
    }

    /// Filters by status: `active`, `draining` or `stale`. By default, stale workers are left out.
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Fetches the list.
    ///
    /// # Errors
    /// [`Error::Request`] if the status is not valid, or if the server cannot be reached.
    pub async fn fetch(self) -> Result<Vec<WorkerDescription>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            workers: Vec<WorkerDescription>,
        }
        let reply: Reply = self
            .client
            .connection()
            .get(Plane::Control, &["workers"])
            .query("task_queue", self.task_queue.as_deref())
            .query("status", self.status.as_deref())
            .send()
            .await?;
        Ok(reply.workers)
    }
}

impl Client {
    /// Returns a list of the workers of the namespace. Sends no request.
    pub fn workers(&self) -> ListWorkers {
        ListWorkers {
            client: self.clone(),
            task_queue: None,
            status: None,
        }
    }

    /// Returns a worker.
    ///
    /// # Errors
    /// [`Error::Request`] if no worker has this id, or if the server cannot be reached.
    pub async fn worker(&self, worker_id: &str) -> Result<WorkerDescription, Error> {
        let segments = ["workers", worker_id];
        Ok(self
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?)
    }
}
