//! The checks before any handler, and their order.

use http::Method;
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use serde_json::{Value, json};

use crate::support::Server;

/// Every route that a namespace and the version header guard, and whether an operator may call it.
const ROUTES: [(Method, &str, bool); 24] = [
    (Method::GET, "/workflows", true),
    (Method::POST, "/workflows", true),
    (Method::GET, "/workflows/w", true),
    (Method::GET, "/workflows/w/runs", true),
    (Method::GET, "/workflows/w/runs/r", true),
    (Method::GET, "/workflows/w/runs/r/history", true),
    (Method::POST, "/workflows/w/signal/s", true),
    (Method::POST, "/workflows/w/runs/r/signal/s", true),
    (Method::POST, "/workflows/w/cancel", true),
    (Method::POST, "/workflows/w/runs/r/cancel", true),
    (Method::POST, "/workflows/w/terminate", true),
    (Method::POST, "/workflows/w/runs/r/terminate", true),
    (Method::GET, "/workers", true),
    (Method::GET, "/workers/x", true),
    (Method::DELETE, "/workers/x", false),
    (Method::GET, "/task-queues", true),
    (Method::GET, "/task-queues/q", true),
    (Method::GET, "/namespaces", true),
    (Method::POST, "/namespaces", false),
    (Method::GET, "/namespaces/default", true),
    (Method::PUT, "/namespaces/default", false),
    // The same again with a query, which must not matter.
    (Method::GET, "/workflows?page_size=0", true),
    (Method::GET, "/workers?status=odd", true),
    (Method::GET, "/workflows/w/runs/r/history?page_size=0", true),
];

#[tokio::test]
async fn each_gate_refuses_before_the_next_one_is_checked() {
    let server = Server::guarded().await;
    let bad = |token: &str| {
        server
            .call(Method::POST, "/workflows")
            .token(token)
            .namespace("nowhere")
            .raw("{")
            .version(Some("3"))
    };
    bad("wrong").refused(401, "unauthorized").await;
    bad("w").refused(403, "forbidden").await;
    bad("o")
        .refused(400, "unsupported_control_plane_version")
        .await;
    bad("o")
        .version(None)
        .refused(400, "missing_control_plane_version")
        .await;
    bad("o")
        .version(Some("2"))
        .refused(404, "namespace_not_found")
        .await;
    let known = |body: &'static str| server.call(Method::POST, "/workflows").token("o").raw(body);
    known("{").refused(415, "unsupported_media_type").await;
    known("{")
        .header("content-type", "application/json")
        .refused(400, "malformed_json")
        .await;
    known("[]")
        .header("content-type", "application/json")
        .refused(422, "validation_failed")
        .await;
    known("{}")
        .header("content-type", "application/json")
        .refused(422, "validation_failed")
        .await;
}

#[tokio::test]
async fn every_route_checks_the_credential_then_the_role_then_the_version() {
    let server = Server::guarded().await;
    for (method, path, is_operators) in ROUTES {
        let call = || server.call(method.clone(), path);
        call().refused(401, "unauthorized").await;
        let refusal = call().token("w").refused(403, "forbidden").await;
        assert_eq!(refusal["role"], "worker", "{path}");
        let allowed = if is_operators {
            json!(["operator", "admin"])
        } else {
            json!(["admin"])
        };
        assert_eq!(refusal["allowed_roles"], allowed, "{path}");
        if is_operators {
            call()
                .token("o")
                .version(None)
                .refused(400, "missing_control_plane_version")
                .await;
        } else {
            call().token("o").refused(403, "forbidden").await;
        }
        let refusal = call()
            .token("a")
            .version(Some("1"))
            .refused(400, "unsupported_control_plane_version")
            .await;
        assert_eq!(
            (&refusal["supported_version"], &refusal["requested_version"]),
            (&json!("2"), &json!("1")),
            "{path}"
        );
        assert!(refusal["remediation"].is_string());
    }
}

#[tokio::test]
async fn every_route_but_those_of_namespaces_needs_an_existing_namespace() {
    let server = Server::open().await;
    for (method, path, _) in ROUTES {
        let answer = server.call(method, path).namespace("nowhere").send().await;
        if path.starts_with("/namespaces") {
            assert_ne!(answer.body["reason"], "namespace_not_found", "{path}");
        } else {
            assert_eq!(
                (answer.status.as_u16(), answer.text("reason")),
                (404, "namespace_not_found".to_owned()),
                "{path}"
            );
            assert_eq!(answer.body["namespace"], "nowhere");
            assert!(answer.body["remediation"].is_string());
        }
    }
}

#[tokio::test]
async fn every_answer_names_the_version_it_speaks() {
    let server = Server::guarded().await;
    let mut answers = Vec::new();
    for (method, path, _) in ROUTES {
        answers.push(server.call(method.clone(), path).send().await);
        answers.push(server.call(method, path).token("a").send().await);
    }
    answers.push(server.get("/nothing").token("o").send().await);
    answers.push(
        server
            .call(Method::PATCH, "/workflows")
            .token("o")
            .send()
            .await,
    );
    for answer in answers {
        let version = answer
            .headers
            .get("x-durable-workflow-control-plane-version")
            .map(|value| value.to_str().unwrap());
        assert_eq!(version, Some("2"), "{}", answer.body);
        assert_eq!(answer.headers["content-type"], "application/json");
    }
}

#[tokio::test]
async fn the_block_of_an_operation_is_in_refusals_of_every_gate() {
    let server = Server::guarded().await;
    let call = || server.call(Method::POST, "/workflows/order-7/runs/r1/signal/approve");
    for answer in [
        call().send().await,
        call().token("w").send().await,
        call().token("o").version(None).send().await,
        call().token("o").namespace("nowhere").send().await,
        call().token("o").raw("{").send().await,
        call().token("o").send().await,
    ] {
        let block = &answer.body["control_plane"];
        assert_eq!(block["operation"], "signal", "{}", answer.body);
        assert_eq!(
            (&block["workflow_id"], &block["run_id"]),
            (&json!("order-7"), &json!("r1"))
        );
        assert_eq!(
            (&block["operation_name"], &block["operation_name_field"]),
            (&json!("approve"), &json!("signal_name"))
        );
        assert_eq!(block["reason"], answer.body["reason"]);
        assert_eq!(block["message"], answer.body["message"]);
    }
}

#[tokio::test]
async fn unknown_routes_are_not_found_and_known_ones_refuse_other_methods() {
    let server = Server::guarded().await;
    let later = [
        "/workflows/w/runs/r/redrive",
        "/schedules",
        "/schedules/s",
        "/activities",
        "/system/health",
        "/storage/test",
        "/nothing",
        "/",
    ];
    for path in later {
        for method in [Method::GET, Method::POST] {
            server
                .call(method.clone(), path)
                .token("o")
                .refused(404, "not_found")
                .await;
            server.call(method, path).refused(401, "unauthorized").await;
        }
    }
    for (method, path) in [
        (Method::DELETE, "/workflows"),
        (Method::PUT, "/workflows/w"),
        (Method::GET, "/workflows/w/signal/s"),
        (Method::GET, "/workflows/w/cancel"),
        (Method::POST, "/workflows/w/runs/r/history"),
        (Method::DELETE, "/namespaces/default"),
        (Method::POST, "/task-queues"),
        (Method::POST, "/cluster/info"),
    ] {
        server
            .call(method.clone(), path)
            .token("o")
            .refused(405, "method_not_allowed")
            .await;
        server.call(method, path).refused(401, "unauthorized").await;
    }
}

#[tokio::test]
async fn unknown_worker_routes_keep_the_worker_envelope() {
    let server = Server::open().await;
    let body = server
        .worker_post("/nothing", &json!({}))
        .refused(404, "not_found")
        .await;
    assert_eq!(body["protocol_version"], "1.20");
}

#[tokio::test]
async fn a_path_that_is_not_utf_8_is_not_found() {
    let server = Server::guarded().await;
    server
        .get("/workflows/%ff")
        .refused(401, "unauthorized")
        .await;
    server
        .get("/workflows/%ff")
        .token("o")
        .refused(404, "not_found")
        .await;
}

#[tokio::test]
async fn path_segments_are_percent_decoded_once() {
    let server = Server::open().await;
    let run_id = server.start("a:b").await;
    assert_eq!(
        server.get("/workflows/a%3Ab").accepted(200).await["run_id"],
        run_id
    );
    let body = server
        .get("/workflows/a%253Ab")
        .refused(404, "instance_not_found")
        .await;
    assert_eq!(body["workflow_id"], "a%3Ab");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let options = Options {
        max_request_bytes: 1000,
        ..Options::default()
    };
    let server = Server::with(Auth::open(), options).await;
    let large = json!({"workflow_type": "greet", "input": ["x".repeat(2000)]});
    let body = server
        .post("/workflows", &large)
        .refused(413, "payload_too_large")
        .await;
    assert_eq!(body["limit"], 1000);
    // Also when the length is not announced, and before the media type is looked at.
    server
        .call(Method::POST, "/workflows")
        .raw(large.to_string())
        .refused(413, "payload_too_large")
        .await;
    server
        .post("/workflows", &json!({"workflow_type": "greet"}))
        .accepted(201)
        .await;
}

#[tokio::test]
async fn json_by_any_of_its_media_types_is_read_and_other_media_is_not() {
    let server = Server::open().await;
    let body = json!({"workflow_type": "greet"}).to_string();
    for media in [
        "application/json; charset=utf-8",
        "application/vnd.example+json",
        "Application/JSON",
    ] {
        server
            .call(Method::POST, "/workflows")
            .raw(body.clone())
            .header("content-type", media)
            .accepted(201)
            .await;
    }
    let refusal = server
        .call(Method::POST, "/workflows")
        .raw(body)
        .header("content-type", "text/plain");
    let refusal = refusal.refused(415, "unsupported_media_type").await;
    assert_eq!(
        refusal["accepted_content_types"],
        json!(["application/json", "application/*+json"])
    );
    let refusal = server
        .call(Method::POST, "/workflows")
        .raw("{\"a\":")
        .header("content-type", "application/json");
    assert!(refusal.refused(400, "malformed_json").await["json_error"].is_string());
}

#[tokio::test]
async fn a_refusal_has_no_field_of_older_clients() {
    let server = Server::open().await;
    for (method, path, _) in ROUTES {
        let answer = server.call(method, path).send().await;
        for legacy in ["query", "signal", "update", "wait_policy"] {
            assert_eq!(answer.body.get(legacy), None::<&Value>, "{path}");
        }
    }
}
