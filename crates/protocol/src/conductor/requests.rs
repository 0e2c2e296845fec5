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
    /// A run of a workflow that nothing of is stored. The results of its tasks are given.
    pub struct WorkflowTestRequest {
        "name" name: String;
        /// Absent is the highest registered version.
        "version" version: Option<i32>;
        "correlationId" correlation_id: Option<String>;
        "input" input: Object;
        "taskToDomain" task_to_domain: BTreeMap<String, String>;
        /// A definition to run as it is.
        "workflowDef" workflow_def: Option<WorkflowDef>;
        "priority" priority: i32;
        "createdBy" created_by: Option<String>;
        /// By the reference of a task, the results of its attempts in their order.
        "taskRefToMockOutput" task_ref_to_mock_output: BTreeMap<String, Vec<TaskMock>>;
        /// By the reference of a SUB_WORKFLOW task, the results of the tasks of its run. The other members are not used.
        "subWorkflowTestRequest" sub_workflow_test_request: BTreeMap<String, WorkflowTestRequest>;
    }
}

model! {
    /// The result of one attempt of a task in a test run.
    pub struct TaskMock => prepare_mock {
        "status" status: ResultStatus = ResultStatus::Completed;
        "output" output: Object;
        /// How long the attempt takes, in milliseconds.
        "executionTime" execution_time: i64;
        /// How long the attempt waits for a worker, in milliseconds.
        "queueWaitTime" queue_wait_time: i64;
    }
}

/// Takes members as `conductor-python` 2.0.0 sends them: with an underscore before their names, and the text of a Python object where
/// nothing was given.
fn prepare_mock(object: &mut Object, _: &mut Reader) -> Option<()> {
    for (sent, name) in [
        ("_status", "status"),
        ("_output", "output"),
        ("_execution_time", "executionTime"),
        ("_queue_wait_time", "queueWaitTime"),
    ] {
        let given = object.remove(sent);
        let given = given.filter(|value| !value.as_str().is_some_and(|text| text.starts_with('<')));
        if let Some(value) = given {
            object.entry(name).or_insert(value);
        }
    }
    Some(())
}
