//! Task definitions: retries, time-outs and limits of the tasks of one name.

use super::member::{Reader, integer};
use super::{Object, RetryLogic, SchemaDef, TimeoutPolicy};

/// How long a worker may be silent when the definition does not set it, in seconds.
pub const RESPONSE_TIMEOUT_DEFAULT: i64 = 3600;

model! {
    /// What is registered about the tasks of one name.
    pub struct TaskDef [other] => prepare {
        "createTime" create_time: i64;
        "updateTime" update_time: i64;
        "createdBy" created_by: Option<String>;
        "updatedBy" updated_by: Option<String>;
        "name" name: String;
        "description" description: Option<String>;
        /// How many attempts may follow the first.
        "retryCount" retry_count: i32 = 3;
        /// From the first poll to the end of an attempt; 0 is no limit.
        "timeoutSeconds" timeout_seconds: i64;
        /// Documentation only.
        "inputKeys" input_keys: Vec<String>;
        /// Documentation only.
        "outputKeys" output_keys: Vec<String>;
        /// Names of secrets and environment values that are delivered with the task.
        "runtimeMetadata" runtime_metadata: Vec<String>;
        "timeoutPolicy" timeout_policy: TimeoutPolicy = TimeoutPolicy::TimeOutWorkflow;
        "retryLogic" retry_logic: RetryLogic = RetryLogic::Fixed;
        "retryDelaySeconds" retry_delay_seconds: i32 = 60;
        /// How long a worker that polled the task may be silent. 0 is no limit. If it is not given, it is at most `timeoutSeconds`.
        "responseTimeoutSeconds" response_timeout_seconds: i64 = RESPONSE_TIMEOUT_DEFAULT;
        /// How many tasks of this name may be in progress; absent or 0 is no limit.
        "concurrentExecLimit" concurrent_exec_limit: Option<i32>;
        /// Values for input members that a node does not set.
        "inputTemplate" input_template: Object;
        /// How many tasks are delivered per window; 0 is no limit.
        "rateLimitPerFrequency" rate_limit_per_frequency: i32;
        "rateLimitFrequencyInSeconds" rate_limit_frequency_in_seconds: i32 = 1;
        "isolationGroupId" isolation_group_id: Option<String>;
        "executionNameSpace" execution_name_space: Option<String>;
        "ownerEmail" owner_email: Option<String>;
        "ownerApp" owner_app: Option<String>;
        /// How long the task may wait for a worker; absent or 0 is no limit.
        "pollTimeoutSeconds" poll_timeout_seconds: Option<i32>;
        /// Factor of the linear back-off.
        "backoffScaleFactor" backoff_scale_factor: i32 = 1;
        /// The largest delay of a retry; 0 is no limit.
        "maxRetryDelaySeconds" max_retry_delay_seconds: i32;
        /// The largest random addition to the delay of a retry.
        "backoffJitterMs" backoff_jitter_ms: i32;
        /// From the first scheduling to the end of the last attempt; 0 is no limit.
        "totalTimeoutSeconds" total_timeout_seconds: i64;
        "inputSchema" input_schema: Option<SchemaDef>;
        "outputSchema" output_schema: Option<SchemaDef>;
        "enforceSchema" enforce_schema: bool;
        "baseType" base_type: Option<String>;
        "taskStatusListenerEnabled" task_status_listener_enabled: bool = true;
    }
}

/// Sets the response time-out of a definition that does not give one, so that a definition with only a short `timeoutSeconds` is
/// valid.
fn prepare(definition: &mut Object, _reader: &mut Reader) -> Option<()> {
    let given = definition
        .get("responseTimeoutSeconds")
        .is_some_and(|value| !value.is_null());
    let timeout = definition
        .get("timeoutSeconds")
        .and_then(integer)
        .unwrap_or(0);
    if !given && timeout > 0 {
        let response = timeout.min(RESPONSE_TIMEOUT_DEFAULT);
        definition.insert("responseTimeoutSeconds".to_owned(), response.into());
    }
    Some(())
}
