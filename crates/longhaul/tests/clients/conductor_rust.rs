//! Scenarios of `longhaul-conductor-sdk`, the counterparts of those of the published Conductor clients.
//!
//! They run against the built binary, or against the Conductor server whose API is at `LONGHAUL_CONDUCTOR_URL`. `fleet` and
//! `processes` need a server of ours, `others` has one that behaves as other servers do, and `wire` compares requests.

mod echo;
mod fleet;
mod forks;
mod limits;
mod lists;
mod operators;
mod others;
mod outcomes;
mod processes;
mod retries;
mod starts;
mod sub_workflows;
mod wire;
mod workers;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use longhaul_conductor_sdk::client::Poll;
use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, simple, workflow_input,
};
use longhaul_conductor_sdk::handler::Isolation;
use longhaul_conductor_sdk::model::{
    Object, ResultStatus, StartWorkflowRequest, Task, TaskResult, TaskStatus, Workflow,
    WorkflowStatus,
};
use longhaul_conductor_sdk::transport::RequestError;
use longhaul_conductor_sdk::worker::{AnyWorker, function};
use longhaul_conductor_sdk::{Client, Configuration, TaskHandler};
use serde_json::Value;

use crate::harness::{Server, eventually};

/// A server with its clients.
pub(crate) struct World {
    /// `None` if the server is not ours.
    _server: Option<Arc<Server>>,
    pub(crate) configuration: Configuration,
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn start() -> Self {
        match std::env::var("LONGHAUL_CONDUCTOR_URL") {
            Ok(url) => Self::at(Configuration::new(url), None),
            Err(_) => Self::of(Arc::new(Server::start().await)),
        }
    }

    pub(crate) fn of(server: Arc<Server>) -> Self {
        let configuration = configuration(server.url());
        Self::at(configuration, Some(server))
    }

    pub(crate) fn at(configuration: Configuration, server: Option<Arc<Server>>) -> Self {
        Self {
            client: Client::new(&configuration).unwrap(),
            configuration,
            _server: server,
        }
    }

    /// Runs workers in this process until the returned value is dropped.
    pub(crate) async fn workers(
        &self,
        workers: impl IntoIterator<Item = AnyWorker>,
    ) -> TaskHandler {
        let mut handler = TaskHandler::builder(self.configuration.clone())
            .isolation(Isolation::InProcess)
            .workers(workers)
            .build()
            .unwrap();
        handler.start_processes().await;
        handler
    }

    /// Runs a worker that returns its input, and registers a workflow of one such task, which gets the input `n` of the workflow.
    /// Returns the name of the workflow, and the worker, which runs until it is dropped.
    pub(crate) async fn returning_input(&self) -> (String, TaskHandler) {
        let task = unique("task");
        let node = simple(&task, "t").input("n", workflow_input("n"));
        let name = self.define(|workflow| workflow.then(node)).await;
        let worker = function(&task, |input: Value| Ok(input));
        (name, self.workers([worker]).await)
    }

    /// Registers a workflow under a name of its own. Returns the name.
    pub(crate) async fn define(
        &self,
        build: impl FnOnce(WorkflowDefBuilder) -> WorkflowDefBuilder,
    ) -> String {
        let name = unique("workflow");
        let definition = build(WorkflowDefBuilder::new(&name)).build().unwrap();
        let metadata = self.client.metadata();
        metadata.register_workflow(&definition).await.unwrap();
        name
    }

    /// Registers a task under a name of its own, and a workflow of it with the reference `t`. Returns both names.
    pub(crate) async fn one_task(
        &self,
        build: impl FnOnce(TaskDefBuilder) -> TaskDefBuilder,
    ) -> (String, String) {
        let task = unique("task");
        let definition = build(TaskDefBuilder::new(&task)).build().unwrap();
        let metadata = self.client.metadata();
        metadata.register_tasks(&[definition]).await.unwrap();
        let workflow = self
            .define(|workflow| workflow.then(simple(&task, "t")))
            .await;
        (task, workflow)
    }

    pub(crate) async fn start_workflow(&self, name: &str, input: Value) -> String {
        let request = request(name, input);
        self.client.workflows().start(&request).await.unwrap()
    }

    /// Returns a workflow once it has ended.
    pub(crate) async fn ended(&self, id: &str) -> Workflow {
        eventually(&format!("the end of {id}"), || async {
            let workflow = self.client.workflows().get(id).await.unwrap();
            workflow.status.is_terminal().then_some(workflow)
        })
        .await
    }

    /// Starts a workflow and returns it once it has ended.
    pub(crate) async fn run(&self, name: &str, input: Value) -> Workflow {
        let id = self.start_workflow(name, input).await;
        self.ended(&id).await
    }

    /// Starts a workflow and returns it once it has completed.
    pub(crate) async fn completed(&self, name: &str, input: Value) -> Workflow {
        let workflow = self.run(name, input).await;
        let (status, reason) = (workflow.status, &workflow.reason_for_incompletion);
        assert_eq!(status, WorkflowStatus::Completed, "{reason:?}");
        workflow
    }

    /// Returns a task of this type as soon as there is one.
    pub(crate) async fn polled(&self, task_type: &str) -> Task {
        eventually(&format!("a task {task_type}"), || async {
            let poll = Poll::new(task_type).worker_id("by-hand");
            self.client.tasks().poll(&poll).await.unwrap()
        })
        .await
    }

    /// Reports a task as a worker does.
    pub(crate) async fn report(&self, task: &Task, status: ResultStatus, output: Value) {
        let result = result(task, status, output);
        self.client.tasks().update(&result).await.unwrap();
    }
}

pub(crate) fn configuration(url: &str) -> Configuration {
    Configuration::new(format!("{url}/api"))
}

/// Returns a name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}_{:016x}", rand::random::<u64>())
}

pub(crate) fn request(name: &str, input: Value) -> StartWorkflowRequest {
    StartWorkflowRequest {
        name: name.to_owned(),
        input: object(input),
        ..StartWorkflowRequest::default()
    }
}

/// Returns what a worker reports about a task.
pub(crate) fn result(task: &Task, status: ResultStatus, output: Value) -> TaskResult {
    TaskResult {
        task_id: task.task_id.clone(),
        workflow_instance_id: task.workflow_instance_id.clone(),
        status: Some(status),
        output_data: object(output),
        ..TaskResult::default()
    }
}

pub(crate) fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is not an object"),
    }
}

pub(crate) fn statuses(workflow: &Workflow) -> Vec<(&str, TaskStatus)> {
    let tasks = workflow.tasks.iter();
    tasks
        .map(|task| (&*task.reference_task_name, task.status))
        .collect()
}

pub(crate) fn references(workflow: &Workflow) -> Vec<&str> {
    let tasks = workflow.tasks.iter();
    tasks.map(|task| &*task.reference_task_name).collect()
}

/// Returns the first task of a reference.
pub(crate) fn task_of<'a>(workflow: &'a Workflow, reference: &str) -> &'a Task {
    let mut tasks = workflow.tasks.iter();
    let task = tasks.find(|task| task.reference_task_name == reference);
    task.unwrap_or_else(|| panic!("no task {reference} in {:?}", references(workflow)))
}

/// Expects that the server refused a request with this status. Returns its message.
pub(crate) fn refused<T: Debug>(status: u16, answer: Result<T, RequestError>) -> String {
    let error = answer.expect_err("the request is refused");
    let Some(refusal) = error.refusal() else {
        panic!("{error}")
    };
    assert_eq!(refusal.status(), status, "{error}");
    refusal.message().to_owned()
}

/// How long a test waits for a program. Never reached when it passes.
const PROGRAM_DEADLINE: Duration = Duration::from_secs(120);
