//! Tasks: polls, reports and logs.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_protocol::conductor::{
    Object, PollData, ResultStatus, Task, TaskExecLog, TaskResult, Workflow,
};
use longhaul_transport::{Repeat, RequestError};

use crate::connection::{Connection, is_nothing, read_model};

/// A request for tasks of one type.
#[derive(Clone, Debug)]
pub struct Poll {
    task_type: String,
    worker_id: Option<String>,
    domain: Option<String>,
    count: usize,
    timeout: Duration,
}

impl Poll {
    /// One task of the type, for at most 100 milliseconds.
    pub fn new(task_type: impl Into<String>) -> Self {
        Self {
            task_type: task_type.into(),
            worker_id: None,
            domain: None,
            count: 1,
            timeout: Duration::from_millis(100),
        }
    }

    /// Sets the name of the worker, which the record of a task shows.
    #[must_use]
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> Self {
        self.worker_id = Some(worker_id.into());
        self
    }

    /// Sets the domain. Without one, or with an empty one, the tasks have no domain.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets how many tasks are taken at most.
    #[must_use]
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Sets how long the server waits for a task.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

#[cfg(test)]
impl Poll {
    /// Returns how many tasks it asks for.
    pub(crate) fn asks_for(&self) -> usize {
        self.count
    }

    /// Returns task type, worker, domain, count and timeout.
    pub(crate) fn shown(&self) -> (&str, Option<&str>, Option<&str>, usize, Duration) {
        let (worker_id, domain) = (self.worker_id.as_deref(), self.domain.as_deref());
        (&self.task_type, worker_id, domain, self.count, self.timeout)
    }
}

/// Polls for tasks and reports them.
#[derive(Clone, Debug)]
pub struct TaskClient {
    pub(super) connection: Connection,
}

impl TaskClient {
    /// Takes up to [`Poll::count`] tasks. Returns as soon as there is one. Not repeated: a response that is lost has taken tasks.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn batch_poll(&self, poll: &Poll) -> Result<Vec<Task>, RequestError> {
        let call = self
            .connection
            .get(&["tasks", "poll", "batch", &poll.task_type])
            .query("workerid", poll.worker_id.as_deref())
            .query("domain", poll.domain.as_deref())
            .number("count", poll.count)
            .number("timeout", poll.timeout.as_millis())
            .repeat(Repeat::Never)
            .waits(poll.timeout);
        let mut tasks: Vec<Task> = call.send_many().await?;
        tasks.retain(is_task);
        Ok(tasks)
    }

    /// Takes one task. `None` if there is none. [`Poll::count`] and [`Poll::timeout`] have no effect.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn poll(&self, poll: &Poll) -> Result<Option<Task>, RequestError> {
        let call = self
            .connection
            .get(&["tasks", "poll", &poll.task_type])
            .query("workerid", poll.worker_id.as_deref())
            .query("domain", poll.domain.as_deref())
            .repeat(Repeat::Never);
        Ok(call.send_optional().await?.filter(is_task))
    }

    /// Reports a task.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn update(&self, result: &TaskResult) -> Result<(), RequestError> {
        let call = self.connection.post(&["tasks"]).json(result);
        call.repeat(Repeat::Never).send_only().await
    }

    /// Reports a task and takes the next one of its type, if there is one. A response that is not a task is no error, because the
    /// server has accepted the report.
    ///
    /// # Errors
    /// [`RequestError`]. A server without this request responds with status 404 or 405.
    pub async fn update_and_poll(&self, result: &TaskResult) -> Result<Option<Task>, RequestError> {
        let call = self.connection.post(&["tasks", "update-v2"]).json(result);
        let body = call.repeat(Repeat::Never).send_raw().await?;
        Ok(next_task(&body))
    }

    /// Ends or changes the open task of a reference. `output` is merged into the output of the task. Returns the id of the task.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if no task of the reference is open.
    pub async fn update_by_reference(
        &self,
        workflow_id: &str,
        reference: &str,
        status: ResultStatus,
        output: &Object,
    ) -> Result<String, RequestError> {
        let segments = ["tasks", workflow_id, reference, status.as_str()];
        self.connection
            .post(&segments)
            .json(output)
            .send_text()
            .await
    }

    /// Does what [`Self::update_by_reference`] does, and returns the workflow after it.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if no task of the reference is open.
    pub async fn update_by_reference_sync(
        &self,
        workflow_id: &str,
        reference: &str,
        status: ResultStatus,
        output: &Object,
    ) -> Result<Workflow, RequestError> {
        let segments = ["tasks", workflow_id, reference, status.as_str(), "sync"];
        self.connection.post(&segments).json(output).send().await
    }

    /// Appends a line to the log of a task.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn add_log(&self, task_id: &str, line: &str) -> Result<(), RequestError> {
        let call = self.connection.post(&["tasks", task_id, "log"]);
        call.text(line).send_only().await
    }

    /// Returns the log of a task, in the order of time.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn logs(&self, task_id: &str) -> Result<Vec<TaskExecLog>, RequestError> {
        let call = self.connection.get(&["tasks", task_id, "log"]);
        call.send_many().await
    }

    /// Returns a task.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such task.
    pub async fn get(&self, task_id: &str) -> Result<Task, RequestError> {
        self.connection.get(&["tasks", task_id]).send().await
    }

    /// Returns how many tasks of each type wait for a worker.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn queue_sizes(
        &self,
        task_types: &[&str],
    ) -> Result<BTreeMap<String, i64>, RequestError> {
        let mut call = self.connection.get(&["tasks", "queue", "sizes"]);
        for task_type in task_types {
            call = call.query("taskType", Some(task_type));
        }
        call.send_many().await
    }

    /// Returns who polled last for a task type, for each domain.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn poll_data(&self, task_type: &str) -> Result<Vec<PollData>, RequestError> {
        let call = self.connection.get(&["tasks", "queue", "polldata"]);
        call.query("taskType", Some(task_type)).send_many().await
    }
}

/// Returns whether a record from a poll is a task. One without an id can be neither executed nor reported.
fn is_task(task: &Task) -> bool {
    let has_id = !task.task_id.is_empty();
    if !has_id {
        tracing::warn!("the server sent a task without an id, which is left out");
    }
    has_id
}

/// Returns the task in a response to a report. Some servers send the id of the reported task as text.
fn next_task(body: &[u8]) -> Option<Task> {
    if is_nothing(body) || !body.trim_ascii().starts_with(b"{") {
        return None;
    }
    match read_model(body) {
        Ok(task) => Some(task).filter(is_task),
        Err(error) => {
            tracing::warn!(
                %error,
                "a report was accepted, but the response is not a task; a task in it comes again after its response time-out"
            );
            None
        }
    }
}
