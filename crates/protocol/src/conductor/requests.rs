//! Bodies of requests about workflows.

use std::collections::BTreeMap;

use super::member::Reader;
use super::{IdempotencyStrategy, Object, ResultStatus, TaskResult, WorkflowDef};

model! {
    /// A start of a workflow.
    pub struct StartWorkflowRequest {
        "name" name: String;
        /// Absent is the highest registered version.
        "version" version: Option<i32>;
        "correlationId" correlation_id: Option<String>;
        "input" input: Object;
        "taskToDomain" task_to_domain: BTreeMap<String, String>;
        /// A definition to run as it is, without registering it.
        "workflowDef" workflow_def: Option<WorkflowDef>;
        "externalInputPayloadStoragePath" external_input_payload_storage_path: Option<String>;
        /// 0 to 99; a higher priority is delivered first.
        "priority" priority: i32;
        "createdBy" created_by: Option<String>;
        "idempotencyKey" idempotency_key: Option<String>;
        /// Without a key it has no effect.
        "idempotencyStrategy" idempotency_strategy: Option<IdempotencyStrategy>;
    }
}

impl StartWorkflowRequest {
    /// A start of the newest version of a workflow, without input.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a member to the input.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.input.insert(name.into(), value.into());
        self
    }
}

model! {
    /// A rerun of an ended workflow, from its begin or from a task.
    pub struct RerunWorkflowRequest {
        "reRunFromWorkflowId" re_run_from_workflow_id: Option<String>;
        "reRunFromTaskId" re_run_from_task_id: Option<String>;
        "taskInput" task_input: Option<Object>;
        "workflowInput" workflow_input: Option<Object>;
        "correlationId" correlation_id: Option<String>;
    }
}

model! {
    /// The record of a task that is passed over.
    pub struct SkipTaskRequest {
        "taskInput" task_input: Object;
        "taskOutput" task_output: Object;
    }
}

model! {
    /// A search for workflows of several names by correlation id.
    pub struct CorrelatedRequest {
        "correlationIds" correlation_ids: Vec<String>;
        "workflowNames" workflow_names: Vec<String>;
    }
}

model! {
    /// A change of the variables and of one open task of a run.
    pub struct WorkflowStateUpdate {
        "taskReferenceName" task_reference_name: Option<String>;
        "taskResult" task_result: Option<TaskResult>;
        "variables" variables: Object;
    }
}

model! {
    /// A run of a workflow in memory, with outputs in the place of workers.
    pub struct WorkflowTestRequest {
        "name" name: String;
        "version" version: Option<i32>;
        "correlationId" correlation_id: Option<String>;
        "input" input: Object;
        "taskToDomain" task_to_domain: BTreeMap<String, String>;
        "workflowDef" workflow_def: Option<WorkflowDef>;
        "priority" priority: i32;
        "createdBy" created_by: Option<String>;
        /// By reference; each is used once.
        "taskRefToMockOutput" task_ref_to_mock_output: BTreeMap<String, Vec<TaskMock>>;
        /// The mocks of sub-workflows, by the reference of their task.
        "subWorkflowTestRequest" sub_workflow_test_request: BTreeMap<String, WorkflowTestRequest>;
    }
}

model! {
    /// What a task of a test run does in the place of a worker.
    pub struct TaskMock => prepare_mock {
        "status" status: ResultStatus = ResultStatus::Completed;
        "output" output: Object;
        /// Milliseconds.
        "executionTime" execution_time: i64;
        /// Milliseconds.
        "queueWaitTime" queue_wait_time: i64;
    }
}

/// The published client for Python sends the names of its own fields.
#[expect(
    clippy::unnecessary_wraps,
    reason = "a model may refuse its object here"
)]
fn prepare_mock(object: &mut Object, _: &mut Reader) -> Option<()> {
    for (sent, name) in [("_status", "status"), ("_output", "output")] {
        if let Some(value) = object.remove(sent) {
            object.entry(name).or_insert(value);
        }
    }
    Some(())
}
