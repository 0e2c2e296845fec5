//! Results of searches. They show times and values as text.

use std::collections::BTreeMap;

use super::{TaskStatus, WorkflowStatus};

/// Returns a time in milliseconds as the text of a summary: UTC with three digits of the second. A time that has no such text
/// becomes the nearest one that has.
pub fn summary_time(millis: i64) -> String {
    let nearest = if millis < 0 {
        jiff::Timestamp::UNIX_EPOCH
    } else {
        jiff::Timestamp::MAX
    };
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(nearest);
    format!("{time:.3}")
}

model! {
    /// A workflow in a list of search results.
    pub struct WorkflowSummary {
        "workflowType" workflow_type: String;
        "version" version: i32 = 1;
        "workflowId" workflow_id: String;
        "correlationId" correlation_id: Option<String>;
        "idempotencyKey" idempotency_key: Option<String>;
        "startTime" start_time: Option<String>;
        "updateTime" update_time: Option<String>;
        "endTime" end_time: Option<String>;
        "status" status: WorkflowStatus = WorkflowStatus::Running;
        /// The input as compact JSON.
        "input" input: String;
        /// The output as compact JSON.
        "output" output: String;
        "reasonForIncompletion" reason_for_incompletion: Option<String>;
        /// In milliseconds; 0 while the run is open.
        "executionTime" execution_time: i64;
        "event" event: Option<String>;
        /// Joined by commas.
        "failedReferenceTaskNames" failed_reference_task_names: String;
        "externalInputPayloadStoragePath" external_input_payload_storage_path: Option<String>;
        "externalOutputPayloadStoragePath" external_output_payload_storage_path: Option<String>;
        "priority" priority: i32;
        "failedTaskNames" failed_task_names: Vec<String>;
        "createdBy" created_by: Option<String>;
        "taskToDomain" task_to_domain: BTreeMap<String, String>;
        /// Empty if the run has no parent.
        "parentWorkflowId" parent_workflow_id: String;
        "classifier" classifier: String = "workflow".to_owned();
        "inputSize" input_size: i64;
        "outputSize" output_size: i64;
    }
}

model! {
    /// A task in a list of search results.
    pub struct TaskSummary {
        "workflowId" workflow_id: String;
        "workflowType" workflow_type: Option<String>;
        "correlationId" correlation_id: Option<String>;
        "scheduledTime" scheduled_time: Option<String>;
        "startTime" start_time: Option<String>;
        "updateTime" update_time: Option<String>;
        "endTime" end_time: Option<String>;
        "status" status: TaskStatus = TaskStatus::Scheduled;
        "reasonForIncompletion" reason_for_incompletion: Option<String>;
        "executionTime" execution_time: i64;
        "queueWaitTime" queue_wait_time: i64;
        "taskDefName" task_def_name: String;
        "taskType" task_type: String;
        "input" input: String;
        "output" output: String;
        "externalInputPayloadStoragePath" external_input_payload_storage_path: Option<String>;
        "externalOutputPayloadStoragePath" external_output_payload_storage_path: Option<String>;
        "taskId" task_id: String;
        "workflowPriority" workflow_priority: i32;
        "domain" domain: Option<String>;
    }
}
