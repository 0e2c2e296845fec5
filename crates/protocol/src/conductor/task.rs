//! Task records as clients see them, and what workers report.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::member::Reader;
use super::{Object, ResultStatus, TaskStatus};

model! {
    /// The record of one attempt of a task. Polls deliver it, and a workflow lists it.
    pub struct Task {
        /// The queue of a worker task; the operator otherwise, with `FORK` for both kinds of fork.
        "taskType" task_type: String;
        "status" status: TaskStatus = TaskStatus::Scheduled;
        "inputData" input_data: Object;
        /// The reference of the node. Tasks of a loop body have `__` and the iteration appended.
        "referenceTaskName" reference_task_name: String;
        /// 0 for the first attempt.
        "retryCount" retry_count: i32;
        /// The order of creation in the workflow, from 1.
        "seq" seq: i32;
        "correlationId" correlation_id: Option<String>;
        /// How often the task was handed to a worker.
        "pollCount" poll_count: i32;
        "taskDefName" task_def_name: String;
        "scheduledTime" scheduled_time: i64;
        "startTime" start_time: i64;
        "endTime" end_time: i64;
        "updateTime" update_time: i64;
        "startDelayInSeconds" start_delay_in_seconds: i64;
        /// The attempt before this one.
        "retriedTaskId" retried_task_id: Option<String>;
        /// A newer attempt has replaced this one.
        "retried" retried: bool;
        /// What follows the task was scheduled.
        "executed" executed: bool;
        "callbackFromWorker" callback_from_worker: bool = true;
        /// Clients send heartbeats by it.
        "responseTimeoutSeconds" response_timeout_seconds: i64;
        "workflowInstanceId" workflow_instance_id: String;
        "workflowType" workflow_type: Option<String>;
        "taskId" task_id: String;
        "reasonForIncompletion" reason_for_incompletion: Option<String>;
        "callbackAfterSeconds" callback_after_seconds: i64;
        "workerId" worker_id: Option<String>;
        "outputData" output_data: Object;
        /// The node with its task definition, rendered once per snapshot.
        "workflowTask" workflow_task: Option<Arc<RawValue>>;
        "domain" domain: Option<String>;
        "rateLimitPerFrequency" rate_limit_per_frequency: i32;
        "rateLimitFrequencyInSeconds" rate_limit_frequency_in_seconds: i32;
        "externalInputPayloadStoragePath" external_input_payload_storage_path: Option<String>;
        "externalOutputPayloadStoragePath" external_output_payload_storage_path: Option<String>;
        "workflowPriority" workflow_priority: i32;
        "executionNameSpace" execution_name_space: Option<String>;
        "isolationGroupId" isolation_group_id: Option<String>;
        /// The iteration of the loop, 0 outside of loops.
        "iteration" iteration: i32;
        "subWorkflowId" sub_workflow_id: Option<String>;
        "subworkflowChanged" subworkflow_changed: bool;
        "parentTaskId" parent_task_id: Option<String>;
        "firstStartTime" first_start_time: i64;
        "executionMetadata" execution_metadata: Option<Object>;
        /// Only in answers to polls; never stored.
        "runtimeMetadata" runtime_metadata: Option<BTreeMap<String, String>>;
        "taskDefinition" task_definition: Option<Arc<RawValue>>;
        "loopOverTask" loop_over_task: bool;
        "queueWaitTime" queue_wait_time: i64;
    }
}

model! {
    /// What a worker reports about a task.
    pub struct TaskResult {
        "workflowInstanceId" workflow_instance_id: String;
        "taskId" task_id: String;
        "reasonForIncompletion" reason_for_incompletion: Option<String>;
        /// With IN_PROGRESS: seconds until the task is delivered again.
        "callbackAfterSeconds" callback_after_seconds: i64;
        "workerId" worker_id: Option<String>;
        "status" status: Option<ResultStatus>;
        /// Replaces the output of the task.
        "outputData" output_data: Object;
        "logs" logs: Vec<TaskExecLog>;
        "externalOutputPayloadStoragePath" external_output_payload_storage_path: Option<String>;
        "subWorkflowId" sub_workflow_id: Option<String>;
        /// The report is a heartbeat and changes nothing else.
        "extendLease" extend_lease: bool;
        "supportsCancellation" supports_cancellation: bool;
        "executionMetadata" execution_metadata: Option<Object>;
    }
}

model! {
    /// One line of the log of a task.
    pub struct TaskExecLog => prepare_log {
        /// Also read from `message`.
        "log" log: String;
        "taskId" task_id: Option<String>;
        /// In milliseconds. Smaller numbers are taken for seconds when they are read.
        "createdTime" created_time: i64;
    }
}

/// Times below this are in seconds: as milliseconds they would be before March 1973.
const MILLIS_MIN: i64 = 100_000_000_000;

/// Reads the other name of the text, and a time in seconds, which one published client sends.
fn prepare_log(log: &mut Object, _reader: &mut Reader) -> Option<()> {
    let message = log.remove("message");
    if let Some(message) = message
        && log.get("log").is_none_or(Value::is_null)
    {
        log.insert("log".to_owned(), message);
    }
    // Seconds may have a fraction.
    let seconds = log.get("createdTime").and_then(Value::as_f64);
    if let Some(seconds) = seconds
        && seconds > 0.0
        && seconds < MILLIS_MIN as f64
    {
        log.insert("createdTime".to_owned(), ((seconds * 1000.0) as i64).into());
    }
    Some(())
}
