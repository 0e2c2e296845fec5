//! Keeps the lease of a task while it runs longer than its response time-out.

use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::conductor::{ResultStatus, Task, TaskResult};
use tokio::task::JoinHandle;

use super::{Shared, TaskApi};

/// A heartbeat is sent after this part of the response time-out.
const HEARTBEAT_AFTER: f64 = 0.8;

/// Shorter leases are not extended.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The waits after a heartbeat that failed, before it is sent again.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(1500)];

/// Sends heartbeats until it is dropped.
#[derive(Debug)]
pub(super) struct Lease(JoinHandle<()>);

impl Lease {
    /// Begins to extend the lease of a task. `None` if the settings do not ask for it, or the task has no response time-out.
    pub(super) fn keep(shared: &Shared, task: &Task) -> Option<Self> {
        let timeout = u64::try_from(task.response_timeout_seconds).unwrap_or(0);
        let interval = Duration::from_secs(timeout).mul_f64(HEARTBEAT_AFTER);
        if !shared.settings.lease_extend_enabled || interval < INTERVAL_MIN {
            return None;
        }
        let heartbeat = TaskResult {
            task_id: task.task_id.clone(),
            workflow_instance_id: task.workflow_instance_id.clone(),
            worker_id: Some(shared.settings.worker_id.clone()),
            status: Some(ResultStatus::InProgress),
            extend_lease: true,
            ..TaskResult::default()
        };
        let tasks = Arc::clone(&shared.tasks);
        let task_type = Arc::clone(&shared.worker.task_type);
        Some(Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                send(&*tasks, &task_type, &heartbeat).await;
            }
        })))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn send(tasks: &dyn TaskApi, task_type: &str, heartbeat: &TaskResult) {
    let mut waits = WAITS.into_iter();
    while let Err(error) = tasks.update(heartbeat).await {
        let (task_id, workflow_instance_id) = (&heartbeat.task_id, &heartbeat.workflow_instance_id);
        let worker_id = heartbeat.worker_id.as_deref();
        let Some(wait) = waits.next() else {
            tracing::warn!(
                task_type, task_id, workflow_instance_id, worker_id, %error,
                "the lease of a task was not extended"
            );
            return;
        };
        tracing::debug!(
            task_type, task_id, workflow_instance_id, worker_id, %error, ?wait,
            "a heartbeat failed and is sent again"
        );
        tokio::time::sleep(wait).await;
    }
}
