//! Statuses, content types and envelopes that hold for every route, and what clients may send.

mod compatibility;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::body::Body;
use futures::stream;
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use longhaul_store::Error;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use super::support::{ask, call, hello, poll, send, start_hello, tell, update_of, with_hello};
use crate::support::Server;

#[tokio::test]
async fn unknown_routes_and_methods_are_refused_in_the_envelope_of_the_plane() {
    let server = Server::open().await;
    for path in [
        "/metadata",
        "/metadata/nothing",
        "/workflow/a/b/c/d",
        "/tasks/a/b/c/d/e/f",
        "/token/userInfo",
        "/event/queue/config",
        "/scheduler/schedules",
        "/secrets",
        "/applications/x",
        "/workflow/%ff/status",
    ] {
        let answer = ask(&server, "GET", path).await;
        answer.refused(404, "not_found");
    }
    for (method, path) in [
        ("PATCH", "/metadata/taskdefs"),
        ("DELETE", "/metadata/taskdefs"),
        ("PUT", "/workflow"),
        ("DELETE", "/tasks"),
        ("GET", "/tasks/update-v2/x/y"),
        ("GET", "/token"),
        ("POST", "/version"),
        ("PUT", "/schema"),
    ] {
        let answer = ask(&server, method, path).await;
        answer.refused(405, "method_not_allowed");
    }
    // The other plane has its own.
    let other = server.get("/nothing").refused(404, "not_found").await;
    assert!(other.get("status").is_none(), "{other}");
}

#[tokio::test]
async fn routes_of_other_servers_are_not_taken_for_names() {
    let server = Server::open().await;
    with_hello(&server).await;
    // A definition with the name of such a route would be started.
    let named = json!({"name": "test", "tasks": [
        {"name": "greet", "taskReferenceName": "greet", "type": "SIMPLE"}]});
    tell(&server, "POST", "/metadata/workflow", &named).await;
    for (method, path) in [("POST", "/workflow/bulk/status"), ("GET", "/agent/x")] {
        let refusal = tell(&server, method, path, &json!({}))
            .await
            .refused(404, "not_found");
        assert_eq!(refusal["status"], 404, "{method} {path}");
        assert_eq!(
            refusal["message"],
            format!("There is no route /api{path}."),
            "{method} {path}"
        );
    }
    let sizes = ask(&server, "GET", "/tasks/queue/sizes?taskType=greet").await;
    assert_eq!(sizes.json()["greet"], 0);
}

#[tokio::test]
async fn text_that_was_cut_in_two_can_be_reported() {
    let server = Server::open().await;
    with_hello(&server).await;
    let body = r#"{"name": "hello", "input": {"half": "\ud83d", "file": "caf\udce9"}}"#;
    let id = send(call(&server, "POST", "/workflow").raw(body))
        .await
        .text();
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    assert_eq!(
        run["input"],
        json!({"half": "\u{fffd}", "file": "caf\u{fffd}"})
    );
}

#[tokio::test]
async fn unknown_routes_do_not_exist_for_callers_without_a_credential() {
    let server = Server::guarded().await;
    for (method, path) in [
        ("GET", "/event"),
        ("PATCH", "/workflow"),
        ("GET", "/workflow/%ff"),
    ] {
        ask(&server, method, path)
            .await
            .refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn the_version_is_text_and_health_has_the_members_of_both_families() {
    let server = Server::open().await;
    let version = ask(&server, "GET", "/version").await.text();
    assert_eq!(version, Options::default().version);
    let health = ask(&server, "GET", "/health").await.json();
    assert_eq!(health["healthy"], true);
    assert_eq!(health["status"], "serving");
    assert_eq!(health["checks"]["database"], "ok");
    assert_eq!(health["healthResults"], json!([]));
    assert_eq!(health["suppressedHealthResults"], json!([]));
    assert!(health["timestamp"].is_string());
}

#[tokio::test]
async fn bodies_are_read_whatever_the_headers_say() {
    let server = Server::open().await;
    let body = hello().to_string();
    for media in [
        "application/json",
        "text/plain",
        "*/*",
        "application/x-www-form-urlencoded",
    ] {
        let request = call(&server, "POST", "/metadata/workflow?overwrite=True");
        let request = request.raw(body.clone()).header("content-type", media);
        send(request.header("accept", "text/plain")).await.void();
    }
    // In pieces, without a length.
    let pieces: Vec<Result<String, std::io::Error>> = body
        .as_bytes()
        .chunks(7)
        .map(|piece| Ok(String::from_utf8(piece.to_vec()).unwrap()))
        .collect();
    let request = call(&server, "POST", "/metadata/workflow?overwrite=true");
    let request = request.raw(Body::from_stream(stream::iter(pieces)));
    send(request).await.void();
}

#[tokio::test]
async fn many_bodies_without_a_length_are_served_at_once() {
    let server = Server::open().await;
    with_hello(&server).await;
    // Each waits for its run, which no worker serves. The number is far above what fits if each reserved the largest body.
    let body = json!({"name": "hello", "input": {"n": 1}}).to_string();
    let execute = || async {
        let pieces: [Result<String, std::io::Error>; 1] = [Ok(body.clone())];
        let path = "/workflow/execute/hello/1?waitForSeconds=30";
        let request = call(&server, "POST", path).raw(Body::from_stream(stream::iter(pieces)));
        send(request).await.json()
    };
    let waiting = futures::future::join_all((0..40).map(|_| execute()));
    let worker = async {
        let mut tasks = Vec::new();
        while tasks.len() < 40 {
            let path = "/tasks/poll/batch/greet?count=1000&timeout=0";
            let polled = ask(&server, "GET", path).await.json();
            tasks.extend(polled.as_array().expect("a list").clone());
            tokio::task::yield_now().await;
        }
        for task in tasks {
            let done = update_of(&task, "COMPLETED", json!({"result": "hi"}));
            tell(&server, "POST", "/tasks", &done).await.text();
        }
    };
    let (answers, ()) = tokio::join!(waiting, worker);
    for answer in answers {
        assert_eq!(answer["status"], "COMPLETED", "{answer}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_and_without_a_length() {
    let options = Options {
        max_request_bytes: 1000,
        ..Options::default()
    };
    let server = Server::with(Auth::open(), options).await;
    let large = json!({"name": "x".repeat(2000)});
    tell(&server, "POST", "/metadata/workflow", &large)
        .await
        .refused(413, "payload_too_large");
    let pieces: [Result<String, std::io::Error>; 2] = [Ok("x".repeat(900)), Ok("x".repeat(900))];
    let request =
        call(&server, "POST", "/workflow/hello").raw(Body::from_stream(stream::iter(pieces)));
    send(request).await.refused(413, "payload_too_large");
    assert_eq!(
        ask(&server, "GET", "/metadata/workflow").await.json(),
        json!([])
    );
}

#[tokio::test]
async fn malformed_bodies_are_refused_on_every_route_that_reads_one() {
    let server = Server::open().await;
    with_hello(&server).await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (method, path) in [
        ("POST", "/metadata/taskdefs"),
        ("PUT", "/metadata/taskdefs"),
        ("PUT", "/metadata/taskdefs/x"),
        ("POST", "/metadata/workflow"),
        ("PUT", "/metadata/workflow"),
        ("POST", "/metadata/workflow/validate"),
        ("POST", "/schema"),
        ("POST", "/workflow"),
        ("POST", "/workflow/hello"),
        ("POST", "/workflow/execute/hello/1"),
        ("POST", "/tasks"),
        ("POST", "/tasks/update-v2"),
        ("POST", "/tasks/x/greet_ref/COMPLETED"),
    ] {
        for body in [
            "{",
            "nothing",
            "\u{0}",
            "{\"a\":1}x",
            "7",
            "\"text\"",
            deep.as_str(),
        ] {
            let request = call(&server, method, path).raw(body.to_owned());
            let answer = send(request).await;
            let refusal = answer.refused(400, "validation_failed");
            assert!(
                refusal["message"].as_str().is_some(),
                "{method} {path} {body:.20}"
            );
        }
    }
    assert_eq!(
        ask(&server, "GET", "/metadata/taskdefs").await.json(),
        json!([])
    );
    assert_eq!(ask(&server, "GET", "/schema").await.json(), json!([]));
}

#[tokio::test]
async fn empty_parameters_and_the_text_none_are_absent_everywhere() {
    let server = Server::open().await;
    with_hello(&server).await;
    for value in ["", "None"] {
        let path = format!(
            "/workflow/hello?version={value}&correlationId={value}&priority={value}&namespace={value}"
        );
        let id = tell(&server, "POST", &path, &json!({})).await.text();
        let path = format!("/workflow/{id}?includeTasks={value}&summarize={value}");
        let run = ask(&server, "GET", &path).await.json();
        assert_eq!(run.get("correlationId"), None::<&Value>);
        assert_eq!(run["tasks"].as_array().unwrap().len(), 1);
        let path = format!(
            "/tasks/poll/batch/greet?workerid={value}&domain={value}&count={value}&timeout={value}"
        );
        let tasks = ask(&server, "GET", &path).await.json();
        assert_eq!(tasks.as_array().unwrap().len(), 1);
        let path = format!("/workflow/{id}/tasks?start={value}&count={value}&status={value}");
        assert_eq!(ask(&server, "GET", &path).await.json()["totalHits"], 1);
        let path = format!("/metadata/workflow/hello?version={value}&metadata=false");
        assert_eq!(ask(&server, "GET", &path).await.json()["version"], 1);
        let path = format!("/workflow/{id}?reason={value}&triggerFailureWorkflow={value}");
        ask(&server, "DELETE", &path).await.void();
    }
}

#[tokio::test]
async fn flags_and_numbers_are_read_in_every_form_that_clients_send() {
    let server = Server::open().await;
    with_hello(&server).await;
    for (text, status) in [
        ("true", 200),
        ("True", 200),
        ("1", 200),
        ("yes", 200),
        ("on", 200),
        ("false", 409),
        ("False", 409),
        ("0", 409),
        ("maybe", 400),
    ] {
        let path = format!("/metadata/workflow?overwrite={text}");
        let answer = tell(&server, "POST", &path, &hello()).await;
        assert_eq!(answer.status, status, "{text}");
    }
    for (text, status) in [
        ("1", 200),
        ("1.0", 200),
        ("1.5", 400),
        ("x", 400),
        ("nan", 400),
    ] {
        let path = format!("/tasks/poll/batch/none?timeout=0&count={text}");
        assert_eq!(ask(&server, "GET", &path).await.status, status, "{text}");
    }
}

#[tokio::test]
async fn path_segments_are_percent_decoded_once() {
    let server = Server::open().await;
    let name = "a b:c/d%20e";
    let path = "/metadata/taskdefs/a%20b%3Ac%2Fd%2520e";
    tell(&server, "PUT", path, &json!({"name": "other"}))
        .await
        .void();
    assert_eq!(ask(&server, "GET", path).await.json()["name"], name);
}

#[tokio::test]
async fn nulls_are_absent_in_models_and_kept_in_free_maps() {
    let server = Server::open().await;
    let mut definition = hello();
    definition["description"] = Value::Null;
    definition["tasks"][0]["optional"] = Value::Null;
    definition["tasks"][0]["inputParameters"] = json!({"n": "${workflow.input.n}", "nil": null});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    let stored = ask(&server, "GET", "/metadata/workflow/hello").await.json();
    assert_eq!(stored.get("description"), None::<&Value>);
    let input = json!({"n": {"deep": [null, {"x": null}]}});
    let start = json!({"name": "hello", "input": input, "version": null, "priority": null});
    let id = tell(&server, "POST", "/workflow", &start).await.text();
    let task = poll(&server, "greet").await;
    assert_eq!(task["inputData"], json!({"n": input["n"], "nil": null}));
    let done = update_of(&task, "COMPLETED", json!({"result": null, "list": [null]}));
    tell(&server, "POST", "/tasks/update-v2", &done)
        .await
        .nothing();
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    assert_eq!(run["input"], input);
    assert_eq!(run["output"], json!({"g": null}));
    assert_eq!(
        run["tasks"][0]["outputData"],
        json!({"result": null, "list": [null]})
    );
    // An input that is null or missing is empty.
    for start in [
        json!({"name": "hello", "input": null}),
        json!({"name": "hello"}),
    ] {
        let id = tell(&server, "POST", "/workflow", &start).await.text();
        let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
        assert_eq!(run["input"], json!({}));
    }
}

#[tokio::test]
async fn outages_may_be_repeated_and_bugs_may_not() {
    let mode = Arc::new(AtomicU8::new(0));
    let asked = Arc::clone(&mode);
    let store = Memory::with_fault(move || match asked.load(Ordering::SeqCst) {
        1 => Err(Error::Unavailable("the disk is gone".to_owned())),
        2 => panic!("a bug in the store"),
        _ => Ok(()),
    });
    let server = Server::on_store(Arc::new(store)).await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let path = format!("/workflow/{id}/pause");
    let pause = || ask(&server, "PUT", &path);
    mode.store(1, Ordering::SeqCst);
    let refusal = pause().await.refused(503, "backend_unavailable");
    assert_eq!(refusal["retryable"], true);
    mode.store(2, Ordering::SeqCst);
    let refusal = pause().await.refused(500, "internal_error");
    assert_eq!(refusal["retryable"], false);
    assert!(refusal["error_id"].is_string(), "{refusal}");
    mode.store(0, Ordering::SeqCst);
    let run = ask(&server, "GET", &format!("/workflow/{id}")).await.json();
    assert_eq!(run["status"], "RUNNING");
}
