//! The checks before any handler of the worker plane, and their order.

use http::Method;
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use serde_json::{Value, json};

use crate::support::{Server, complete, fail, report, staffed};

/// Every route of the plane.
pub(super) const ROUTES: [(Method, &str); 18] = [
    (Method::POST, "/register"),
    (Method::POST, "/heartbeat"),
    (Method::DELETE, "/registrations/w"),
    (Method::POST, "/workflow-tasks/poll"),
    (Method::POST, "/workflow-tasks/t/history"),
    (Method::POST, "/workflow-tasks/t/heartbeat"),
    (Method::POST, "/workflow-tasks/t/complete"),
    (Method::POST, "/workflow-tasks/t/fail"),
    (Method::POST, "/activity-tasks/poll"),
    (Method::POST, "/activity-tasks/t/complete"),
    (Method::POST, "/activity-tasks/t/fail"),
    (Method::POST, "/activity-tasks/t/heartbeat"),
    (Method::POST, "/activity-tasks/t/status"),
    (Method::POST, "/query-tasks/poll"),
    (Method::POST, "/query-tasks/t/complete"),
    (Method::POST, "/query-tasks/t/fail"),
    (Method::POST, "/update-validation-tasks/t/approve"),
    (Method::POST, "/update-validation-tasks/t/reject"),
];

#[tokio::test]
async fn every_minor_version_up_to_ours_is_accepted() {
    let server = staffed().await;
    for version in ["1.0", "1.1", "1.9", "1.13", "1.19", "1.20"] {
        let answer = server
            .worker("w")
            .poll("workflow", json!({}))
            .protocol(Some(version))
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], "empty", "{version}");
    }
}

#[tokio::test]
async fn other_versions_are_refused_with_the_one_that_works() {
    let server = staffed().await;
    let cases = [
        (None, "missing_protocol_version"),
        (Some(""), "missing_protocol_version"),
        (Some("1.x"), "unsupported_protocol_version"),
        (Some("2.0"), "unsupported_protocol_version"),
        (Some("0.20"), "unsupported_protocol_version"),
        (Some("1.21"), "unsupported_protocol_version"),
        (Some("1.100"), "unsupported_protocol_version"),
        (Some("abc"), "unsupported_protocol_version"),
        (Some("1"), "unsupported_protocol_version"),
        (Some("1.2.3"), "unsupported_protocol_version"),
        (Some("-1.0"), "unsupported_protocol_version"),
        (Some("1.+5"), "unsupported_protocol_version"),
        (
            Some("99999999999999999999.0"),
            "unsupported_protocol_version",
        ),
    ];
    for (version, reason) in cases {
        let refusal = server
            .worker("w")
            .poll("workflow", json!({}))
            .protocol(version)
            .refused(400, reason)
            .await;
        assert_eq!(refusal["supported_version"], "1.20");
        let requested = version.filter(|version| !version.is_empty());
        assert_eq!(
            refusal["requested_version"],
            json!(requested),
            "{version:?}"
        );
        assert!(refusal["remediation"].is_string(), "{version:?}");
    }
}

#[tokio::test]
async fn each_gate_refuses_before_the_next_one_is_checked() {
    let server = Server::guarded().await;
    let bad = |token: &str| {
        server
            .worker_call(Method::POST, "/workflow-tasks/poll")
            .token(token)
            .namespace("nowhere")
            .raw("{")
            .protocol(Some("2.0"))
    };
    bad("wrong").refused(401, "unauthorized").await;
    bad("o").refused(403, "forbidden").await;
    bad("w").refused(400, "unsupported_protocol_version").await;
    bad("w")
        .protocol(None)
        .refused(400, "missing_protocol_version")
        .await;
    let refusal = bad("w")
        .protocol(Some("1.20"))
        .refused(404, "namespace_not_found")
        .await;
    assert_eq!(refusal["namespace"], "nowhere");
    assert!(refusal["remediation"].is_string());
    let known = |body: &'static str| {
        server
            .worker_call(Method::POST, "/workflow-tasks/poll")
            .token("w")
            .raw(body)
    };
    known("{").refused(415, "unsupported_media_type").await;
    let json = |body| known(body).header("content-type", "application/json");
    json("{").refused(400, "malformed_json").await;
    json("{}").refused(422, "validation_failed").await;
    json(r#"{"worker_id": "unknown", "task_queue": "default"}"#)
        .refused(412, "worker_not_registered")
        .await;
}

#[tokio::test]
async fn every_route_is_for_workers_only() {
    let server = Server::guarded().await;
    for (method, path) in ROUTES {
        let call = || server.worker_call(method.clone(), path);
        call().refused(401, "unauthorized").await;
        for (token, role) in [("o", "operator"), ("a", "admin")] {
            let refusal = call().token(token).refused(403, "forbidden").await;
            assert_eq!(refusal["role"], role, "{path}");
            assert_eq!(refusal["allowed_roles"], json!(["worker"]), "{path}");
        }
        let refusal = call()
            .token("w")
            .protocol(Some("2.0"))
            .refused(400, "unsupported_protocol_version")
            .await;
        assert_eq!(refusal["requested_version"], "2.0", "{path}");
        call()
            .token("w")
            .namespace("nowhere")
            .refused(404, "namespace_not_found")
            .await;
    }
}

#[tokio::test]
async fn a_single_shared_token_works_for_workers_too() {
    let auth = Auth::with_tokens(Some("all".to_owned()), None, None, None);
    let server = Server::with(auth, Options::default()).await;
    let body = json!({"task_queue": "default", "runtime": "python"});
    let register = || server.worker_post("/register", &body);
    register().token("all").accepted(201).await;
    register().token("other").refused(401, "unauthorized").await;
}

#[tokio::test]
async fn the_control_planes_version_does_not_matter_here() {
    let server = staffed().await;
    server
        .worker("w")
        .poll("workflow", json!({}))
        .header("x-durable-workflow-control-plane-version", "99")
        .accepted(200)
        .await;
}

#[tokio::test]
async fn the_namespace_is_that_of_the_header_then_of_the_query_then_the_default() {
    let server = Server::open().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    let body = json!({"worker_id": "w", "task_queue": "default", "runtime": "python"});
    let register = |query: &str| server.worker_post(&format!("/register{query}"), &body);
    let namespace = |answer: Value| answer["namespace"].as_str().map(str::to_owned);
    assert_eq!(
        namespace(register("").accepted(201).await).as_deref(),
        Some("default")
    );
    let by_query = register("?namespace=other").accepted(201).await;
    assert_eq!(namespace(by_query).as_deref(), Some("other"));
    let by_header = register("?namespace=nowhere")
        .namespace("OTHER")
        .accepted(201)
        .await;
    assert_eq!(namespace(by_header).as_deref(), Some("other"));
}

#[tokio::test]
async fn unknown_routes_and_methods_keep_the_envelope() {
    let server = Server::guarded().await;
    let call = |method, path| server.worker_call(method, path);
    for path in [
        "/nothing",
        "/workflow-tasks/t/explode",
        "/query-tasks/t/explode",
        "/sessions/s/explode",
    ] {
        call(Method::POST, path).refused(401, "unauthorized").await;
        call(Method::POST, path)
            .token("o")
            .refused(403, "forbidden")
            .await;
        call(Method::POST, path)
            .token("w")
            .refused(404, "not_found")
            .await;
    }
    for (method, path) in ROUTES {
        let other = if method == Method::DELETE {
            Method::POST
        } else {
            Method::DELETE
        };
        call(Method::GET, path)
            .token("w")
            .refused(405, "method_not_allowed")
            .await;
        call(other, path)
            .token("w")
            .refused(405, "method_not_allowed")
            .await;
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let options = Options {
        max_request_bytes: 1000,
        ..Options::default()
    };
    let server = Server::with(Auth::open(), options).await;
    let long = json!({"worker_id": "w".repeat(2000)});
    for (_, path) in ROUTES.iter().filter(|(method, _)| method == Method::POST) {
        let refusal = server
            .worker_post(path, &long)
            .refused(413, "payload_too_large")
            .await;
        assert_eq!(refusal["limit"], 1000, "{path}");
        // The length is announced: nothing has to be read.
        server
            .worker_call(Method::POST, path)
            .header("content-length", "1001")
            .refused(413, "payload_too_large")
            .await;
    }
}

#[tokio::test]
async fn a_body_must_be_a_json_object() {
    let server = Server::open().await;
    for (_, path) in ROUTES.iter().filter(|(method, _)| method == Method::POST) {
        let typed = |body: &'static [u8], media_type: &str| {
            server
                .worker_call(Method::POST, path)
                .raw(body)
                .header("content-type", media_type)
        };
        for media_type in [
            "text/plain",
            "application/octet-stream",
            "application/jsonp",
        ] {
            let refusal = typed(b"{}", media_type)
                .refused(415, "unsupported_media_type")
                .await;
            assert!(refusal["accepted_content_types"].is_array(), "{path}");
        }
        let json = |body| typed(body, "application/json; charset=utf-8");
        for malformed in [
            &b"{"[..],
            b"{\"a\":}",
            b"nope",
            b"{} {}",
            b"{\"a\": \"\xff\"}",
            b"{\"a\": 01}",
        ] {
            json(malformed).refused(400, "malformed_json").await;
        }
        for other in [&b"[]"[..], b"1", b"\"text\"", b"null", b"true"] {
            json(other).refused(422, "validation_failed").await;
        }
    }
}

#[tokio::test]
async fn every_answer_offers_what_discovery_offers() {
    let server = staffed().await;
    let info = server.get("/cluster/info").accepted(200).await;
    let offered = &info["worker_protocol"]["server_capabilities"];
    assert_eq!(info["worker_protocol"]["version"], "1.20");
    server.start("wf").await;
    let polled = server
        .worker("w")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    let task = polled["task"].clone();
    let activity_poll = server
        .worker("w")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    let beaten = report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    let failed = fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    server.advance(1).await;
    let task = server.worker("w").workflow_task().await;
    let refused = complete(&server, &task, json!([]))
        .refused(422, "validation_failed")
        .await;
    let completed = complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    for answer in [
        &polled,
        &activity_poll,
        &beaten,
        &failed,
        &refused,
        &completed,
    ] {
        assert_eq!(&answer["server_capabilities"], offered);
    }
}

#[tokio::test]
async fn the_capabilities_are_those_of_the_protocol() {
    let server = Server::open().await;
    let info = server.get("/cluster/info").accepted(200).await;
    let offered = &info["worker_protocol"]["server_capabilities"];
    let expected = json!({
        "long_poll_timeout": 30,
        "long_poll": {"default_timeout_seconds": 30, "min_timeout_seconds": 1, "max_timeout_seconds": 60},
        "poll_status": true,
        "poll_statuses": ["leased", "empty", "throttled", "unavailable", "draining"],
        "workflow_task_verbs": ["poll", "history", "heartbeat", "complete", "fail"],
        "activity_task_verbs": ["poll", "complete", "fail", "status", "heartbeat"],
        "workflow_task_poll_request_idempotency": true,
        "history_page_size_default": 500,
        "default_history_page_size": 500,
        "history_page_size_max": 1000,
        "history_compression": {"supported_encodings": ["gzip", "deflate"], "compression_threshold": 50},
        "activity_retry_policy": true,
        "activity_timeouts": true,
        "child_workflow_retry_policy": true,
        "child_workflow_timeouts": true,
        "parent_close_policy": true,
        "non_retryable_failures": true,
        "workflow_memo_updates": {"supported": true},
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&offered[key], value, "{key}");
    }
    assert_eq!(info["capabilities"]["payload_codecs"], json!(["avro"]));
}

#[tokio::test]
async fn the_published_contracts_are_in_the_catalogue() {
    let server = Server::open().await;
    let info = server.get("/cluster/info").accepted(200).await;
    let specs = &info["platform_protocol_specs"]["specs"];
    for (entry, document) in [
        (
            "worker_protocol_stream",
            "durable-workflow.v2.worker-protocol-stream",
        ),
        (
            "local_activity_runtime",
            "durable-workflow.v2.local-activity-runtime",
        ),
        (
            "worker_sessions_runtime",
            "durable-workflow.v2.worker-sessions-runtime",
        ),
    ] {
        assert!(specs[entry].to_string().contains(document), "{specs}");
    }
}
