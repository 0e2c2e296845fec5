//! Task queues and the builds of their workers (control-plane.md §18), as plain data.

use longhaul_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Client, Error, WorkerDescription};
use crate::transport::Plane;

/// One queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TaskQueueDescription {
    /// Its name.
    pub name: String,
    /// What waits in it and how fast it moves.
    pub stats: TaskQueueStats,
    /// The workers that ask it for work. Only in the description of one queue.
    #[serde(default)]
    pub pollers: Vec<WorkerDescription>,
    /// Work that is given out. Only in the description of one queue, and at most 50.
    #[serde(default)]
    pub current_leases: Vec<Lease>,
}

/// What waits in a queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TaskQueueStats {
    /// Tasks that wait for a worker.
    pub approximate_backlog_count: u64,
    /// How long the oldest has waited.
    pub approximate_backlog_age_seconds: Option<u64>,
    /// Workflow tasks.
    pub workflow_tasks: TaskCounts,
    /// Activities.
    pub activity_tasks: TaskCounts,
}

/// Tasks of one sort in a queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TaskCounts {
    /// Waiting for a worker.
    pub ready_count: u64,
    /// With a worker.
    pub leased_count: u64,
}

/// One task that a worker has.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// The task.
    pub task_id: String,
    /// `workflow` or `activity`.
    pub task_type: String,
    /// Whose task it is.
    pub workflow_id: Option<String>,
    /// Which run's.
    pub run_id: Option<String>,
    /// The worker.
    pub lease_owner: Option<String>,
    /// Until when it has it.
    pub lease_expires_at: Option<Timestamp>,
}

/// One build of a queue's workers.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct BuildId {
    /// Its name; nothing for workers that gave none.
    pub build_id: Option<String>,
    /// `active`, `active_with_draining`, `draining`, `stale_only` or `no_workers`.
    pub rollout_status: Option<String>,
    /// `active` or `draining`: what the operator wants.
    pub drain_intent: String,
    /// Whether new workflows are pinned to it.
    #[serde(default)]
    pub new_start_selected: bool,
    /// Its workers that are there.
    #[serde(default)]
    pub active_worker_count: u64,
}

impl Client {
    /// The queues of the namespace.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn task_queues(&self) -> Result<Vec<TaskQueueDescription>, Error> {
        #[derive(Deserialize)]
        struct Answer {
            task_queues: Vec<TaskQueueDescription>,
        }
        let call = self.connection().get(Plane::Control, &["task-queues"]);
        Ok(call.send::<Answer>().await?.task_queues)
    }

    /// One queue. One that nobody used yet is empty, not missing.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn task_queue(&self, name: &str) -> Result<TaskQueueDescription, Error> {
        let segments = ["task-queues", name];
        Ok(self
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?)
    }

    /// The builds of a queue's workers.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn build_ids(&self, queue: &str) -> Result<Vec<BuildId>, Error> {
        #[derive(Deserialize)]
        struct Answer {
            build_ids: Vec<BuildId>,
        }
        let segments = ["task-queues", queue, "build-ids"];
        let call = self.connection().get(Plane::Control, &segments);
        Ok(call.send::<Answer>().await?.build_ids)
    }

    /// Gives no new work to workers of a build (of none, for workers without one).
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn drain_build(&self, queue: &str, build_id: Option<&str>) -> Result<BuildId, Error> {
        self.change_build(queue, build_id, "drain").await
    }

    /// Takes a drain back.
    ///
    /// # Errors
    /// The server cannot be asked.
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
    /// The build has no workers that could take them; the refusal says why.
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
