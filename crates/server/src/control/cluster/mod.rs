//! Discovery, `GET /api/cluster/info`. The Python worker refuses to start if a field that it needs is missing or has another value,
//! so this response is tested against the published clients and the published schema.

use longhaul_host::api::Limits;
use longhaul_host::{DEFAULT_NAMESPACE, Fleet};
use longhaul_protocol::version::{WORKER_PROTOCOL_HEADER, WORKER_PROTOCOL_VERSION};
use serde_json::{Value, json};

use super::envelope::Reply;
use super::{Call, task_queues};
use crate::App;
use crate::gate::Refusal;
use crate::views::capabilities;

mod contracts;

/// Characters of a signal's, query's or update's name.
pub(super) const OPERATION_NAME_LENGTH_MAX: usize = 256;

/// The share of a limit at which clients warn.
const WARNING_THRESHOLD_PERCENT: u64 = 80;

/// Most workers, queues and builds that discovery shows, because every client reads it when it starts. `active_workers` counts all,
/// and `/api/workers` lists them.
const FLEET_SHOWN_MAX: usize = 200;

pub(super) async fn info(call: Call) -> Result<Reply, Refusal> {
    let fleet = call
        .host()
        .workers()
        .fleet(&call.namespace, FLEET_SHOWN_MAX)
        .await?;
    let options = call.app.options();
    Ok(Reply::ok(json!({
        "server_id": options.server_id,
        "version": options.version,
        "default_namespace": DEFAULT_NAMESPACE,
        "supported_sdk_versions": {"python": ">=2.0", "rust": ">=4.0"},
        "namespace": {"name": call.namespace},
        "capabilities": capabilities::cluster_capabilities(),
        "worker_fleet": worker_fleet(&call, &fleet),
        "task_repair": {"policy": task_queues::repair_policy(), "candidates": no_repair_candidates()},
        "limits": limits(&call.app),
        "structural_limits": structural_limits(&call.host().config().limits),
        "topology": topology(),
        "coordination_health": {
            "schema": "durable-workflow.v2.coordination-health",
            "version": 1,
            "status": "ok",
            "checks": [],
        },
        "client_compatibility": contracts::client_compatibility(),
        "surface_stability_contract": contracts::surface_stability(),
        "platform_protocol_specs": contracts::protocol_specs(),
        "platform_conformance_suite": contracts::conformance_suite(),
        "sdk_neutrality_contract": contracts::sdk_neutrality(),
        "bridge_adapter_outcome_contract": contracts::bridge_adapter_outcome(),
        "replay_verification_contract": contracts::replay_verification(),
        "auth_composition_contract": contracts::auth_composition(),
        "control_plane": contracts::control_plane(),
        // A string, although the published schema has an integer: the SDKs split it at the dot.
        "worker_protocol": {
            "version": WORKER_PROTOCOL_VERSION,
            "header": WORKER_PROTOCOL_HEADER,
            "server_capabilities": capabilities::server_capabilities(options),
        },
    })))
}

fn worker_fleet(call: &Call, fleet: &Fleet) -> Value {
    let stale_after = call.host().config().worker_stale_seconds;
    let shown: Vec<Value> = fleet
        .workers
        .iter()
        .map(|worker| {
            json!({
                "worker_id": worker.row.worker_id,
                "queues": [worker.row.task_queue],
                "build_ids": worker.row.build_id.iter().collect::<Vec<_>>(),
                "recorded_at": worker.row.last_heartbeat_at,
                "expires_at": worker.row.last_heartbeat_at.plus_seconds(stale_after),
            })
        })
        .collect();
    json!({
        "namespace": call.namespace,
        "active_workers": fleet.active,
        "active_worker_scopes": [],
        "queues": fleet.queues,
        "build_ids": fleet.build_ids,
        "workers": shown,
    })
}

/// Renders an empty list. Runs repair themselves: a run's own alarm finds a lease that expired or a task that was lost.
fn no_repair_candidates() -> Value {
    json!({
        "total_candidates": 0,
        "existing_task_candidates": 0,
        "missing_task_candidates": 0,
        "scan_pressure": false,
        "oldest_task_candidate_created_at": null,
        "oldest_missing_run_started_at": null,
        "scopes": [],
    })
}

fn limits(app: &App) -> Value {
    let limits = &app.host().config().limits;
    json!({
        "max_payload_bytes": limits.payload_bytes,
        "max_request_bytes": app.options().max_request_bytes,
        "max_memo_bytes": limits.memo_start_bytes,
        "max_search_attributes": limits.search_attribute_count,
        "max_search_attribute_key_length": limits.search_attribute_key_bytes,
        "max_search_attribute_value_bytes": limits.search_attribute_value_bytes,
        "max_operation_name_length": OPERATION_NAME_LENGTH_MAX,
        "max_pending_activities": limits.pending_activities,
        "max_pending_children": limits.pending_children,
    })
}

fn structural_limits(limits: &Limits) -> Value {
    json!({
        "pending_activity_count": limits.pending_activities,
        "pending_child_count": limits.pending_children,
        "pending_timer_count": limits.pending_timers,
        "pending_signal_count": limits.pending_signals,
        "pending_update_count": limits.pending_updates,
        "command_batch_size": limits.commands_per_completion,
        "payload_size_bytes": limits.payload_bytes,
        "memo_size_bytes": limits.memo_start_bytes,
        "search_attribute_size_bytes": limits.search_attribute_bytes,
        "history_transaction_size": limits.events_per_transaction,
        "history_event_count": limits.events_per_run,
        "warning_threshold_percent": WARNING_THRESHOLD_PERCENT,
    })
}

fn topology() -> Value {
    json!({
        "schema": "durable-workflow.v2.role-topology",
        "version": 1,
        "supported_shapes": ["embedded", "standalone_server", "split_control_execution"],
        "current_shape": "standalone_server",
        "current_process_class": "server_http_node",
        "current_roles": ["api_ingress", "control_plane", "matching", "history_projection", "scheduler"],
    })
}
