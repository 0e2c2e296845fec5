//! Registered workers (control-plane.md §17), as plain data.

use longhaul_protocol::Timestamp;
use serde::Deserialize;

use super::{Client, Error};
use crate::transport::Plane;

/// One worker.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkerDescription {
    /// Its name for itself.
    pub worker_id: String,
    /// The queue it works on.
    pub task_queue: String,
    /// The language it is written in.
    pub runtime: String,
    /// The library it uses.
    pub sdk_version: Option<String>,
    /// The build of its code.
    pub build_id: Option<String>,
    /// `active`, `draining` or `stale`.
    pub status: String,
    /// The workflows it runs.
    #[serde(default)]
    pub supported_workflow_types: Vec<String>,
    /// The activities it runs.
    #[serde(default)]
    pub supported_activity_types: Vec<String>,
    /// What it can do beyond that.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// How many workflow tasks it takes at once.
    pub max_concurrent_workflow_tasks: Option<u64>,
    /// How many activities it runs at once.
    pub max_concurrent_activity_tasks: Option<u64>,
    /// When it last spoke.
    pub last_heartbeat_at: Option<Timestamp>,
    /// When it came.
    pub registered_at: Option<Timestamp>,
}

/// A list of workers in the making.
#[derive(Clone, Debug)]
#[must_use = "a list is not fetched until it is asked for"]
pub struct ListWorkers {
    client: Client,
    task_queue: Option<String>,
    status: Option<String>,
}

impl ListWorkers {
    /// Only those of one queue.
    pub fn queue(mut self, task_queue: impl Into<String>) -> Self {
        self.task_queue = Some(task_queue.into());
        self
    }

    /// Only `active`, `draining` or `stale` ones; without this, all that are not stale.
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Fetches it.
    ///
    /// # Errors
    /// The status is none, or the server cannot be asked.
    pub async fn fetch(self) -> Result<Vec<WorkerDescription>, Error> {
        #[derive(Deserialize)]
        struct Answer {
            workers: Vec<WorkerDescription>,
        }
        let answer: Answer = self
            .client
            .connection()
            .get(Plane::Control, &["workers"])
            .query("task_queue", self.task_queue.as_deref())
            .query("status", self.status.as_deref())
            .send()
            .await?;
        Ok(answer.workers)
    }
}

impl Client {
    /// Workers of the namespace.
    pub fn workers(&self) -> ListWorkers {
        ListWorkers {
            client: self.clone(),
            task_queue: None,
            status: None,
        }
    }

    /// One worker.
    ///
    /// # Errors
    /// There is none of this name.
    pub async fn worker(&self, worker_id: &str) -> Result<WorkerDescription, Error> {
        let segments = ["workers", worker_id];
        Ok(self
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?)
    }
}
