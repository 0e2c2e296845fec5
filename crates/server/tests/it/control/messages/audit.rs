//! The origin of commands, stored with them for audit: only what the server itself saw.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Call, Server, merge};

/// A call by the operator with every header that is stored.
fn traced<'a>(server: &'a Server, path: &str, body: &Value) -> Call<'a> {
    server
        .post(path, body)
        .token("o")
        .peer("192.0.2.7:5000")
        .header("user-agent", "dw-test/1")
        .header("x-request-id", "req-1")
        .header("x-correlation-id", "trace-9")
}

async fn commands(server: &Server) -> Vec<Value> {
    let run = server.get("/workflows/wf").token("o").accepted(200).await;
    run["commands"].as_array().expect("commands").clone()
}

/// A server with credentials and worker `w`, which supports cooperative cancellation.
async fn guarded_with_worker() -> Server {
    let server = Server::guarded().await;
    let worker = json!({
        "worker_id": "w", "task_queue": "default", "runtime": "python", "supported_workflow_types": ["greet"],
        "capabilities": ["cooperative_cancellation"],
        "workflow_command_contracts": {"greet": {"signals": ["go"], "queries": [], "updates": ["deposit"]}},
    });
    let call = server.worker_post("/register", &worker).token("w");
    call.accepted(201).await;
    server
}

#[tokio::test]
async fn every_command_is_stored_with_its_origin() {
    let server = guarded_with_worker().await;
    let start = json!({"workflow_id": "wf", "workflow_type": "greet"});
    let calls = [
        ("start", "/workflows", start, 201),
        ("signal", "/workflows/wf/signal/go", json!({}), 202),
        ("update", "/workflows/wf/update/deposit", json!({}), 202),
        ("update", "/workflows/wf/update/other", json!({}), 404),
        ("repair", "/workflows/wf/repair", json!({}), 200),
        (
            "request_cancellation",
            "/workflows/wf/request-cancellation",
            json!({}),
            202,
        ),
        ("cancel", "/workflows/wf/cancel", json!({}), 200),
        ("terminate", "/workflows/wf/terminate", json!({}), 409),
        ("archive", "/workflows/wf/archive", json!({}), 200),
    ];
    for (_, path, body, status) in &calls {
        traced(&server, path, body).accepted(*status).await;
    }
    let kept = commands(&server).await;
    assert_eq!(kept.len(), calls.len());
    for (command, (kind, path, _, status)) in kept.iter().zip(&calls) {
        let fingerprint = command["context"]["request"]["fingerprint"]
            .as_str()
            .expect("a digest");
        assert!(
            fingerprint.starts_with("sha256:") && fingerprint.len() == 71,
            "{fingerprint}"
        );
        assert_eq!(
            command["context"],
            json!({
                "caller": {"type": "server", "label": "Standalone Server"},
                "auth": {
                    "status": "authorized", "method": "token", "role": "operator", "roles": ["operator"],
                    "principal": {"type": "auth:token", "id": "role:operator"},
                },
                "request": {
                    "method": "POST", "path": format!("/api{path}"), "ip": "192.0.2.7", "user_agent": "dw-test/1",
                    "request_id": "req-1", "correlation_id": "trace-9", "fingerprint": fingerprint,
                },
                "server": {"namespace": "default", "workflow_id": "wf", "command": kind, "metadata": {}},
            }),
            "{kind}"
        );
        assert_eq!(command["correlation_id"], "trace-9");
        assert_eq!(command["type"], *kind);
        let accepted = if *status < 400 {
            "accepted"
        } else {
            "rejected"
        };
        assert_eq!(command["status"], accepted, "{kind}");
    }
    let digests: std::collections::BTreeSet<String> = kept
        .iter()
        .map(|row| row["context"]["request"]["fingerprint"].to_string())
        .collect();
    assert_eq!(digests.len(), calls.len(), "each route has its own");
}

#[tokio::test]
async fn missing_headers_are_null_and_an_anonymous_caller_has_no_role() {
    let server = Server::open().await;
    server.start("wf").await;
    let run = server.get("/workflows/wf").accepted(200).await;
    let mut context = run["commands"][0]["context"].clone();
    let request = context["request"].as_object_mut().expect("a request");
    assert!(
        request
            .remove("fingerprint")
            .is_some_and(|digest| digest.is_string())
    );
    assert_eq!(
        context["request"],
        json!({"method": "POST", "path": "/api/workflows", "ip": null, "user_agent": null, "request_id": null, "correlation_id": null})
    );
    assert_eq!(
        context["auth"],
        json!({
            "status": "not_configured", "method": "none", "role": null, "roles": [],
            "principal": {"type": "server", "id": "anonymous"},
        })
    );
    assert_eq!(run["commands"][0]["correlation_id"], Value::Null);
}

/// Only the credential identifies a caller.
#[tokio::test]
async fn bodies_and_other_headers_never_reach_the_record() {
    let server = guarded_with_worker().await;
    let lies = json!({
        "principal": "mallory", "principal_id": "mallory", "principal_type": "mallory", "actor": "mallory", "user": {"id": "mallory"},
        "context": {"auth": {"role": "mallory"}}, "caller": "mallory", "correlation_id": "mallory", "metadata": {"by": "mallory"},
    });
    let spoofed = |path: &str, body: Value| {
        let mut lying = lies.clone();
        merge(&mut lying, body);
        let mut call = traced(&server, path, &lying);
        for header in [
            "x-principal",
            "x-principal-id",
            "x-user",
            "x-actor",
            "x-forwarded-for",
            "x-forwarded-user",
            "x-real-ip",
            "forwarded",
            "x-caller",
            "x-fingerprint",
            "referer",
            "cookie",
        ] {
            call = call.header(header, "mallory");
        }
        call
    };
    let start = json!({"workflow_id": "wf", "workflow_type": "greet"});
    spoofed("/workflows", start).accepted(201).await;
    spoofed("/workflows/wf/signal/go", json!({}))
        .accepted(202)
        .await;
    spoofed("/workflows/wf/update/deposit", json!({}))
        .accepted(202)
        .await;
    spoofed("/workflows/wf/update/other", json!({}))
        .refused(404, "unknown_update")
        .await;
    spoofed("/workflows/wf/terminate", json!({}))
        .accepted(200)
        .await;
    let run = server.get("/workflows/wf").token("o").accepted(200).await;
    let run_id = run["run_id"].as_str().expect("an id");
    let history = server
        .get(&format!("/workflows/wf/runs/{run_id}/history"))
        .token("o")
        .accepted(200)
        .await;
    for shown in [&run["commands"], &run["updates"], &history] {
        assert!(!shown.to_string().contains("mallory"), "{shown}");
    }
    for secret in [r#""o""#, "Bearer"] {
        assert!(
            !run.to_string().contains(secret),
            "no part of a token is kept"
        );
    }
}

#[tokio::test]
async fn long_headers_are_shortened_and_odd_ones_left_out() {
    let server = Server::open().await;
    let long = "a".repeat(5000);
    let call = server.call(Method::POST, "/workflows");
    call.json(&json!({"workflow_id": "wf", "workflow_type": "greet"}))
        .header("user-agent", &long)
        .header("x-request-id", "   ")
        .header("x-correlation-id", "é")
        .accepted(201)
        .await;
    let run = server.get("/workflows/wf").accepted(200).await;
    let request = &run["commands"][0]["context"]["request"];
    assert_eq!(request["user_agent"].as_str().map(str::len), Some(255));
    assert_eq!(
        (&request["request_id"], &request["correlation_id"]),
        (&Value::Null, &Value::Null)
    );
}
