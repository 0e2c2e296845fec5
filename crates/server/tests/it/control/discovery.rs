//! Health, readiness and discovery.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use crate::support::Server;

/// The published schema with the one correction that both SDKs need: versions are strings.
fn schema() -> jsonschema::Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/contract/cluster-info-envelope.schema.json");
    let text = std::fs::read_to_string(path).expect("the copied schema");
    let mut envelope: Value = serde_json::from_str(&text).expect("JSON");
    for plane in ["control_plane", "worker_protocol"] {
        envelope["properties"][plane]["properties"]["version"] =
            json!({"type": "string", "minLength": 1});
    }
    // These refer to other documents, whose definitions are put in place.
    let capabilities = &mut envelope["properties"]["worker_protocol"]["properties"]["server_capabilities"]
        ["properties"];
    let local = crate::support::contract::local_activities();
    capabilities["local_activities"] = local["$defs"]["localActivityRuntimeContract"].clone();
    capabilities["worker_sessions"] = json!({"$ref": "#/$defs/workerSessionRuntimeContract"});
    envelope["$defs"] = local["$defs"].clone();
    let sessions = crate::support::contract::worker_sessions();
    for (name, definition) in sessions["$defs"].as_object().expect("definitions") {
        envelope["$defs"][name] = definition.clone();
    }
    jsonschema::validator_for(&envelope).expect("a schema")
}

async fn info(server: &Server) -> Value {
    server.get("/cluster/info").accepted(200).await
}

#[tokio::test]
async fn discovery_has_the_published_shape() {
    let server = Server::open().await;
    server.register("w1", json!({"build_id": "b1"})).await;
    let info = info(&server).await;
    let errors: Vec<String> = schema()
        .iter_errors(&info)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(errors, Vec::<String>::new());
}

#[tokio::test]
async fn discovery_has_what_the_python_worker_needs_to_start() {
    let info = info(&Server::open().await).await;
    assert_eq!(info["control_plane"]["version"], "2");
    let contract = &info["control_plane"]["request_contract"];
    assert_eq!(
        contract["schema"],
        "durable-workflow.v2.control-plane-request.contract"
    );
    assert_eq!(contract["version"], 1);
    assert_eq!(info["worker_protocol"]["version"], "1.20");
    assert_eq!(
        info["worker_protocol"]["header"],
        "X-Durable-Workflow-Protocol-Version"
    );
    let auth = &info["auth_composition_contract"];
    assert_eq!(
        auth["schema"],
        "durable-workflow.v2.auth-composition.contract"
    );
    assert_eq!(auth["version"], 1);
    assert_eq!(
        auth["canonical_environment"]["server_url"],
        "DURABLE_WORKFLOW_SERVER_URL"
    );
    assert_eq!(auth["canonical_environment"]["profile"], "DW_ENV");
    assert_eq!(
        auth["auth_material"]["token"]["effective_config_value"],
        "redacted"
    );
    assert_eq!(auth["auth_material"]["mtls"]["status"], "reserved");
    assert_eq!(
        auth["effective_config"]["required_fields"],
        json!([
            "server_url",
            "namespace",
            "profile",
            "auth",
            "tls",
            "identity"
        ])
    );
    assert!(
        auth["redaction"]["never_echo"]
            .as_array()
            .unwrap()
            .contains(&json!("raw_authorization_headers"))
    );
}

#[tokio::test]
async fn discovery_offers_what_is_built_and_nothing_else() {
    let info = info(&Server::open().await).await;
    let offered = &info["worker_protocol"]["server_capabilities"];
    assert_eq!(offered["query_tasks"], true);
    assert_eq!(offered["query_task_authority"], true);
    assert_eq!(
        offered["query_task_verbs"],
        json!(["poll", "complete", "fail"])
    );
    assert_eq!(offered["workflow_memo_updates"], json!({"supported": true}));
    assert_eq!(
        offered["long_poll"],
        json!({"default_timeout_seconds": 30, "min_timeout_seconds": 1, "max_timeout_seconds": 60})
    );
    let commands = offered["supported_workflow_task_commands"]
        .as_array()
        .unwrap();
    assert!(
        commands.contains(&json!("start_child_workflow"))
            && !commands.contains(&json!("start_service_operation"))
    );
    assert_eq!(info["capabilities"]["schedules"], false);
    for built in [
        "workflow_tasks",
        "activity_tasks",
        "signals",
        "queries",
        "updates",
        "child_workflows",
        "message_streams",
        "continue_as_new",
        "history_export",
        "payload_codec_envelope",
    ] {
        assert_eq!(info["capabilities"][built], true, "{built}");
    }
    let operations = &info["control_plane"]["request_contract"]["operations"];
    assert_eq!(
        info["control_plane"]["request_contract"]["operations"]["update"]["fields"]["wait_for"]["canonical_values"],
        json!(["accepted", "completed"])
    );
    assert_eq!(
        operations["start"]["fields"]["duplicate_policy"]["canonical_values"],
        json!(["fail", "use-existing"])
    );
}

#[tokio::test]
async fn discovery_publishes_the_limits() {
    let info = info(&Server::open().await).await;
    let expected = json!({
        "max_payload_bytes": 2_097_152,
        "max_request_bytes": 16_777_216,
        "max_memo_bytes": 262_144,
        "max_search_attributes": 100,
        "max_search_attribute_key_length": 128,
        "max_search_attribute_value_bytes": 2048,
        "max_operation_name_length": 256,
        "max_pending_activities": 2000,
        "max_pending_children": 1000,
    });
    assert_eq!(info["limits"], expected);
    let expected = json!({
        "pending_activity_count": 2000,
        "pending_child_count": 1000,
        "pending_timer_count": 2000,
        "pending_signal_count": 5000,
        "pending_update_count": 500,
        "command_batch_size": 5000,
        "payload_size_bytes": 2_097_152,
        "memo_size_bytes": 262_144,
        "search_attribute_size_bytes": 40_960,
        "history_transaction_size": 5000,
        "history_event_count": 50_000,
        "warning_threshold_percent": 80,
    });
    assert_eq!(info["structural_limits"], expected);
}

#[tokio::test]
async fn discovery_never_fails_on_versions_or_namespaces() {
    let server = Server::guarded().await;
    for token in ["w", "o", "a"] {
        for version in [None, Some("1"), Some("2"), Some("x")] {
            let info = server
                .get("/cluster/info")
                .token(token)
                .version(version)
                .namespace("Nowhere")
                .accepted(200)
                .await;
            assert_eq!(info["namespace"], json!({"name": "nowhere"}));
        }
        let call = server
            .get("/cluster/info")
            .token(token)
            .header("x-durable-workflow-protocol-version", "9.9");
        call.accepted(200).await;
    }
    server
        .get("/cluster/info")
        .refused(401, "unauthorized")
        .await;
}

#[tokio::test]
async fn the_fleet_shows_live_workers_of_the_callers_namespace() {
    let server = Server::open().await;
    server.register("w1", json!({"build_id": "b1"})).await;
    server.register("w2", json!({"task_queue": "other"})).await;
    let fleet = info(&server).await["worker_fleet"].clone();
    assert_eq!(fleet["active_workers"], 2);
    assert_eq!(fleet["queues"], json!(["default", "other"]));
    assert_eq!(fleet["build_ids"], json!(["b1"]));
    assert_eq!(fleet["workers"][0]["worker_id"], "w1");
    let elsewhere = server
        .get("/cluster/info")
        .namespace("elsewhere")
        .accepted(200)
        .await;
    assert_eq!(elsewhere["worker_fleet"]["active_workers"], 0);
    server.clock.advance_seconds(61);
    assert_eq!(info(&server).await["worker_fleet"]["active_workers"], 0);
}

#[tokio::test]
async fn health_and_readiness_need_no_credential() {
    let server = Server::guarded().await;
    let health = server.get("/health").version(None).accepted(200).await;
    assert_eq!(health["status"], "serving");
    assert_eq!(health["checks"], json!({"database": "ok"}));
    assert_eq!(health["timestamp"], "2026-01-01T00:00:00.000000Z");
    let ready = server.get("/ready").version(None).accepted(200).await;
    assert_eq!(ready["status"], "ready");
    for check in [
        "database",
        "migrations",
        "default_namespace",
        "cache",
        "auth",
        "workflow_v2",
        "storage_admission",
    ] {
        assert_eq!(ready["checks"][check]["status"], "ok", "{check}");
    }
    server
        .call(Method::POST, "/health")
        .refused(401, "unauthorized")
        .await;
}
