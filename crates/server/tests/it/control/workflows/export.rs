//! History export. That the bytes are canonical is shown by the published verifier, in the client tests.

use longhaul_server::auth::Auth;
use longhaul_server::{Options, SigningKey};
use serde_json::{Value, json};

use crate::support::{Server, envelope};

/// Runs `a` to its end with an activity that fails once, a timer and a signal. Returns the run id.
async fn eventful(server: &Server) -> String {
    server.register("w", json!({})).await;
    let run_id = server
        .start_with(json!({
            "workflow_id": "a",
            "workflow_type": "greet",
            "business_key": "b-1",
            "memo": {"tuer": 1.5},
            "input": ["ü", 0.1],
        }))
        .await;
    let activity = json!({
        "type": "schedule_activity",
        "activity_type": "say",
        "arguments": envelope("[]"),
        "retry_policy": {"max_attempts": 1},
    });
    server
        .worker("w")
        .decide(json!([activity, {"type": "start_timer", "delay_seconds": 5}]))
        .await;
    let poll = json!({"worker_id": "w", "task_queue": "default", "timeout_seconds": 0});
    let leased = server
        .worker_post("/activity-tasks/poll", &poll)
        .accepted(200)
        .await;
    let task = &leased["task"];
    let path = format!(
        "/activity-tasks/{}/fail",
        task["task_id"].as_str().expect("an id")
    );
    let failed = json!({"lease_owner": "w", "activity_attempt_id": task["activity_attempt_id"], "failure": {"message": "no"}});
    server.worker_post(&path, &failed).accepted(200).await;
    server
        .worker("w")
        .decide(json!([{"type": "start_timer", "delay_seconds": 7}]))
        .await;
    server
        .post("/workflows/a/signal/go", &json!({"input": [1]}))
        .accepted(202)
        .await;
    server
        .worker("w")
        .decide(json!([{"type": "complete_workflow", "result": envelope("{\"ok\":1.0}")}]))
        .await;
    run_id
}

async fn export(server: &Server, run_id: &str) -> Value {
    server
        .get(&format!("/workflows/a/runs/{run_id}/history/export"))
        .accepted(200)
        .await
}

#[tokio::test]
async fn a_bundle_is_valid_and_matches_the_history() {
    let server = Server::open().await;
    let run_id = eventful(&server).await;
    let bundle = export(&server, &run_id).await;
    let mut schema: Value = serde_json::from_str(include_str!(
        "../../../contract/history-export-bundle.schema.json"
    ))
    .unwrap();
    // The reference between the two published files, followed by hand.
    schema["properties"]["history_events"]["items"] = serde_json::from_str(include_str!(
        "../../../contract/history-event-payloads.schema.json"
    ))
    .unwrap();
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = schema
        .iter_errors(&bundle)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(bundle.get("control_plane").is_none());
    let history = server
        .get(&format!(
            "/workflows/a/runs/{run_id}/history?page_size=1000"
        ))
        .accepted(200)
        .await;
    let exported = bundle["history_events"].as_array().unwrap();
    for (exported, event) in exported.iter().zip(history["events"].as_array().unwrap()) {
        let mut payload = event["payload"].clone();
        if event["event_type"] == "WorkflowStarted" {
            // Where the published replayers look for them.
            payload["arguments"] = envelope("[\"ü\",0.1]");
        }
        assert_eq!(exported["payload"], payload);
        assert_eq!(exported["type"], event["event_type"]);
        assert_eq!(exported["recorded_at"], event["timestamp"]);
        assert_eq!(exported["event_type"], event["event_type"]);
    }
    assert_eq!(exported.len(), history["events"].as_array().unwrap().len());
    let workflow = &bundle["workflow"];
    for (field, value) in [
        ("instance_id", json!("a")),
        ("run_id", json!(run_id)),
        ("status", json!("completed")),
        ("closed_reason", json!("completed")),
        ("business_key", json!("b-1")),
        ("memo", json!({"tuer": 1.5})),
        ("queue", json!("default")),
        ("is_current_run", json!(true)),
        ("current_run_id", json!(run_id)),
        ("last_history_sequence", json!(exported.len())),
    ] {
        assert_eq!(workflow[field], value, "{field}");
    }
    assert_eq!(bundle["history_complete"], true);
    for (section, count) in [
        ("signals", 1),
        ("activities", 1),
        ("timers", 2),
        ("failures", 1),
        ("commands", 2),
        ("updates", 0),
        ("tasks", 0),
    ] {
        let rows = bundle[section].as_array().unwrap();
        assert_eq!(rows.len(), count, "{section}: {rows:?}");
    }
    assert_eq!(bundle["activities"][0]["last_event_type"], "ActivityFailed");
    assert_eq!(bundle["failures"][0]["message"], "no");
    assert_eq!(bundle["signals"][0]["signal_name"], "go");
    let paths: Vec<&str> = crate::support::texts(&bundle["payload_manifest"]["entries"], "path");
    assert!(paths.contains(&"payloads.output.data"), "{paths:?}");
    assert!(
        paths.iter().any(|path| path.starts_with("history_events[")),
        "{paths:?}"
    );
    let integrity = &bundle["integrity"];
    assert_eq!(integrity["canonicalization"], "json-recursive-ksort-v1");
    assert_eq!(integrity["checksum"].as_str().unwrap().len(), 64);
    assert_eq!(integrity["signature"], Value::Null);
    assert_eq!(integrity["signature_algorithm"], Value::Null);
}

#[tokio::test]
async fn an_open_run_is_exported_up_to_its_newest_event() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    let run_id = server.start("a").await;
    let bundle = export(&server, &run_id).await;
    assert_eq!(bundle["history_complete"], false);
    assert_eq!(
        bundle["payloads"]["output"],
        json!({"available": false, "codec": null, "data": null})
    );
    assert_eq!(bundle["tasks"][0]["status"], "ready");
    let key = format!("{run_id}:2:2026-01-01T00:00:00.000000Z");
    assert_eq!(bundle["dedupe_key"], json!(key));
}

#[tokio::test]
async fn a_configured_key_signs() {
    let key = SigningKey::new("secret".to_owned(), Some("k1".to_owned()));
    let options = Options {
        export_key: Some(key),
        ..Options::default()
    };
    assert!(!format!("{options:?}").contains("secret"));
    let server = Server::with(Auth::open(), options).await;
    let run_id = server.start("a").await;
    let first = export(&server, &run_id).await;
    assert_eq!(first["integrity"]["signature_algorithm"], "hmac-sha256");
    assert_eq!(first["integrity"]["key_id"], "k1");
    assert_eq!(first["integrity"]["signature"].as_str().unwrap().len(), 64);
    assert_eq!(
        export(&server, &run_id).await,
        first,
        "the same moment gives the same bytes"
    );
}

#[tokio::test]
async fn a_missing_run_is_not_exported() {
    let server = Server::guarded().await;
    server
        .get("/workflows/none/runs/r/history/export")
        .token("o")
        .refused(404, "instance_not_found")
        .await;
    server
        .get("/workflows/none/runs/r/history/export")
        .token("w")
        .refused(403, "forbidden")
        .await;
}
