//! Keys and tokens: who may call which route, in which namespace.

use http::Method;
use longhaul_server::auth::Role;
use serde_json::json;

use super::support::{
    SECRET, ask, call, hello, send, start_hello, tell, token, with_hello, with_keys,
};
use crate::support::Server;

const WORKER: &[Role] = &[Role::Worker];
const OPERATOR: &[Role] = &[Role::Operator];

/// The first segments of the plane that have routes.
const SEGMENTS: [&str; 8] = [
    "metadata", "workflow", "tasks", "schema", "version", "event", "queue", "admin",
];

/// Returns the method and path of every route that needs a credential, and whether a worker may call it.
fn routes() -> Vec<(Method, String, bool)> {
    let all = longhaul_server::routes().into_iter().filter_map(|route| {
        let path = route.path.strip_prefix("/api/")?;
        let segment = path.split('/').next()?;
        if !SEGMENTS.contains(&segment) {
            return None;
        }
        let method: Method = route.method.parse().expect("a method");
        let is_workers = match segment {
            "tasks" => !path.starts_with("tasks/search"),
            "metadata" => path.starts_with("metadata/taskdefs") && method != Method::DELETE,
            "schema" => method != Method::DELETE,
            "version" => true,
            _ => false,
        };
        let path = ["a", "b", "c"]
            .iter()
            .fold(format!("/{path}"), |path, name| {
                path.replace(&format!("{{{name}}}"), "1")
            });
        Some((method, path, is_workers))
    });
    let all: Vec<_> = all.collect();
    assert!(all.len() > 25, "{all:?}");
    all
}

#[tokio::test]
async fn every_route_checks_the_credential_then_the_role() {
    let server = with_keys(&[("worker", WORKER, None), ("operator", OPERATOR, None)]).await;
    let worker = token(&server, "worker").await;
    let operator = token(&server, "operator").await;
    for (method, path, is_workers) in routes() {
        let request = || call(&server, method.as_str(), &path);
        let with = |token: &str| request().header("x-authorization", token);
        for answer in [
            send(request()).await,
            send(with("forged")).await,
            send(with("")).await,
            send(with(&worker).header("x-authorization", &worker)).await,
            send(request().token("wrong")).await,
            // The token of a key is no bearer token.
            send(request().token(&worker)).await,
        ] {
            let refusal = answer.refused(401, "unauthorized");
            assert_eq!(refusal["error"], "INVALID_TOKEN", "{method} {path}");
        }
        for answer in [send(with(&worker)).await, send(request().token("w")).await] {
            if is_workers {
                assert!(!matches!(answer.status, 401 | 403), "{method} {path}");
            } else {
                let refusal = answer.refused(403, "forbidden");
                // Not one of the words on which clients renew their token.
                assert_eq!(refusal["error"], "NOT_ALLOWED", "{method} {path}");
            }
        }
        for answer in [
            send(with(&operator)).await,
            send(request().token("o")).await,
            send(request().token("a")).await,
        ] {
            assert!(
                !matches!(answer.status, 401 | 403),
                "{method} {path}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_refused_caller_changes_nothing() {
    let server = with_keys(&[("worker", WORKER, None), ("operator", OPERATOR, None)]).await;
    let worker = token(&server, "worker").await;
    let operator = token(&server, "operator").await;
    let register = || call(&server, "POST", "/metadata/workflow").json(&hello());
    send(register()).await.refused(401, "unauthorized");
    send(register().header("x-authorization", &worker))
        .await
        .refused(403, "forbidden");
    let list = call(&server, "GET", "/metadata/workflow").header("x-authorization", &operator);
    assert_eq!(send(list).await.json(), json!([]));
}

#[tokio::test]
async fn a_token_is_for_the_owner_of_a_key() {
    let server = with_keys(&[("k", WORKER, None)]).await;
    for body in [
        json!({"keyId": "k", "keySecret": "wrong"}),
        json!({"keyId": "other", "keySecret": SECRET}),
        json!({"keyId": "", "keySecret": ""}),
    ] {
        let answer = tell(&server, "POST", "/token", &body).await;
        let refusal = answer.refused(401, "unauthorized");
        // With INVALID_TOKEN a client would request a token to repeat this request.
        assert_eq!(refusal["error"], "INVALID_CREDENTIALS");
        assert!(!answer.body.contains(SECRET));
    }
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"keyId": 1, "keySecret": "x"}"#,
        r#"{"keyId": "k"}"#,
    ] {
        let answer = send(call(&server, "POST", "/token").raw(body)).await;
        answer.refused(400, "validation_failed");
    }
    let long = json!({"keyId": "k", "keySecret": "x".repeat(20_000)});
    tell(&server, "POST", "/token", &long)
        .await
        .refused(413, "payload_too_large");
    // With any content type, or none.
    let body = json!({"keyId": "k", "keySecret": SECRET}).to_string();
    let answer = send(call(&server, "POST", "/token").raw(body)).await.json();
    assert!(
        answer["token"]
            .as_str()
            .is_some_and(|token| token.len() > 40)
    );
}

#[tokio::test]
async fn an_expired_token_is_refused_with_the_word_that_makes_clients_renew_it() {
    let server = with_keys(&[("k", WORKER, None)]).await;
    let token = token(&server, "k").await;
    let poll = || call(&server, "GET", "/tasks/poll/batch/t?timeout=0");
    let poll = || send(poll().header("x-authorization", &token));
    poll().await.json();
    // Clients renew after 45 minutes, so it lives longer than an hour.
    server.advance(3700).await;
    poll().await.json();
    server.advance(3600).await;
    let refusal = poll().await.refused(401, "unauthorized");
    assert_eq!(refusal["error"], "EXPIRED_TOKEN");
}

#[tokio::test]
async fn a_server_without_credentials_has_no_tokens_and_takes_every_caller() {
    let server = Server::open().await;
    let body = json!({"keyId": "k", "keySecret": SECRET});
    tell(&server, "POST", "/token", &body)
        .await
        .refused(404, "not_found");
    let list = call(&server, "GET", "/metadata/workflow").header("x-authorization", "anything");
    assert_eq!(send(list).await.json(), json!([]));
}

#[tokio::test]
async fn a_key_acts_in_its_namespace_whatever_the_request_names() {
    let keys: &[(&str, &[Role], Option<&str>)] = &[
        ("orders", OPERATOR, Some("orders")),
        ("any", OPERATOR, None),
    ];
    let server = with_keys(keys).await;
    for name in ["orders", "billing"] {
        let body = json!({"name": name, "description": name});
        let created = server.post("/namespaces", &body).token("a").send().await;
        assert!(created.status.is_success(), "{}", created.body);
    }
    let (orders, any) = (token(&server, "orders").await, token(&server, "any").await);
    let request = |method: &str, path: &str, token: &str| {
        call(&server, method, path).header("x-authorization", token)
    };
    let definition = hello();
    send(
        request("POST", "/metadata/workflow?namespace=billing", &orders)
            .namespace("billing")
            .json(&definition),
    )
    .await
    .void();
    for (path, namespace, expected) in [
        ("/metadata/workflow", None, 0),
        ("/metadata/workflow", Some("billing"), 0),
        ("/metadata/workflow?namespace=billing", None, 0),
        ("/metadata/workflow", Some("Orders"), 1),
        ("/metadata/workflow?namespace=orders", None, 1),
        // The header has precedence.
        ("/metadata/workflow?namespace=billing", Some("orders"), 1),
        ("/metadata/workflow?namespace=orders", Some("default"), 0),
        // Both are the default namespace.
        ("/metadata/workflow?namespace=None", None, 0),
        ("/metadata/workflow?namespace=", None, 0),
    ] {
        let mut list = request("GET", path, &any);
        if let Some(namespace) = namespace {
            list = list.namespace(namespace);
        }
        let found = send(list).await.json();
        assert_eq!(
            found.as_array().unwrap().len(),
            expected,
            "{path} {namespace:?}"
        );
    }
    send(request("GET", "/metadata/workflow", &any).namespace("nowhere"))
        .await
        .refused(404, "namespace_not_found");
}

#[tokio::test]
async fn nothing_of_a_namespace_is_seen_or_changed_from_another() {
    let server = Server::open().await;
    let created = server
        .post("/namespaces", &json!({"name": "other"}))
        .send()
        .await;
    assert!(created.status.is_success(), "{}", created.body);
    with_hello(&server).await;
    let id = start_hello(&server, json!({"n": 1})).await;
    let task_id = {
        let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
        run["tasks"][0]["taskId"].as_str().unwrap().to_owned()
    };
    let elsewhere = |method: &str, path: &str| call(&server, method, path).namespace("other");
    for (method, path, reason) in [
        ("GET", format!("/workflow/{id}"), "run_not_found"),
        ("GET", format!("/workflow/{id}/status"), "run_not_found"),
        ("GET", format!("/workflow/{id}/tasks"), "run_not_found"),
        ("DELETE", format!("/workflow/{id}"), "run_not_found"),
        ("PUT", format!("/workflow/{id}/pause"), "run_not_found"),
        ("PUT", format!("/workflow/{id}/resume"), "run_not_found"),
        ("GET", format!("/tasks/{task_id}"), "task_not_found"),
        (
            "GET",
            "/metadata/workflow/hello".to_owned(),
            "definition_not_found",
        ),
        (
            "DELETE",
            "/metadata/workflow/hello/1".to_owned(),
            "definition_not_found",
        ),
    ] {
        let answer = send(elsewhere(method, &path)).await;
        answer.refused(404, reason);
    }
    let update = json!({"taskId": task_id, "workflowInstanceId": id, "status": "COMPLETED"});
    send(elsewhere("POST", "/tasks").json(&update))
        .await
        .refused(404, "task_not_found");
    let empty = send(elsewhere("GET", "/tasks/poll/batch/greet?timeout=0")).await;
    assert_eq!(empty.json(), json!([]));
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    assert_eq!(run["status"], "RUNNING");
    assert_eq!(run["tasks"][0]["status"], "SCHEDULED");
}
