//! Executes tasks: runs the function of the worker and makes the result of what it returned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use longhaul_protocol::conductor::{ResultStatus, Task, TaskResult};
use tokio::time::Instant;

use super::Shared;
use super::lease::Lease;
use crate::events::{TaskExecutionCompleted, TaskExecutionFailure, TaskExecutionStarted};
use crate::worker::{Additions, Execute, Outcome, TaskContext, TaskFailure, TaskResponse, log};

impl Shared {
    /// Executes a task and reports it, then the next one that the report returned.
    pub(super) async fn handle(self: Arc<Self>, task: Task) {
        let mut next = Some(task);
        while let Some(task) = next {
            let result = self.execute(Arc::new(task)).await;
            next = self.report(result).await;
        }
    }

    /// Runs the function of the worker. Always returns a result: an error or a panic is a failed task.
    pub(super) async fn execute(&self, task: Arc<Task>) -> TaskResult {
        let (task_type, worker_id) = (&self.worker.task_type, &self.settings.worker_id);
        let context = TaskContext::new(Arc::clone(&task));
        self.events.publish(TaskExecutionStarted {
            task_type: Arc::clone(task_type),
            task_id: task.task_id.clone(),
            worker_id: worker_id.clone(),
            workflow_instance_id: task.workflow_instance_id.clone(),
        });
        let (task_id, workflow_instance_id) = (&task.task_id, &task.workflow_instance_id);
        tracing::debug!(
            task_type = &**task_type,
            task_id,
            workflow_instance_id,
            worker_id,
            "a task begins"
        );
        let begun = Instant::now();
        let lease = Lease::keep(self, &task);
        let response = run(&self.worker.execute, &task, context.clone()).await;
        drop(lease);
        let duration = begun.elapsed();
        let response = response.map(|outcome| {
            let mut result = result_of(&task, worker_id, outcome);
            merge(&mut result, context.take_additions());
            result
        });
        match response {
            Ok(result) => {
                tracing::debug!(
                    task_type = &**task_type,
                    task_id,
                    workflow_instance_id,
                    worker_id,
                    ?duration,
                    "a task ended"
                );
                self.events.publish(TaskExecutionCompleted {
                    task_type: Arc::clone(task_type),
                    task_id: task.task_id.clone(),
                    worker_id: worker_id.clone(),
                    workflow_instance_id: task.workflow_instance_id.clone(),
                    duration,
                    output_size_bytes: output_size(&result),
                });
                result
            }
            Err(failure) => {
                if failure.is_terminal() {
                    tracing::error!(
                        task_type = &**task_type, task_id, workflow_instance_id, worker_id, error = %failure,
                        "a task failed and will not be retried"
                    );
                } else {
                    tracing::warn!(
                        task_type = &**task_type, task_id, workflow_instance_id, worker_id, error = %failure,
                        "a task failed"
                    );
                }
                let mut result = failed_result(&task, worker_id, &failure);
                merge(&mut result, context.take_additions());
                self.events.publish(TaskExecutionFailure {
                    task_type: Arc::clone(task_type),
                    task_id: task.task_id.clone(),
                    worker_id: worker_id.clone(),
                    workflow_instance_id: task.workflow_instance_id.clone(),
                    cause: Arc::new(failure),
                    duration,
                });
                result
            }
        }
    }
}

/// Runs the function. A panic is an error.
async fn run(execute: &Execute, task: &Arc<Task>, context: TaskContext) -> TaskResponse<Outcome> {
    let finished = match execute {
        Execute::Async(function) => {
            let begin = || function(Arc::clone(task));
            match catch_unwind(AssertUnwindSafe(|| context.clone().sync_scope(begin))) {
                Ok(work) => context.scope(AssertUnwindSafe(work).catch_unwind()).await,
                Err(panic) => Err(panic),
            }
        }
        Execute::Sync(function) => {
            let (function, task) = (Arc::clone(function), Arc::clone(task));
            let work =
                move || catch_unwind(AssertUnwindSafe(|| context.sync_scope(|| function(&task))));
            match tokio::task::spawn_blocking(work).await {
                Ok(finished) => finished,
                // The runtime stops.
                Err(stopped) => return Err(TaskFailure::from(stopped)),
            }
        }
    };
    finished.unwrap_or_else(|panic| Err(TaskFailure::panicked(&*panic)))
}

/// Returns the result of a task whose function returned.
fn result_of(task: &Task, worker_id: &str, outcome: Outcome) -> TaskResult {
    let mut result = match outcome {
        Outcome::Output(output_data) => TaskResult {
            status: Some(ResultStatus::Completed),
            output_data,
            ..TaskResult::default()
        },
        Outcome::Result(result) => *result,
        Outcome::InProgress(progress) => TaskResult {
            status: Some(ResultStatus::InProgress),
            callback_after_seconds: whole_seconds(progress.callback_after),
            output_data: progress.output,
            ..TaskResult::default()
        },
    };
    name(&mut result, task, worker_id);
    result
}

/// Returns the result of a task whose function failed.
fn failed_result(task: &Task, worker_id: &str, failure: &TaskFailure) -> TaskResult {
    let status = if failure.is_terminal() {
        ResultStatus::FailedWithTerminalError
    } else {
        ResultStatus::Failed
    };
    let mut result = TaskResult {
        status: Some(status),
        reason_for_incompletion: Some(failure.message()),
        logs: vec![log(task, failure.trace())],
        ..TaskResult::default()
    };
    name(&mut result, task, worker_id);
    result
}

/// Fills in the ids that a result does not have.
fn name(result: &mut TaskResult, task: &Task, worker_id: &str) {
    if result.task_id.is_empty() {
        result.task_id.clone_from(&task.task_id);
    }
    if result.workflow_instance_id.is_empty() {
        let workflow_id = &task.workflow_instance_id;
        result.workflow_instance_id.clone_from(workflow_id);
    }
    if result.worker_id.as_deref().is_none_or(str::is_empty) {
        result.worker_id = Some(worker_id.to_owned());
    }
}

/// Adds what the worker gave to its context. Its callback time replaces that of the result; the output of the result comes first.
fn merge(result: &mut TaskResult, additions: Additions) {
    result.logs.extend(additions.logs);
    if let Some(wait) = additions.callback_after {
        result.callback_after_seconds = whole_seconds(wait);
    }
    for (member, value) in additions.output {
        result.output_data.entry(member).or_insert(value);
    }
}

/// Returns the seconds of a duration, rounded up.
fn whole_seconds(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// Returns the bytes of the output as JSON.
fn output_size(result: &TaskResult) -> usize {
    serde_json::to_vec(&result.output_data).map_or(0, |output| output.len())
}
