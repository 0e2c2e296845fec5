//! Small answers: poll data, lists, bulk results, and what an execute or a signal returns.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::member::{Member, Reader};
use super::{Object, ReturnStrategy, Task, TaskStatus, WorkflowStatus};

model! {
    /// The last poll of a queue. One record per task type and domain.
    pub struct PollData {
        /// The task type.
        "queueName" queue_name: String;
        /// Absent for the default queue.
        "domain" domain: Option<String>;
        "workerId" worker_id: Option<String>;
        "lastPollTime" last_poll_time: i64;
    }
}

words! {
    /// What a tag is for.
    pub enum TagType {
        Metadata = "METADATA",
        /// The limit of a workflow, as one published client sets it.
        RateLimit = "RATE_LIMIT",
    }
}

model! {
    /// A name and a value that a caller attached to a definition.
    pub struct Tag {
        "key" key: String;
        "value" value: Option<Value>;
        "type" tag_type: Option<TagType>;
    }
}

model! {
    /// One version of a registered workflow.
    pub struct WorkflowDefSummary {
        "name" name: String;
        "version" version: i32 = 1;
        "createTime" create_time: Option<i64>;
        "updateTime" update_time: Option<i64>;
    }
}

model! {
    /// The state of a run without its tasks.
    pub struct WorkflowStatusView {
        "workflowId" workflow_id: String;
        "correlationId" correlation_id: Option<String>;
        "output" output: Option<Object>;
        "variables" variables: Option<Object>;
        "status" status: WorkflowStatus = WorkflowStatus::Running;
    }
}

model! {
    /// The answer of an execute or a signal that shows a workflow.
    pub struct WorkflowRun {
        "responseType" response_type: ReturnStrategy = ReturnStrategy::TargetWorkflow;
        "targetWorkflowId" target_workflow_id: String;
        "targetWorkflowStatus" target_workflow_status: WorkflowStatus = WorkflowStatus::Running;
        "requestId" request_id: Option<String>;
        "workflowId" workflow_id: String;
        "correlationId" correlation_id: Option<String>;
        "input" input: Object;
        "output" output: Object;
        /// The wait ended by time.
        "signalTimeout" signal_timeout: bool;
        "priority" priority: i32;
        "variables" variables: Object;
        "tasks" tasks: Vec<Task>;
        "createdBy" created_by: Option<String>;
        "createTime" create_time: i64;
        "status" status: WorkflowStatus = WorkflowStatus::Running;
        "updateTime" update_time: i64;
    }
}

model! {
    /// The answer of an execute or a signal that shows the task which blocks the workflow.
    pub struct TaskRun {
        "responseType" response_type: ReturnStrategy = ReturnStrategy::BlockingTask;
        "targetWorkflowId" target_workflow_id: String;
        "targetWorkflowStatus" target_workflow_status: WorkflowStatus = WorkflowStatus::Running;
        "requestId" request_id: Option<String>;
        "workflowId" workflow_id: String;
        "correlationId" correlation_id: Option<String>;
        /// The input of the task.
        "input" input: Object;
        /// The output of the task.
        "output" output: Object;
        "signalTimeout" signal_timeout: bool;
        "taskType" task_type: String;
        "taskId" task_id: String;
        "referenceTaskName" reference_task_name: String;
        "retryCount" retry_count: i32;
        "taskDefName" task_def_name: String;
        "retriedTaskId" retried_task_id: Option<String>;
        "workflowType" workflow_type: Option<String>;
        "reasonForIncompletion" reason_for_incompletion: Option<String>;
        "priority" priority: i32;
        "variables" variables: Option<Object>;
        "tasks" tasks: Option<Vec<Task>>;
        /// The worker of the task.
        "createdBy" created_by: Option<String>;
        /// When the task started.
        "createTime" create_time: i64;
        "updateTime" update_time: i64;
        "status" status: TaskStatus = TaskStatus::InProgress;
    }
}

/// One page of a search and the number of all results.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult<T> {
    /// How many results there are on all pages.
    pub total_hits: i64,
    /// This page.
    pub results: Vec<T>,
}

impl<T: Member> Member for SearchResult<T> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        let mut object = reader.object(value)?;
        Some(Self {
            total_hits: reader.member(&mut object, "totalHits", Default::default),
            results: reader.member(&mut object, "results", Default::default),
        })
    }
}

/// The outcome of a request for many ids.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkResponse<T = String> {
    /// Why an id failed, with the text of the error of the single request.
    pub bulk_error_results: BTreeMap<String, String>,
    /// What succeeded.
    pub bulk_successful_results: Vec<T>,
}

impl<T> Default for BulkResponse<T> {
    fn default() -> Self {
        Self {
            bulk_error_results: BTreeMap::new(),
            bulk_successful_results: Vec::new(),
        }
    }
}
