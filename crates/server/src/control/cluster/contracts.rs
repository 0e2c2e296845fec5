//! The manifests inside discovery. Clients read `auth_composition_contract`, `control_plane` and `client_compatibility`. The published
//! schema requires the others, which contain only its required keys.

use longhaul_protocol::payload::CODEC;
use longhaul_protocol::version::{
    CONTROL_PLANE_HEADER, CONTROL_PLANE_VERSION, WORKER_PROTOCOL_VERSION,
};
use serde_json::{Map, Value, json};

use crate::control::envelope::{OPERATIONS, PROJECTED_FIELDS, RESPONSE_SCHEMA, contract};
use crate::control::messages::updates::WAIT_FOR;
use crate::control::workflows::{DUPLICATE_POLICIES, LIST_STATUSES, REFUSED_START_FIELDS};

/// Returns the name of a document that a manifest refers to. It is not an address, because this server publishes no documents.
fn document(name: &str) -> String {
    format!("urn:longhaul:document:{name}")
}

/// The Python worker checks this contract field by field.
pub(super) fn auth_composition() -> Value {
    json!({
        "schema": "durable-workflow.v2.auth-composition.contract",
        "version": 1,
        "scope": "external_execution_carriers",
        "unknown_field_policy": "ignore_additive_reject_unknown_required",
        "precedence": {
            "connection_values": ["flag", "environment", "selected_profile", "default"],
            "profile_selection": ["flag_env", "DW_ENV", "current_profile", "default_profile"],
        },
        "canonical_environment": {
            "server_url": "DURABLE_WORKFLOW_SERVER_URL",
            "namespace": "DURABLE_WORKFLOW_NAMESPACE",
            "auth_token": "DURABLE_WORKFLOW_AUTH_TOKEN",
            "tls_verify": "DURABLE_WORKFLOW_TLS_VERIFY",
            "profile": "DW_ENV",
        },
        "auth_material": {
            "token": {"status": "supported", "transport": "bearer_authorization_header", "effective_config_value": "redacted"},
            "mtls": {"status": "reserved"},
            "signed_headers": {"status": "reserved"},
        },
        "effective_config": {
            "required_fields": ["server_url", "namespace", "profile", "auth", "tls", "identity"],
            "source_values": ["flag", "environment", "selected_profile", "profile_env", "default", "server"],
        },
        "redaction": {
            "never_echo": [
                "bearer_tokens",
                "private_keys",
                "shared_signature_keys",
                "client_certificate_private_key_material",
                "raw_authorization_headers",
            ],
        },
    })
}

/// Versions are strings here too, although the published schema has integers.
pub(super) fn control_plane() -> Value {
    json!({
        "version": CONTROL_PLANE_VERSION,
        "header": CONTROL_PLANE_HEADER,
        "response_contract": response_contract(),
        "request_contract": request_contract(),
    })
}

fn response_contract() -> Value {
    let operations: Map<String, Value> = OPERATIONS
        .iter()
        .map(|operation| {
            let fields = json!({"required_fields": operation.required_fields, "success_fields": operation.success_fields});
            (operation.name.to_owned(), fields)
        })
        .collect();
    json!({
        "schema": RESPONSE_SCHEMA,
        "version": 1,
        "contract": contract(),
        "projected_fields": PROJECTED_FIELDS,
        "operations": operations,
    })
}

fn request_contract() -> Value {
    let seconds = json!({"type": "integer", "min": 1});
    json!({
        "schema": "durable-workflow.v2.control-plane-request.contract",
        "version": 1,
        "operations": {
            "list": {"fields": {"status": {"canonical_values": LIST_STATUSES}}},
            "start": {
                "fields": {
                    "duplicate_policy": {
                        "canonical_values": DUPLICATE_POLICIES,
                        "rejected_aliases": {"use_existing": "use-existing"},
                    },
                    "execution_timeout_seconds": seconds,
                    "run_timeout_seconds": seconds,
                    "payload_codec": {"canonical_values": [CODEC]},
                },
                "unsupported_fields": REFUSED_START_FIELDS,
            },
            "update": {
                "fields": {
                    "wait_for": {
                        "canonical_values": WAIT_FOR,
                        "rejected_aliases": {"wait_policy": "wait_for"},
                    },
                    "wait_timeout_seconds": seconds,
                },
            },
        },
    })
}

/// These manifests decide compatibility, not the version numbers of SDKs.
pub(super) fn client_compatibility() -> Value {
    json!({
        "schema": "durable-workflow.v2.client-compatibility",
        "version": 1,
        "authority": "protocol_manifests",
        "top_level_version_role": "informational",
        "fail_closed": true,
        "required_protocols": {
            "auth_composition": {"schema": "durable-workflow.v2.auth-composition.contract", "version": 1},
            "control_plane": {"version": CONTROL_PLANE_VERSION},
            "worker_protocol": {"version": WORKER_PROTOCOL_VERSION},
        },
        "clients": {},
    })
}

pub(super) fn surface_stability() -> Value {
    json!({
        "schema": "durable-workflow.v2.surface-stability.contract",
        "version": 1,
        "authority_url": document("surface-stability"),
        "surface_families": {},
        "stability_levels": {},
        "release_rules": {},
        "field_visibility_rule": {},
        "release_check": {},
    })
}

pub(super) fn protocol_specs() -> Value {
    json!({
        "schema": "durable-workflow.v2.platform-protocol-specs.catalog",
        "version": 1,
        "catalog_url": document("protocol-specs"),
        "authority_url": document("protocol-specs"),
        "specs": {
            "worker_protocol_stream": {"spec_id": "durable-workflow.v2.worker-protocol-stream"},
            "local_activity_runtime": {"spec_id": "durable-workflow.v2.local-activity-runtime"},
            "worker_sessions_runtime": {"spec_id": "durable-workflow.v2.worker-sessions-runtime"},
        },
        "formats": {},
        "owner_repos": {},
        "status_levels": {},
        "evolution_rules": {},
        "release_check": {},
    })
}

pub(super) fn conformance_suite() -> Value {
    json!({
        "schema": "durable-workflow.v2.platform-conformance.suite",
        "version": 1,
        "authority_doc": document("conformance"),
        "surface_stability_authority": document("surface-stability"),
        "result_schema": "durable-workflow.v2.platform-conformance.result",
        "result_version": 1,
        "conformance_levels": {},
        "targets": {},
        "fixture_catalog": {},
        "pass_fail_rules": {},
        "harness_contract": {},
        "release_gates": {},
    })
}

pub(super) fn sdk_neutrality() -> Value {
    json!({
        "schema": "durable-workflow.v2.sdk-neutrality.contract",
        "version": 1,
        "authority_url": document("sdk-neutrality"),
    })
}

pub(super) fn bridge_adapter_outcome() -> Value {
    json!({"schema": "durable-workflow.v2.bridge-adapter-outcome.contract", "version": 1})
}

pub(super) fn replay_verification() -> Value {
    json!({"schema": "durable-workflow.v2.replay-verification.contract", "version": 1})
}
