//! Role tokens and namespaces.

use durable_workflow::{Client, Error, Worker, json};

use crate::harness::{Server, ServerOptions};
use crate::rust_sdk::fixture::{Fixture, QUEUE, RunningWorker, new_worker, result_options};

fn register_greeting(worker: &mut Worker, greeting: &'static str) {
    worker.register_activity("greet", move |_, arguments| async move {
        Ok(json!(format!(
            "{greeting}, {}",
            arguments[0].as_str().unwrap()
        )))
    });
    worker.register_workflow("hello", |context, arguments| async move {
        context.activity("greet", arguments).await
    });
}

async fn guarded_server() -> Server {
    let options = ServerOptions::new()
        .environment("LONGHAUL_WORKER_TOKEN", "worker-secret")
        .environment("LONGHAUL_OPERATOR_TOKEN", "operator-secret")
        .environment("LONGHAUL_ADMIN_TOKEN", "admin-secret");
    options.start().await
}

#[tokio::test]
async fn a_worker_needs_only_the_worker_token() {
    let server = guarded_server().await;
    let for_worker = Client::builder(server.url())
        .worker_token(Some("worker-secret".to_owned()))
        .build()
        .unwrap();
    let for_operator = Client::builder(server.url())
        .control_token(Some("operator-secret".to_owned()))
        .build()
        .unwrap();
    let mut worker = new_worker(for_worker, "worker-1");
    register_greeting(&mut worker, "hello");
    let worker = RunningWorker::start(worker);

    let handle = for_operator
        .start_workflow("hello", QUEUE, "hello", json!(["operator"]))
        .await
        .unwrap();

    assert_eq!(
        handle.result(result_options()).await.unwrap(),
        json!("hello, operator")
    );
    worker.stop().await;
}

#[tokio::test]
async fn tokens_do_not_open_the_other_plane() {
    let server = guarded_server().await;
    let client = |token: &str| {
        Client::builder(server.url())
            .token(Some(token.to_owned()))
            .build()
            .unwrap()
    };
    let status = |error: Error| match error {
        Error::Http { status, .. } => status.as_u16(),
        other => panic!("not an HTTP answer: {other:?}"),
    };

    for (token, expected) in [("worker-secret", 403), ("nonsense", 401)] {
        let refused = client(token)
            .start_workflow("hello", QUEUE, "hello", json!([]))
            .await
            .unwrap_err();
        assert_eq!(status(refused), expected, "starting a workflow as {token}");
    }
    for (token, expected) in [("operator-secret", 403), ("nonsense", 401)] {
        let mut worker = new_worker(client(token), "worker-1");
        register_greeting(&mut worker, "hello");
        assert_eq!(
            status(worker.register().await.unwrap_err()),
            expected,
            "registering a worker as {token}"
        );
    }
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let fixture = Fixture::start().await;
    let (status, body) = fixture
        .server
        .control()
        .post("/namespaces", &json!({"name": "blue"}))
        .await;
    assert_eq!(status, 201, "{body}");
    let blue = Client::builder(fixture.server.url())
        .namespace("blue")
        .build()
        .unwrap();
    let _default_worker = fixture.worker(|worker| register_greeting(worker, "default says hello"));
    let mut blue_worker = new_worker(blue.clone(), "worker-1");
    register_greeting(&mut blue_worker, "blue says hello");
    let _blue_worker = RunningWorker::start(blue_worker);

    // The same id, queue and worker id on both sides.
    let here = fixture
        .client
        .start_workflow("hello", QUEUE, "same-id", json!(["you"]))
        .await
        .unwrap();
    let there = blue
        .start_workflow("hello", QUEUE, "same-id", json!(["you"]))
        .await
        .unwrap();
    assert_eq!(
        here.result(result_options()).await.unwrap(),
        json!("default says hello, you")
    );
    assert_eq!(
        there.result(result_options()).await.unwrap(),
        json!("blue says hello, you")
    );

    let only_blue = blue
        .start_workflow("hello", QUEUE, "only-blue", json!(["you"]))
        .await
        .unwrap();
    only_blue.result(result_options()).await.unwrap();
    check_not_found(
        fixture.client.describe_workflow("only-blue").await,
        "instance_not_found",
    );
    let nowhere = Client::builder(fixture.server.url())
        .namespace("nowhere")
        .build()
        .unwrap();
    check_not_found(
        nowhere.start_workflow("hello", QUEUE, "x", json!([])).await,
        "namespace_not_found",
    );
}

fn check_not_found<T>(outcome: durable_workflow::Result<T>, reason: &str) {
    let Err(Error::Http { status, body }) = outcome else {
        panic!("expected a refusal")
    };
    assert_eq!(status.as_u16(), 404, "{body}");
    assert!(body.contains(reason), "{body}");
}
