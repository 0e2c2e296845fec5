//! Task queues and the builds of their workers.

use longhaul_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Client, Error, WorkerDescription};
use crate::transport::Plane;

/// A task queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TaskQueueDescription {
    /// The name of the queue.
    pub name: String,
    /// The tasks in the queue.
    pub stats: TaskQueueStats,
    /// The workers that poll the queue. Only in the description of one queue.
    #[serde(default)]
    pub pollers: Vec<WorkerDescription>,
    /// The leased tasks, at most 50. Only in the description of one queue.
    #[serde(default)]
    pub current_leases: Vec<Lease>,
}

/// The tasks in a queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TaskQueueStats {
    /// The number of tasks that wait for a worker.
    pub approximate_backlog_count: u64,
    /// The age of the oldest waiting task.
    pub approximate_backlog_age_seconds: Option<u64>,
    /// Workflow tasks.
    pub workflow_tasks: TaskCounts,
    /// Activity tasks.
    pub activity_tasks: TaskCounts,
}

/// The tasks of one kind in a queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TaskCounts {
    /// Tasks that wait for a worker.
    pub ready_count: u64,
    /// Tasks that are leased to a worker.
    pub leased_count: u64,
}

/// A leased task.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// The task id.
    pub task_id: String,
    /// `workflow` or `activity`.
    pub task_type: String,
    /// The workflow id.
    pub workflow_id: Option<String>,
    /// The run id.
    pub run_id: Option<String>,
    /// The worker id.
    pub lease_owner: Option<String>,
    /// The end of the lease.
    pub lease_expires_at: Option<Timestamp>,
}

/// A build of the workers of a queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct BuildId {
    /// The build id. `None` for workers without one.
    pub build_id: Option<String>,
    /// `active`, `active_with_draining`, `draining`, `stale_only` or `no_workers`.
    pub rollout_status: Option<String>,
    /// `active` or `draining`, set by the operator.
    pub drain_intent: String,
    /// Whether new workflows are pinned to the build.
    #[serde(default)]
    pub new_start_selected: bool,
    /// The number of its active workers.
    #[serde(default)]
    pub active_worker_count: u64,
}

impl Client {
    /// Returns the task queues of the namespace.
    ///
    /// # Errors
    /// [`Error::Request`] if the namespace does not exist, or if the server cannot be reached.
    pub async fn task_queues(&self) -> Result<Vec<TaskQueueDescription>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            task_queues: Vec<TaskQueueDescription>,
        }
        let call = self.connection().get(Plane::Control, &["task-queues"]);
        Ok(call.send::<Reply>().await?.task_queues)
    }

    /// Returns a task queue. A queue that was never used is empty, not missing.
    ///
    /// # Errors
    /// [`Error::Request`] if the namespace does not exist, or if the server cannot be reached.
    pub async fn task_queue(&self, name: &str) -> Result<TaskQueueDescription, Error> {
        let segments = ["task-queues", name];
        Ok(self
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?)
    }

    /// Returns the builds of the workers of a queue.
    ///
    /// # Errors
    /// [`Error::Request`] if the namespace does not exist, or if the server cannot be reached.
    pub async fn build_ids(&self, queue: &str) -> Result<Vec<BuildId>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            build_ids: Vec<BuildId>,
        }
        let segments = ["task-queues", queue, "build-ids"];
        let call = self.connection().get(Plane::Control, &segments);
        Ok(call.send::<Reply>().await?.build_ids)
    }

    /// Stops dispatching new tasks to workers of a build. `None` is the build of workers without a build id.
    ///
    /// # Errors
    /// [`Error::Request`] if the namespace does not exist, or if the server cannot be reached.
    pub async fn drain_build(&self, queue: &str, build_id: Option<&str>) -> Result<BuildId, Error> {
        self.change_build(queue, build_id, "drain").await
    }

    /// Resumes dispatching to workers of a drained build.
    ///
    /// # Errors
    /// [`Error::Request`] if the namespace does not exist, or if the server cannot be reached.
    pub async fn resume_build(
        &self,
        queue: &str,
        build_id: Option<&str>,
    ) -> Result<BuildId, Error> {
        self.change_build(queue, build_id, "resume").await
    }

    /// Pins new workflows of a queue to a build.
    ///
    /// # Errors
    /// [`Error::Request`] if the build has no active workers or is drained, or if the server cannot be reached.
    pub async fn promote_build(
        &self,
        queue: &str,
        build_id: Option<&str>,
    ) -> Result<BuildId, Error> {
        self.change_build(queue, build_id, "promote").await
    }

    async fn change_build(
        &self,
        queue: &str,
        build_id: Option<&str>,
        change: &str,
    ) -> Result<BuildId, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            build_id: Option<&'a str>,
        }
        let segments = ["task-queues", queue, "build-ids", change];
        let call = self.connection().post(Plane::Control, &segments);
        Ok(call.json(&Body { build_id }).send().await?)
    }
}
