//! A worker for workflows whose tasks are all alike.

use longhaul_conductor_sdk::TaskHandler;
use longhaul_conductor_sdk::definition::{Node, WorkflowDefBuilder, simple};
use longhaul_conductor_sdk::model::{Object, Workflow};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{TaskContext, async_function};
use serde_json::Value;

use super::{World, unique};

/// A server with a worker that returns the input of its task and the reference.
pub(super) struct Echo {
    pub(super) world: World,
    pub(super) task_type: String,
    _workers: TaskHandler,
}

impl Echo {
    pub(super) async fn start() -> Self {
        let world = World::start().await;
        let task_type = unique("echo");
        let worker = async_function(&task_type, async |mut input: Object| {
            let context = TaskContext::current().expect("the worker has a task");
            let reference = context.task().reference_task_name.clone();
            input.insert("reference".to_owned(), reference.into());
            Ok(input)
        });
        let workers = world
            .workers([worker.settings(CodeSettings::new().thread_count(20))])
            .await;
        Self {
            world,
            task_type,
            _workers: workers,
        }
    }

    /// Returns a task of the worker.
    pub(super) fn task(&self, reference: &str) -> Node {
        simple(&self.task_type, reference)
    }

    /// Registers a workflow and returns a run of it that has completed.
    pub(super) async fn completed(
        &self,
        input: Value,
        build: impl FnOnce(WorkflowDefBuilder) -> WorkflowDefBuilder,
    ) -> Workflow {
        let name = self.world.define(build).await;
        self.world.completed(&name, input).await
    }
}
