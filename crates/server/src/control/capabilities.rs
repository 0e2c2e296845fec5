//! What this server offers to workers and clients (worker-protocol.md §2.4, control-plane.md §6.3). A capability is named here
//! when its whole feature is built and tested, never before: SDKs act on what they read.

use longhaul_protocol::describe::{
    ACTIVITY_TASK_VERBS, HISTORY_PAGE_SIZE_MAX, POLL_TIMEOUT_SECONDS_DEFAULT, QUERY_TASK_VERBS,
    WORKFLOW_TASK_COMMANDS, WORKFLOW_TASK_VERBS, describe,
};
use longhaul_protocol::payload::CODEC;
use serde_json::{Value, json};

use crate::Options;

mod local_activities;

/// Content codings of answers, the preferred one first.
const RESPONSE_COMPRESSION: [&str; 2] = ["gzip", "deflate"];

/// The manifest in every worker-plane answer and in discovery. It depends on nothing that changes while the server runs.
pub(crate) fn server_capabilities(options: &Options) -> Value {
    let protocol = describe();
    json!({
        "long_poll_timeout": POLL_TIMEOUT_SECONDS_DEFAULT,
        "long_poll": protocol.long_poll,
        "poll_status": true,
        "poll_statuses": ["leased", "empty", "throttled", "unavailable", "draining"],
        "supported_workflow_task_commands": WORKFLOW_TASK_COMMANDS,
        "workflow_task_verbs": WORKFLOW_TASK_VERBS,
        "activity_task_verbs": ACTIVITY_TASK_VERBS,
        "workflow_task_poll_request_idempotency": true,
        "history_page_size_default": options.history_page_size,
        "default_history_page_size": options.history_page_size,
        "history_page_size_max": HISTORY_PAGE_SIZE_MAX,
        "history_compression": protocol.history_compression,
        "response_compression": RESPONSE_COMPRESSION,
        "activity_retry_policy": true,
        "activity_timeouts": true,
        "non_retryable_failures": true,
        "child_workflow_retry_policy": true,
        "child_workflow_timeouts": true,
        "parent_close_policy": true,
        "query_task_verbs": QUERY_TASK_VERBS,
        "query_tasks": true,
        // Tasks carry their moments and their status can be asked (worker-protocol §9.5).
        "query_task_authority": true,
        "workflow_memo_updates": {"supported": true},
        "cooperative_cancellation": true,
        "sticky_execution": {"supported": true},
        "local_activities": local_activities::manifest(),
        // Each attempt is written down as it happens: our name for it, and the one of the published Python client.
        "durable_local_activities": true,
        "prepared_local_activities": true,
        "prepared_local_activity_groups": true,
        "prepared_local_activity_cancellation_policies": ["try_cancel", "wait_cancellation_completed"],
        "update_validation_tasks": true,
        "synchronous_update_validation": synchronous_update_validation(),
    })
}

/// Python compares this field by field and does not start a worker with validators where it differs (worker-protocol §9.6).
fn synchronous_update_validation() -> Value {
    json!({
        "supported": true,
        "acceptance_boundary": "validator_approved",
        "worker_capability": "update_validation_tasks",
        "workflow_contract_field": "update_validators",
        "task_poll": {
            "strategy": "multiplexed",
            "endpoint": "/worker/workflow-tasks/poll",
            "request_field": "task_kinds",
            "task_kinds": ["workflow", "update_validation"],
            "response_discriminator": "task.task_kind",
        },
    })
}

/// The flags of discovery, for clients and dashboards.
pub(super) fn cluster_capabilities() -> Value {
    json!({
        "workflow_tasks": true,
        "activity_tasks": true,
        "signals": true,
        "queries": true,
        "updates": true,
        "schedules": false,
        "history_export": true,
        "continue_as_new": true,
        "child_workflows": true,
        "search_attributes": true,
        "activity_timeouts": true,
        "activity_retry_policy": true,
        "non_retryable_failures": true,
        "child_workflow_retry_policy": true,
        "child_workflow_timeouts": true,
        "parent_close_policy": true,
        "schedule_jitter": false,
        "schedule_max_runs": false,
        "history_retention": false,
        "message_streams": true,
        "runtime_external_payload_transport": false,
        "payload_codec_envelope": true,
        "payload_codec_envelope_responses": true,
        "bridge_adapter_outcome_contract": false,
        "replay_verification_contract": false,
        "external_executor_config_contract": false,
        "invocable_carrier_contract": false,
        "payload_codecs": [CODEC],
        "response_compression": RESPONSE_COMPRESSION,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_unbuilt_is_offered() {
        let offered = server_capabilities(&Options::default());
        for absent in [
            "activity_lease_renewal",
            "observability_context",
            "runtime_external_payload_transport",
            "worker_deregistration_fencing",
            "worker_session_verbs",
            "worker_sessions",
        ] {
            assert!(offered.get(absent).is_none(), "{absent}");
        }
        assert_eq!(offered["workflow_memo_updates"], json!({"supported": true}));
    }
}
