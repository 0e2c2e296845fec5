//! Reports results. A result that is lost has to be worked out again, so a report is repeated for a minute.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_protocol::conductor::{ResultStatus, Task, TaskResult};
use longhaul_transport::RequestError;
use tokio::time::Instant;

use super::Shared;
use super::pace::Failure;
use crate::events::{TaskUpdateCompleted, TaskUpdateError, TaskUpdateFailure};

/// How often a result is sent.
pub(super) const UPDATE_ATTEMPTS: u32 = 4;

/// Each further attempt waits this much longer than the one before.
const WAIT_STEP: Duration = Duration::from_secs(10);

impl Shared {
    /// Reports a result. Returns the next task for the same slot, if the server has one and the runner goes on.
    pub(super) async fn report(&self, result: TaskResult) -> Option<Task> {
        let next = self.send(result).await?;
        if !self.holds_back() {
            return Some(next);
        }
        // The task came while the runner was told to pause or stop. Other workers shall not wait for its response time-out.
        self.give_back(&next).await;
        None
    }

    /// Returns whether the runner must take no further task.
    fn holds_back(&self) -> bool {
        self.control.is_stopping() || self.control.is_paused()
    }

    /// Sends a result, at most [`UPDATE_ATTEMPTS`] times. Returns the next task.
    async fn send(&self, result: TaskResult) -> Option<Task> {
        let (task_type, worker_id) = (&self.worker.task_type, &self.settings.worker_id);
        let (task_id, workflow_instance_id) = (&result.task_id, &result.workflow_instance_id);
        let begun = Instant::now();
        let mut attempt = 1;
        loop {
            let error = match self.send_once(&result).await {
                Ok(next) => {
                    tracing::debug!(
                        task_type = &**task_type,
                        task_id,
                        workflow_instance_id,
                        worker_id,
                        "a task was reported"
                    );
                    self.events.publish(TaskUpdateCompleted {
                        task_type: Arc::clone(task_type),
                        task_id: task_id.clone(),
                        worker_id: self.settings.worker_id.clone(),
                        workflow_instance_id: result.workflow_instance_id.clone(),
                        duration: begun.elapsed(),
                    });
                    return next;
                }
                Err(error) => error,
            };
            let advice = Failure::of(&error).advice();
            tracing::error!(
                task_type = &**task_type, task_id, workflow_instance_id, worker_id, %error,
                "a report failed (attempt {attempt}/{UPDATE_ATTEMPTS}): {advice}"
            );
            let error = Arc::new(error);
            self.events.publish(TaskUpdateError {
                task_type: Arc::clone(task_type),
                task_id: task_id.clone(),
                cause: Arc::clone(&error),
                attempt,
            });
            if attempt == UPDATE_ATTEMPTS {
                self.lost(result, error, begun.elapsed());
                return None;
            }
            tokio::time::sleep(WAIT_STEP * attempt).await;
            attempt += 1;
        }
    }

    /// Sends a result once. A server without the update that returns the next task gets the plain one, from then on.
    async fn send_once(&self, result: &TaskResult) -> Result<Option<Task>, RequestError> {
        if self.plain_updates.load(Ordering::Relaxed) || self.holds_back() {
            return self.tasks.update(result).await.map(|()| None);
        }
        match self.tasks.update_and_poll(result).await {
            Err(error) if may_be_unknown_route(&error) => {}
            outcome => return outcome,
        }
        // Some servers use the same status for a task that does not exist. Then the plain update has it, too.
        let updated = self.tasks.update(result).await;
        if !updated.as_ref().is_err_and(may_be_unknown_route) {
            tracing::info!(
                task_type = &*self.worker.task_type,
                "the server has no update-v2; results are sent to /tasks"
            );
            self.plain_updates.store(true, Ordering::Relaxed);
        }
        updated.map(|()| None)
    }

    fn lost(&self, result: TaskResult, error: Arc<RequestError>, duration: Duration) {
        let task_type = &self.worker.task_type;
        tracing::error!(
            critical = true, task_type = &**task_type, task_id = result.task_id,
            workflow_instance_id = result.workflow_instance_id,
            worker_id = self.settings.worker_id, %error,
            "the result of a task is lost after {UPDATE_ATTEMPTS} attempts: a listener can keep it with on_task_update_failure"
        );
        self.events.publish(TaskUpdateFailure {
            task_type: Arc::clone(task_type),
            task_id: result.task_id.clone(),
            worker_id: self.settings.worker_id.clone(),
            workflow_instance_id: result.workflow_instance_id.clone(),
            cause: error,
            retry_count: UPDATE_ATTEMPTS,
            duration,
            task_result: Arc::new(result),
        });
    }

    /// Returns a task to its queue, untouched. Failing that, it is delivered again after its response time-out.
    async fn give_back(&self, task: &Task) {
        let result = TaskResult {
            task_id: task.task_id.clone(),
            workflow_instance_id: task.workflow_instance_id.clone(),
            worker_id: Some(self.settings.worker_id.clone()),
            status: Some(ResultStatus::InProgress),
            output_data: task.output_data.clone(),
            ..TaskResult::default()
        };
        if let Err(error) = self.tasks.update(&result).await {
            tracing::warn!(
                task_type = &*self.worker.task_type, task_id = task.task_id,
                workflow_instance_id = task.workflow_instance_id,
                worker_id = self.settings.worker_id, %error,
                "a task that came during the stop is left to its response time-out"
            );
        }
    }
}

/// Returns whether the server may not know the request. A status of 400 does not mean that.
fn may_be_unknown_route(error: &RequestError) -> bool {
    let status = error.refusal().map(|refusal| refusal.status());
    matches!(status, Some(404 | 405))
}
