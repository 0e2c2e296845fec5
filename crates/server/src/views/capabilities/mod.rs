//! What this server offers to workers and clients. SDKs act on these flags, so a capability is listed only when its whole feature
//! is built and tested.

use longhaul_host::api::SessionStatus;
use longhaul_protocol::describe::{
    ACTIVITY_TASK_VERBS, HISTORY_PAGE_SIZE_MAX, POLL_TIMEOUT_SECONDS_DEFAULT, QUERY_TASK_VERBS,
    WORKFLOW_TASK_COMMANDS, WORKFLOW_TASK_VERBS, describe,
};
use longhaul_protocol::payload::CODEC;
use longhaul_protocol::worker_session::{MAX_CONCURRENT_ACTIVITIES_DEFAULT, WORKER_SESSION_VERBS};
use serde_json::{Value, json};

use crate::Options;

mod local_activities;

/// Content codings of responses, the preferred one first.
const RESPONSE_COMPRESSION: [&str; 2] = ["gzip", "deflate"];

/// Returns the manifest in every worker-plane response and in discovery. It does not change while the server runs.
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
        // Query tasks contain their deadlines, and their status can be read.
        "query_task_authority": true,
        "workflow_memo_updates": {"supported": true},
        "cooperative_cancellation": true,
        "sticky_execution": {"supported": true},
        "local_activities": local_activities::manifest(),
        // Each attempt is recorded as it happens. The published Python client has another name for the same capability.
        "durable_local_activities": true,
        "prepared_local_activities": true,
        "prepared_local_activity_groups": true,
        "prepared_local_activity_cancellation_policies": ["try_cancel", "wait_cancellation_completed"],
        "update_validation_tasks": true,
        "synchronous_update_validation": synchronous_update_validation(),
        "worker_session_verbs": WORKER_SESSION_VERBS,
        "worker_sessions": worker_sessions(),
    })
}

/// Returns the contract of worker sessions. It validates against the published schema.
fn worker_sessions() -> Value {
    let statuses = SessionStatus::ALL.map(SessionStatus::as_str);
    json!({
        "feature": "worker_sessions",
        "contract_version": "1.0",
        "supported": true,
        "minimum_protocol_version": "1.0",
        "command_field": "worker_session",
        "activity_options_field": "worker_session",
        "verbs": WORKER_SESSION_VERBS,
        "lifecycle": {
            "creation": "lazy_create_on_first_admitted_activity_or_explicit_worker_create",
            "renewal": "activity_heartbeat_or_explicit_session_heartbeat",
            "close": "explicit_holder_close",
            "lease_expiry": "session_expires_when_lease_is_not_renewed",
            "ttl_expiry": "absolute_session_ttl_is_terminal_for_that_session_id",
        },
        "ownership": "single_worker_lease_owner",
        "lease": {
            "scope": "namespace_session_id",
            "owner": "registered_worker_id",
            "activity_attempt_leases_remain_independent": true,
        },
        "admission": {
            "queue_routing_first": true,
            "requires_registered_worker": true,
            "requires_capabilities": true,
            "create_if_missing_default": true,
            "allow_reacquire_after_failure_default": true,
        },
        "limits": {
            "max_concurrent_worker_sessions": "worker_registration",
            "max_concurrent_activities": "session",
        },
        "default_max_concurrent_activities": MAX_CONCURRENT_ACTIVITIES_DEFAULT,
        "renewal": {"activity_heartbeat_renews_session": true, "explicit_session_heartbeat": true},
        "failure_detection": ["lease_expiry", "registered_worker_heartbeat_staleness"],
        "holder_loss": {
            "in_flight_activities_keep_at_least_once_attempt_semantics": true,
            "replacement_worker_must_reacquire_session": true,
            "process_local_state_must_be_rebuilt_after_reacquire": true,
        },
        "cancellation": {
            "workflow_cancellation_observed_through_activity_heartbeat": true,
            "session_lease_does_not_override_activity_cancel_requested": true,
            "planned_shutdown_should_close_sessions": true,
        },
        "routing": ["queue", "connection", "requirements"],
        "visibility": statuses,
        "statuses": statuses,
        "terminal_statuses": ["closed"],
        "terminal_conditions": ["explicit_close", "ttl_expired", "allow_reacquire_after_failure_false"],
        "authoring_guidance": [
            "use_for_process_local_state_gpu_memory_or_filesystem_affinity",
            "prefer_ordinary_queued_activities_for_independent_steps",
            "prefer_one_larger_activity_for_atomic_side_effects",
        ],
    })
}

/// The Python SDK compares this field by field and refuses to start a worker with validators if one differs.
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

/// Returns the flags of discovery, for clients and dashboards.
pub(crate) fn cluster_capabilities() -> Value {
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
        ] {
            assert!(offered.get(absent).is_none(), "{absent}");
        }
        assert_eq!(offered["workflow_memo_updates"], json!({"supported": true}));
    }
}
