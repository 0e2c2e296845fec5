//! Workflows: start, wait, read, search and control.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_protocol::conductor::member::{Member, Reader};
use longhaul_protocol::conductor::{
    ReturnStrategy, SearchResult, StartWorkflowRequest, Task, TaskRun, TaskStatus, Workflow,
    WorkflowRun, WorkflowStatusView, WorkflowSummary,
};
use longhaul_transport::{Repeat, RequestError};
use serde_json::Value;

use crate::connection::{Call, Connection};

/// Starts, reads and controls workflows.
#[derive(Clone, Debug)]
pub struct WorkflowClient {
    pub(super) connection: Connection,
}

/// How [`WorkflowClient::execute`] waits and what it returns.
#[derive(Clone, Debug)]
pub struct Execute {
    wait: Duration,
    until: Vec<String>,
    request_id: Option<String>,
    returns: ReturnStrategy,
}

impl Default for Execute {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(10),
            until: Vec::new(),
            request_id: None,
            returns: ReturnStrategy::TargetWorkflow,
        }
    }
}

impl Execute {
    /// Waits at most 10 seconds for the end of the workflow, or for a task that waits for a signal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the server waits. It is sent in whole seconds, rounded up.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Ends the wait also when the task of this reference has ended.
    #[must_use]
    pub fn until(mut self, reference: impl Into<String>) -> Self {
        self.until.push(reference.into());
        self
    }

    /// Sets an id that the answer repeats.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets what is returned.
    #[must_use]
    pub fn returns(mut self, strategy: ReturnStrategy) -> Self {
        self.returns = strategy;
        self
    }
}

/// What [`WorkflowClient::execute`] found when its wait ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Executed {
    /// A workflow: the started one, or the one that has the blocking task.
    Workflow(Box<WorkflowRun>),
    /// The task that waits for a signal.
    Task(Box<TaskRun>),
}

impl Executed {
    /// Returns the id of the started workflow.
    #[must_use]
    pub fn workflow_id(&self) -> &str {
        let (target, shown) = match self {
            Self::Workflow(run) => (&run.target_workflow_id, &run.workflow_id),
            Self::Task(run) => (&run.target_workflow_id, &run.workflow_id),
        };
        // Servers that always show the started workflow do not name it a second time.
        if target.is_empty() { shown } else { target }
    }

    /// Returns the workflow, unless a task was asked for and found.
    #[must_use]
    pub fn workflow(self) -> Option<WorkflowRun> {
        match self {
            Self::Workflow(run) => Some(*run),
            Self::Task(_) => None,
        }
    }
}

impl Member for Executed {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        // Only a task has a reference.
        if value.get("referenceTaskName").is_some_and(Value::is_string) {
            TaskRun::read(value, reader).map(|run| Self::Task(Box::new(run)))
        } else {
            WorkflowRun::read(value, reader).map(|run| Self::Workflow(Box::new(run)))
        }
    }
}

/// A search for workflows.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    query: Option<String>,
    free_text: Option<String>,
    sort: Option<String>,
    start: usize,
    size: Option<usize>,
}

impl SearchQuery {
    /// All workflows.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// The workflows for which a condition holds, such as `workflowType = 'order' AND status IN (RUNNING)`.
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: Some(query.into()),
            ..Self::default()
        }
    }

    /// Only workflows that contain this text.
    #[must_use]
    pub fn free_text(mut self, text: impl Into<String>) -> Self {
        self.free_text = Some(text.into());
        self
    }

    /// Sets the order, such as `startTime:DESC`.
    #[must_use]
    pub fn sort(mut self, sort: impl Into<String>) -> Self {
        self.sort = Some(sort.into());
        self
    }

    /// Sets the page: the first result and how many follow.
    #[must_use]
    pub fn page(mut self, start: usize, size: usize) -> Self {
        self.start = start;
        self.size = Some(size);
        self
    }
}

/// Which workflows [`WorkflowClient::correlated`] returns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Correlated {
    /// Also workflows that have ended.
    pub include_closed: bool,
    /// With their tasks.
    pub include_tasks: bool,
}

/// Which tasks of a workflow [`WorkflowClient::tasks`] returns.
#[derive(Clone, Debug)]
pub struct TaskPage {
    /// The first task, from 0.
    pub start: usize,
    /// How many follow.
    pub count: usize,
    /// Only tasks with one of these statuses; all if empty.
    pub statuses: Vec<TaskStatus>,
}

impl Default for TaskPage {
    fn default() -> Self {
        Self {
            start: 0,
            count: 15,
            statuses: Vec::new(),
        }
    }
}

impl WorkflowClient {
    /// Starts a workflow and returns its id.
    ///
    /// A start is repeated only if it certainly had no effect, or if it has an idempotency key.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such definition.
    pub async fn start(&self, request: &StartWorkflowRequest) -> Result<String, RequestError> {
        let call = self.connection.post(&["workflow"]).json(request);
        call.repeat(start_repeat(request)).send_text().await
    }

    /// Starts a workflow and waits for it.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such definition.
    pub async fn execute(
        &self,
        request: &StartWorkflowRequest,
        options: &Execute,
    ) -> Result<Executed, RequestError> {
        // Version 0 is the highest one.
        let version = request.version.unwrap_or_default().to_string();
        let seconds = options.wait.as_millis().div_ceil(1000);
        let until = options.until.join(",");
        let call = self
            .connection
            .post(&["workflow", "execute", &request.name, &version])
            .query("requestId", options.request_id.as_deref())
            .query("waitUntilTaskRef", Some(&until))
            .number("waitForSeconds", seconds)
            .query("returnStrategy", Some(options.returns.as_str()))
            .json(request)
            .waits(options.wait);
        call.repeat(start_repeat(request)).send().await
    }

    /// Returns a workflow with its tasks.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such workflow.
    pub async fn get(&self, workflow_id: &str) -> Result<Workflow, RequestError> {
        let call = self.connection.get(&["workflow", workflow_id]);
        call.flag("includeTasks", true).send().await
    }

    /// Returns a workflow without its tasks.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such workflow.
    pub async fn get_without_tasks(&self, workflow_id: &str) -> Result<Workflow, RequestError> {
        let call = self.connection.get(&["workflow", workflow_id]);
        call.flag("includeTasks", false).send().await
    }

    /// Returns the status of a workflow, with its output and its variables.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such workflow.
    pub async fn status(&self, workflow_id: &str) -> Result<WorkflowStatusView, RequestError> {
        let call = self.connection.get(&["workflow", workflow_id, "status"]);
        call.flag("includeOutput", true)
            .flag("includeVariables", true)
            .send()
            .await
    }

    /// Returns tasks of a workflow, in the order in which they were made.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 404 if there is no such workflow.
    pub async fn tasks(
        &self,
        workflow_id: &str,
        page: &TaskPage,
    ) -> Result<SearchResult<Task>, RequestError> {
        let mut call = self
            .connection
            .get(&["workflow", workflow_id, "tasks"])
            .number("start", page.start)
            .number("count", page.count);
        for status in &page.statuses {
            call = call.query("status", Some(status.as_str()));
        }
        call.send().await
    }

    /// Returns the ids of the running workflows of a definition.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn running(&self, name: &str, version: i32) -> Result<Vec<String>, RequestError> {
        let call = self.connection.get(&["workflow", "running", name]);
        call.number("version", version).send_many().await
    }

    /// Returns the workflows of a name for each correlation id.
    ///
    /// # Errors
    /// [`RequestError`]
    pub async fn correlated(
        &self,
        name: &str,
        correlation_ids: &[&str],
        which: Correlated,
    ) -> Result<BTreeMap<String, Vec<Workflow>>, RequestError> {
        let call = self.connection.post(&["workflow", name, "correlated"]);
        call.flag("includeClosed", which.include_closed)
            .flag("includeTasks", which.include_tasks)
            .json(correlation_ids)
            .repeat(Repeat::Freely)
            .send_many()
            .await
    }

    /// Searches workflows. Returns one page and the number of all results.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 400 if the condition is not valid.
    pub async fn search(
        &self,
        query: &SearchQuery,
    ) -> Result<SearchResult<WorkflowSummary>, RequestError> {
        let mut call = self
            .connection
            .get(&["workflow", "search"])
            .number("start", query.start);
        if let Some(size) = query.size {
            call = call.number("size", size);
        }
        call.query("sort", query.sort.as_deref())
            .query("freeText", query.free_text.as_deref())
            .query("query", query.query.as_deref())
            .send()
            .await
    }

    /// Pauses a workflow: no further task is scheduled. What is scheduled already may end.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 409 if the workflow has ended.
    pub async fn pause(&self, workflow_id: &str) -> Result<(), RequestError> {
        let call = self.connection.put(&["workflow", workflow_id, "pause"]);
        call.send_only().await
    }

    /// Resumes a paused workflow. A second resume is refused, so it is repeated only if it had no effect.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 409 if the workflow is not paused.
    pub async fn resume(&self, workflow_id: &str) -> Result<(), RequestError> {
        let call = self.connection.put(&["workflow", workflow_id, "resume"]);
        call.repeat(Repeat::IfWithoutEffect).send_only().await
    }

    /// Terminates a workflow.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 409 if the workflow is completed.
    pub async fn terminate(
        &self,
        workflow_id: &str,
        reason: Option<&str>,
    ) -> Result<(), RequestError> {
        self.end(workflow_id, reason).send_only().await
    }

    /// Terminates a workflow and starts its failure workflow.
    ///
    /// # Errors
    /// [`RequestError`]. The status is 409 if the workflow is completed.
    pub async fn terminate_as_failed(
        &self,
        workflow_id: &str,
        reason: Option<&str>,
    ) -> Result<(), RequestError> {
        let call = self.end(workflow_id, reason);
        call.flag("triggerFailureWorkflow", true).send_only().await
    }

    /// The first reason stays, so a second request changes nothing.
    fn end(&self, workflow_id: &str, reason: Option<&str>) -> Call<'_> {
        let call = self.connection.delete(&["workflow", workflow_id]);
        call.query("reason", reason).repeat(Repeat::Freely)
    }
}

/// A start with an idempotency key has one effect, however often it is sent.
fn start_repeat(request: &StartWorkflowRequest) -> Repeat {
    if request.idempotency_key.is_some() {
        Repeat::Freely
    } else {
        Repeat::IfWithoutEffect
    }
}
