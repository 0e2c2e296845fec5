//! A definition run as clients see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Object, Task, WorkflowStatus};

model! {
    /// The record of a definition run, with its tasks if they were asked for.
    pub struct Workflow {
        "ownerApp" owner_app: Option<String>;
        "createTime" create_time: i64;
        "updateTime" update_time: i64;
        "createdBy" created_by: Option<String>;
        "updatedBy" updated_by: Option<String>;
        "status" status: WorkflowStatus = WorkflowStatus::Running;
        /// 0 while the run is open.
        "endTime" end_time: i64;
        "workflowId" workflow_id: String;
        "parentWorkflowId" parent_workflow_id: Option<String>;
        "parentWorkflowTaskId" parent_workflow_task_id: Option<String>;
        /// In the order of their creation.
        "tasks" tasks: Vec<Task>;
        "input" input: Object;
        "output" output: Object;
        "correlationId" correlation_id: Option<String>;
        "idempotencyKey" idempotency_key: Option<String>;
        "reRunFromWorkflowId" re_run_from_workflow_id: Option<String>;
        "reasonForIncompletion" reason_for_incompletion: Option<String>;
        /// The event that started the run.
        "event" event: Option<String>;
        "taskToDomain" task_to_domain: BTreeMap<String, String>;
        "failedReferenceTaskNames" failed_reference_task_names: Vec<String>;
        /// The snapshot of the definition that the run uses.
        "workflowDefinition" workflow_definition: Option<Arc<RawValue>>;
        "externalInputPayloadStoragePath" external_input_payload_storage_path: Option<String>;
        "externalOutputPayloadStoragePath" external_output_payload_storage_path: Option<String>;
        "priority" priority: i32;
        "variables" variables: Object;
        /// The time-out of the run counts from here if it is not 0.
        "lastRetriedTime" last_retried_time: i64;
        "failedTaskNames" failed_task_names: Vec<String>;
        "history" history: Vec<Value>;
        "rateLimitKey" rate_limit_key: Option<String>;
        "rateLimited" rate_limited: bool;
        /// Equal to `createTime`.
        "startTime" start_time: i64;
        "workflowName" workflow_name: String;
        "workflowVersion" workflow_version: i32 = 1;
    }
}
