//! HTTP calls of the built server, also while it is killed.

use serde_json::{Value, json};

use super::Api;
use super::service::Service;
use crate::serve::Server;

fn post(service: &Service, more: Value) -> Value {
    let mut request = json!({"uri": service.url("/order"), "method": "POST", "body": {"order": "${CPEWF_TASK_ID}"}, "readTimeOut": 600_000});
    for (name, value) in more.as_object().unwrap() {
        request[name] = value.clone();
    }
    json!([{"name": "call", "taskReferenceName": "call", "type": "HTTP", "inputParameters": {"http_request": request}}])
}

#[tokio::test]
async fn a_call_is_made_again_after_its_server_was_killed() {
    let data = tempfile::tempdir().unwrap();
    let mut service = Service::start().await;
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    api.define("order", post(&service, json!({}))).await;
    let id = api.start("order", json!({})).await;
    let first = service.next().await;
    assert_eq!((&*first.method, &*first.path), ("POST", "/order"));
    // The service has the request. The server that would have got the answer dies.
    server.signal("-KILL");
    drop(server);
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    let run = api.run(&id).await;
    assert_eq!(run["status"], "RUNNING");
    // The lease of the dead server ends first.
    let second = service.next().await;
    assert_eq!(second.body, first.body, "the same attempt is made again");
    second.answer(200, json!({"accepted": 2}));
    let run = api.ended(&id).await;
    assert_eq!(run["status"], "COMPLETED", "{run}");
    let tasks = run["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0]["pollCount"], 2);
    assert_eq!(run["output"]["response"]["body"], json!({"accepted": 2}));
    assert!(service.is_unasked());
    server.stop();
}

#[tokio::test]
async fn a_restarted_workflow_makes_its_call_again() {
    let data = tempfile::tempdir().unwrap();
    let mut service = Service::start().await;
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    api.define("order", post(&service, json!({}))).await;
    let id = api.start("order", json!({})).await;
    for round in 1..=3 {
        service.next().await.answer(200, json!({"round": round}));
        let run = api.ended(&id).await;
        assert_eq!(run["status"], "COMPLETED", "{run}");
        assert_eq!(run["output"]["response"]["body"], json!({"round": round}));
        assert_eq!(run["tasks"][0]["seq"], 1);
        if round < 3 {
            api.ok("POST", &format!("/workflow/{id}/restart"), None)
                .await;
        }
    }
    assert!(service.is_unasked());
    server.stop();
}

#[tokio::test]
async fn a_stopping_server_lets_its_calls_end() {
    let data = tempfile::tempdir().unwrap();
    let mut service = Service::start().await;
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    api.define("order", post(&service, json!({}))).await;
    let id = api.start("order", json!({})).await;
    let call = service.next().await;
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    call.answer(200, json!({"accepted": 1}));
    stopping.await.unwrap();
    let server = Server::start(data.path(), &[]);
    let run = Api::of(&server).ended(&id).await;
    assert_eq!(run["status"], "COMPLETED", "{run}");
    assert_eq!(run["tasks"][0]["pollCount"], 1, "one call was enough");
    server.stop();
}

#[tokio::test]
async fn private_addresses_are_refused_if_the_server_says_so() {
    let data = tempfile::tempdir().unwrap();
    let mut service = Service::start().await;
    let server = Server::start(data.path(), &["--http-tasks-deny-private"]);
    let api = Api::of(&server);
    let port = service.url("").rsplit(':').next().unwrap().to_owned();
    for (number, host) in [
        "127.0.0.1",
        "2130706433",
        "localhost",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("call{number}");
        let uri = json!({"uri": format!("http://{host}:{port}/")});
        api.define(&name, post(&service, uri)).await;
        let id = api.start(&name, json!({})).await;
        let run = api.ended(&id).await;
        assert_eq!(run["status"], "FAILED");
        let reason = run["tasks"][0]["reasonForIncompletion"].as_str().unwrap();
        assert!(
            reason.contains("is not public (limit: deny private)"),
            "{reason}"
        );
    }
    assert!(service.is_unasked());
    server.stop();
}

#[tokio::test]
async fn http_tasks_may_be_off() {
    let data = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    api.define("order", post(&service, json!({}))).await;
    server.stop();
    let server = Server::start(data.path(), &["--http-tasks", "off"]);
    let api = Api::of(&server);
    let (status, text) = api.send("POST", "/workflow/order", Some(&json!({}))).await;
    assert_eq!(status, 400, "{text}");
    assert!(
        text.contains("task_type_off") && text.contains("--http-tasks off"),
        "{text}"
    );
    let definition = json!([{"name": "other", "tasks": post(&service, json!({}))}]);
    let (status, text) = api
        .send("PUT", "/metadata/workflow", Some(&definition))
        .await;
    assert_eq!(status, 400, "{text}");
    assert!(
        text.contains("definition_invalid") && text.contains("--http-tasks off"),
        "{text}"
    );
    server.stop();
}
