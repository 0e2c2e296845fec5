//! Answers and functions that are not as they should be. The worker goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::model::{ResultStatus, Task, TaskResult};
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::transport::{
    Request, RequestRetry, Response, Transport, TransportError,
};
use longhaul_conductor_sdk::worker::{
    AnyWorker, IntoOutcome, TaskResponse, async_function, function,
};
use longhaul_conductor_sdk::{Client, Configuration};
use serde_json::Value;
use tokio::time::Instant;

use crate::recording::Recording;

/// Answers that a worker must survive: refusals of each kind, and bodies that are not what they should be.
const BAD: [(u16, &str); 17] = [
    (401, r#"{"error": "EXPIRED_TOKEN"}"#),
    (401, r#"{"error": "INVALID_TOKEN"}"#),
    (401, r#"{"error": "SOMETHING_ELSE"}"#),
    (401, ""),
    (403, "{}"),
    (404, "not found"),
    (405, ""),
    (409, r#"{"message": "conflict"}"#),
    (429, "{}"),
    (500, "<html>"),
    (502, ""),
    (503, r#"{"message": "busy"}"#),
    (200, "not JSON"),
    (200, r#"{"tasks": []}"#),
    (200, r#"{"taskId": []}"#),
    (200, r#"[{"taskId": []}]"#),
    (200, "[1, 2"),
];

fn task(id: &str) -> Task {
    Task {
        task_id: id.to_owned(),
        workflow_instance_id: "w".to_owned(),
        ..Task::default()
    }
}

/// Returns a worker of each kind that does the same.
fn both<O: IntoOutcome + 'static>(work: fn() -> TaskResponse<O>) -> [AnyWorker; 2] {
    [
        function("a/b c", move |_: Value| work()),
        async_function("a/b c", move |_: Value| async move { work() }),
    ]
}

/// A server that exchanges every key for a token. Everything else is answered as prepared.
#[derive(Debug)]
struct WithTokens(Recording);

impl Transport for WithTokens {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        if request.path != "/api/token" {
            return self.0.send(request);
        }
        let body = r#"{"token": "a-token"}"#.into();
        Box::pin(async move { Ok(Response { status: 200, body }) })
    }
}

fn runner(worker: AnyWorker, recording: &Recording) -> TaskRunner {
    let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
    runner_over(worker, &configuration, recording.clone())
}

/// Returns a runner that has a key.
fn runner_with_key(worker: AnyWorker, recording: &Recording) -> TaskRunner {
    let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
    let configuration = configuration.key("billing", "hidden");
    runner_over(worker, &configuration, WithTokens(recording.clone()))
}

fn runner_over(
    worker: AnyWorker,
    configuration: &Configuration,
    transport: impl Transport,
) -> TaskRunner {
    let client = Client::over(configuration, transport);
    TaskRunner::new(worker, client.tasks(), EventDispatcher::silent()).unwrap()
}

fn one_task() -> String {
    serde_json::to_string(&[task("a")]).unwrap()
}

/// Runs until the task is reported. It must not take long by the clock that jumps.
async fn report_soon(mut runner: TaskRunner, recording: &Recording, what: &str) {
    let (begun, mut sent) = (Instant::now(), Vec::new());
    let reports = |line: &String| line.contains(r#""taskId":"a""#);
    while !sent.iter().any(reports) {
        runner.run_once().await;
        runner.drain().await;
        sent.extend(recording.lines());
        assert!(begun.elapsed().as_secs() < 10, "{what}: {sent:?}");
    }
    let poll = &sent[0];
    assert!(
        poll.starts_with("GET /api/tasks/poll/batch/a%2Fb%20c?"),
        "{poll}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_answer_to_a_poll_ends_the_worker() {
    for (status, body) in BAD {
        for make in [runner, runner_with_key] {
            for worker in both(|| Ok(1)) {
                let recording = Recording::default();
                // A token that is refused is renewed once, and the poll is sent again.
                recording.answer(status, body);
                recording.answer(status, body);
                recording.answer(200, one_task());
                let runner = make(worker, &recording);
                report_soon(runner, &recording, &format!("{status} {body}")).await;
            }
        }
    }
}

/// Connections that fail, also after the server has got the request.
fn failures() -> [TransportError; 4] {
    [
        TransportError::Unreachable("refused".to_owned()),
        TransportError::Insecure("not trusted".to_owned()),
        TransportError::Interrupted("reset".to_owned()),
        TransportError::TimedOut(Duration::from_secs(30)),
    ]
}

#[tokio::test(start_paused = true)]
async fn no_lost_connection_ends_the_worker() {
    for error in failures() {
        for worker in both(|| Ok(1)) {
            let recording = Recording::default();
            recording.fail(error.clone());
            recording.answer(200, one_task());
            let runner = runner(worker, &recording);
            report_soon(runner, &recording, &error.to_string()).await;
        }
        for worker in both(|| Ok(1)) {
            let recording = Recording::default();
            recording.answer(200, one_task());
            for _ in 0..3 {
                recording.fail(error.clone());
            }
            check_four_attempts(worker, &recording, &error.to_string()).await;
        }
    }
}

/// Checks that the task is reported with the last attempt.
async fn check_four_attempts(worker: AnyWorker, recording: &Recording, what: &str) {
    let mut runner = runner(worker, recording);
    let begun = Instant::now();
    runner.run_once().await;
    runner.drain().await;
    let sent = recording.lines();
    assert_eq!(sent.len(), 5, "{what}: {sent:?}");
    assert_eq!(begun.elapsed().as_secs(), 10 + 20 + 30, "{what}");
}

#[tokio::test(start_paused = true)]
async fn no_answer_to_an_update_loses_the_result_at_once() {
    // 404 and 405 mean that the server has no such update, and 200 that the result was accepted.
    for (status, body) in BAD
        .into_iter()
        .filter(|(status, _)| !matches!(status, 200 | 404 | 405))
    {
        for worker in both(|| Ok(1)) {
            let recording = Recording::default();
            recording.answer(200, one_task());
            for _ in 0..3 {
                recording.answer(status, body);
            }
            check_four_attempts(worker, &recording, &format!("{status} {body}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_accepted_is_not_sent_again() {
    for (status, body) in BAD.into_iter().filter(|(status, _)| *status == 200) {
        for worker in both(|| Ok(1)) {
            let recording = Recording::default();
            recording.answer(200, one_task());
            recording.answer(status, body);
            let mut runner = runner(worker, &recording);
            let begun = Instant::now();
            runner.run_once().await;
            runner.drain().await;
            assert_eq!(recording.lines().len(), 2, "{body}");
            assert_eq!(begun.elapsed(), Duration::ZERO, "{body}");
        }
    }
}

#[tokio::test]
async fn output_that_cannot_be_written_is_a_failed_task() {
    // A key of an object is text.
    for worker in both(|| Ok(BTreeMap::from([(Some(1), vec![0.5])]))) {
        let recording = Recording::default();
        let mut runner = runner(worker, &recording);
        for id in ["a", "b"] {
            recording.answer(200, serde_json::to_string(&[task(id)]).unwrap());
            runner.run_once().await;
            runner.drain().await;
            let update = recording.take().pop().unwrap();
            let result: TaskResult = serde_json::from_slice(&update.body.unwrap()).unwrap();
            assert_eq!(
                (&*result.task_id, result.status),
                (id, Some(ResultStatus::Failed))
            );
            let reason = result.reason_for_incompletion.unwrap();
            assert!(reason.contains("key must be a string"), "{reason}");
        }
    }
}
