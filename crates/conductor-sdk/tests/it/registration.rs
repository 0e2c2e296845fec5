//! Task definitions are registered before the first poll.

use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::model::TaskDef;
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::transport::{
    Request, RequestRetry, Response, Transport, TransportError,
};
use longhaul_conductor_sdk::worker::{AnyWorker, async_function, function};
use longhaul_conductor_sdk::{Client, Configuration};
use serde_json::{Value, json};

use crate::recording::Recording;

fn worker(settings: CodeSettings) -> AnyWorker {
    function("charge", |input: Value| Ok(input)).settings(settings)
}

/// Registers with prepared answers and returns the requests.
pub(crate) async fn register(worker: AnyWorker, answers: &[(u16, &str)]) -> Vec<(String, Value)> {
    let recording = Recording::default();
    for (status, body) in answers {
        recording.answer(*status, *body);
    }
    let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
    let client = Client::over(&configuration, recording.clone());
    let runner = TaskRunner::new(worker, client.tasks(), EventDispatcher::silent())
        .unwrap()
        .registering(client.metadata(), client.schemas());
    runner.register_task_definition().await;
    let requests = recording.take().into_iter();
    requests
        .map(|request| {
            let body = request.body.unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            (
                format!("{} {}", request.method.as_str(), request.path),
                body,
            )
        })
        .collect()
}

fn asked() -> CodeSettings {
    CodeSettings::new().register_task_def(true)
}

#[tokio::test]
async fn nothing_is_registered_unless_it_is_asked_for() {
    let sent = register(worker(CodeSettings::new()), &[]).await;
    assert!(sent.is_empty(), "{sent:?}");
}

#[tokio::test]
async fn a_definition_is_replaced_and_registered_only_if_there_is_none() {
    let sent = register(worker(asked()), &[(200, "")]).await;
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, "PUT /api/metadata/taskdefs");
    assert_eq!(sent[0].1["name"], "charge");

    let sent = register(worker(asked()), &[(404, "{}"), (200, "")]).await;
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].0, "POST /api/metadata/taskdefs");
    assert_eq!(sent[1].1[0]["name"], "charge");

    // Another refusal is not taken for a missing definition, and does not stop the worker.
    let sent = register(worker(asked()), &[(500, "{}")]).await;
    assert_eq!(sent.len(), 1);
}

#[tokio::test]
async fn without_overwriting_a_definition_that_exists_is_kept() {
    let settings = || asked().overwrite_task_def(false);
    let sent = register(worker(settings()), &[(200, r#"{"name":"charge"}"#)]).await;
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, "GET /api/metadata/taskdefs/charge");

    let sent = register(worker(settings()), &[(404, "{}"), (200, "")]).await;
    let lines: Vec<_> = sent.iter().map(|(line, _)| &**line).collect();
    assert_eq!(
        lines,
        [
            "GET /api/metadata/taskdefs/charge",
            "POST /api/metadata/taskdefs"
        ]
    );
    let sent = register(worker(settings()), &[(403, "{}")]).await;
    assert_eq!(sent.len(), 1);
}

#[tokio::test]
async fn a_template_gives_all_but_the_name() {
    let template = TaskDef {
        name: "other".to_owned(),
        retry_count: 7,
        ..TaskDef::default()
    };
    let sent = register(worker(asked()).task_definition(template), &[(200, "")]).await;
    assert_eq!(sent[0].1["name"], "charge");
    assert_eq!(sent[0].1["retryCount"], json!(7));
}

#[tokio::test]
async fn without_a_template_the_server_sets_everything_but_the_name() {
    let sent = register(worker(asked()), &[(404, "{}"), (200, "")]).await;
    assert_eq!(sent[0].1, json!({"name": "charge"}));
    assert_eq!(sent[1].1, json!([{"name": "charge"}]));
}

#[tokio::test]
async fn the_first_poll_comes_after_the_registration() {
    let waiting = async_function("charge", async |input: Value| Ok(input));
    for worker in [worker(asked()), waiting.settings(asked())] {
        let recording = Recording::default();
        let client = Client::over(&Configuration::new("http://unused"), recording.clone());
        let runner = TaskRunner::new(worker, client.tasks(), EventDispatcher::silent())
            .unwrap()
            .registering(client.metadata(), client.schemas());
        let control = runner.control();
        let running = tokio::spawn(runner.run());
        let mut sent = Vec::new();
        while sent.len() < 2 {
            sent.extend(recording.take());
            tokio::task::yield_now().await;
        }
        control.stop();
        running.await.unwrap();
        assert_eq!(sent[0].path, "/api/metadata/taskdefs");
        assert!(sent[1].path.starts_with("/api/tasks/poll/batch/charge?"));
    }
}

/// A server that does not answer, and says when a request arrived.
#[derive(Clone, Debug, Default)]
struct Silent(Arc<tokio::sync::Notify>);

impl Transport for Silent {
    fn send(&self, _request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_stop_ends_a_registration_that_gets_no_answer() {
    let silent = Silent::default();
    let client = Client::over(&Configuration::new("http://unused"), silent.clone());
    let runner = TaskRunner::new(worker(asked()), client.tasks(), EventDispatcher::silent())
        .unwrap()
        .registering(client.metadata(), client.schemas());
    let control = runner.control();
    let running = tokio::spawn(runner.run());
    silent.0.notified().await;
    control.stop();
    running.await.unwrap();
}
