//! The requests of a Conductor worker and a starter, and the parts of the answers that the bench reads.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::client::Connection;

/// The longest wait of one poll in milliseconds.
const POLL_MILLIS: u64 = 30_000;

/// The parts of a task that a worker acts on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) task_id: String,
    pub(super) workflow_instance_id: String,
    pub(super) reference_task_name: String,
    #[serde(default)]
    pub(super) correlation_id: Option<String>,
}

/// Returns a task that a worker does.
pub(super) fn simple(task_type: &str, reference: &str) -> Value {
    json!({"name": task_type, "taskReferenceName": reference, "type": "SIMPLE"})
}

impl Connection {
    /// Registers a workflow of these tasks.
    pub(super) async fn define(&mut self, name: &str, tasks: Value) -> Result<()> {
        let definition = json!([{"name": name, "version": 1, "tasks": tasks}]);
        self.send(
            Method::PUT,
            "/api/metadata/workflow",
            definition.to_string(),
        )
        .await?;
        Ok(())
    }

    /// Starts a run. Returns its id.
    pub(super) async fn start_run(
        &mut self,
        name: &str,
        correlation_id: &str,
        input: Value,
    ) -> Result<String> {
        let request =
            json!({"name": name, "version": 1, "correlationId": correlation_id, "input": input});
        let id = self
            .send(Method::POST, "/api/workflow", request.to_string())
            .await?;
        String::from_utf8(id.to_vec()).context("the id of a run is not text")
    }

    /// Takes up to `count` tasks, waiting for the first.
    pub(super) async fn poll_batch(&mut self, task_type: &str, count: u64) -> Result<Vec<Task>> {
        loop {
            let path = format!(
                "/api/tasks/poll/batch/{task_type}?workerid=bench&count={count}&timeout={POLL_MILLIS}"
            );
            let tasks = self.send(Method::GET, &path, String::new()).await?;
            let tasks: Vec<Task> =
                serde_json::from_slice(&tasks).context("a poll was not answered with tasks")?;
            if !tasks.is_empty() {
                return Ok(tasks);
            }
        }
    }

    /// Polls a queue that has no tasks, without waiting.
    pub(super) async fn poll_empty(&mut self, task_type: &str) -> Result<()> {
        let path = format!("/api/tasks/poll/batch/{task_type}?workerid=bench&count=1&timeout=0");
        let tasks = self.send(Method::GET, &path, String::new()).await?;
        ensure!(&*tasks == b"[]", "an empty queue has tasks");
        Ok(())
    }

    /// Completes a task. Returns the next one that the server hands out with the answer.
    pub(super) async fn complete_and_take_next(&mut self, task: &Task) -> Result<Option<Task>> {
        let next = self
            .send(Method::POST, "/api/tasks/update-v2", completion(task))
            .await?;
        if next.is_empty() {
            return Ok(None);
        }
        let next =
            serde_json::from_slice(&next).context("an update was not answered with a task")?;
        Ok(Some(next))
    }

    /// Completes a task.
    pub(super) async fn complete_task(&mut self, task: &Task) -> Result<()> {
        self.send(Method::POST, "/api/tasks", completion(task))
            .await?;
        Ok(())
    }

    /// Fails unless the run has completed.
    pub(super) async fn check_completed(&mut self, workflow_id: &str) -> Result<()> {
        let status = self.status(workflow_id).await?;
        ensure!(
            status == "COMPLETED",
            "run {workflow_id} is {status}, expected COMPLETED"
        );
        Ok(())
    }

    /// Returns whether the run has completed. Fails if it ended in another way.
    pub(super) async fn is_completed(&mut self, workflow_id: &str) -> Result<bool> {
        let status = self.status(workflow_id).await?;
        if status != "RUNNING" {
            self.check_completed(workflow_id).await?;
        }
        Ok(status == "COMPLETED")
    }

    async fn status(&mut self, workflow_id: &str) -> Result<Value> {
        let path = format!("/api/workflow/{workflow_id}?includeTasks=false");
        let run = self.send(Method::GET, &path, String::new()).await?;
        let mut run: Value = serde_json::from_slice(&run).context("a run is not JSON")?;
        Ok(run["status"].take())
    }
}

fn completion(task: &Task) -> String {
    json!({
        "workflowInstanceId": task.workflow_instance_id, "taskId": task.task_id, "workerId": "bench",
        "status": "COMPLETED", "outputData": {"result": "hello, world"},
    })
    .to_string()
}
