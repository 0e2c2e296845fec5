//! Keys are exchanged for tokens, and tokens are renewed.

use std::time::Duration;

use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::transport::{RequestError, RequestRetry};
use longhaul_conductor_sdk::worker::{async_function, function};
use longhaul_conductor_sdk::{Client, Configuration};
use serde_json::Value;

use crate::recording::{Recording, header};

const REFUSED: &str = r#"{"status":401,"message":"no","error":"EXPIRED_TOKEN"}"#;

fn client(recording: &Recording) -> Client {
    let configuration = Configuration::new("http://unused")
        .key("billing", "hidden")
        .namespace("orders")
        .retry(RequestRetry::NEVER);
    Client::over(&configuration, recording.clone())
}

#[tokio::test]
async fn one_token_serves_many_requests() {
    let recording = Recording::default();
    recording.answer(200, r#"{"token":"one"}"#);
    recording.answer(200, "[]");
    recording.answer(200, "[]");
    let client = client(&recording);
    client.metadata().tasks().await.unwrap();
    client.schemas().list().await.unwrap();
    let requests = recording.take();
    let paths: Vec<_> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(
        paths,
        ["/api/token", "/api/metadata/taskdefs", "/api/schema"]
    );
    assert_eq!(
        requests[0].body.as_deref(),
        Some(&br#"{"keyId":"billing","keySecret":"hidden"}"#[..])
    );
    for request in &requests[1..] {
        assert_eq!(header(request, "X-Authorization"), Some("one"));
        assert_eq!(header(request, "X-Namespace"), Some("orders"));
    }
}

#[tokio::test]
async fn a_token_that_expired_is_renewed_once() {
    let recording = Recording::default();
    recording.answer(200, r#"{"token":"one"}"#);
    recording.answer(401, REFUSED);
    recording.answer(200, r#"{"token":"two"}"#);
    recording.answer(200, "[]");
    let client = client(&recording);
    client.metadata().tasks().await.unwrap();
    let requests = recording.take();
    assert_eq!(requests.len(), 4);
    assert_eq!(header(&requests[3], "X-Authorization"), Some("two"));

    // A server that refuses the new one, too, is not asked without end.
    recording.answer(401, REFUSED);
    recording.answer(200, r#"{"token":"three"}"#);
    recording.answer(401, REFUSED);
    let error = client.metadata().tasks().await.unwrap_err();
    assert_eq!(error.refusal().map(|refusal| refusal.status()), Some(401));
    assert_eq!(recording.take().len(), 3);
}

#[tokio::test]
async fn other_refusals_renew_nothing() {
    for (status, body) in [
        (401, r#"{"error":"INVALID_CREDENTIALS"}"#),
        (401, "not JSON"),
        (403, r#"{"error":"FORBIDDEN"}"#),
    ] {
        let recording = Recording::default();
        recording.answer(200, r#"{"token":"one"}"#);
        recording.answer(status, body);
        let error = client(&recording).metadata().tasks().await.unwrap_err();
        assert!(matches!(error, RequestError::Refused(_)), "{error}");
        assert_eq!(recording.take().len(), 2, "{body}");
    }
}

#[tokio::test]
async fn a_server_without_tokens_is_used_without_one() {
    let recording = Recording::default();
    recording.answer(404, "");
    recording.answer(200, "[]");
    recording.answer(200, "[]");
    let client = client(&recording);
    client.metadata().tasks().await.unwrap();
    client.metadata().tasks().await.unwrap();
    let requests = recording.take();
    assert_eq!(requests.len(), 3);
    assert_eq!(header(&requests[2], "X-Authorization"), None);
}

#[tokio::test]
async fn a_wrong_key_is_the_error_of_the_request() {
    let recording = Recording::default();
    recording.answer(
        401,
        r#"{"message":"the key is not known","error":"INVALID_CREDENTIALS"}"#,
    );
    let error = client(&recording).metadata().tasks().await.unwrap_err();
    assert!(
        error.to_string().contains("the key is not known"),
        "{error}"
    );
    recording.answer(200, "{}");
    let error = client(&recording).metadata().tasks().await.unwrap_err();
    assert!(matches!(error, RequestError::Malformed(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_expires() {
    let recording = Recording::default();
    recording.answer(200, r#"{"token":"one"}"#);
    recording.answer(200, "[]");
    let client = client(&recording);
    client.metadata().tasks().await.unwrap();
    tokio::time::advance(Duration::from_secs(45 * 60 - 1)).await;
    recording.answer(200, "[]");
    client.metadata().tasks().await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    recording.answer(200, r#"{"token":"two"}"#);
    recording.answer(200, "[]");
    client.metadata().tasks().await.unwrap();
    let requests = recording.take();
    let tokens: Vec<_> = requests
        .iter()
        .map(|request| header(request, "X-Authorization"))
        .collect();
    assert_eq!(tokens, [None, Some("one"), Some("one"), None, Some("two")]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_renewed_is_used_further_and_tried_again_later() {
    let recording = Recording::default();
    recording.answer(200, r#"{"token":"one"}"#);
    recording.answer(200, "[]");
    let client = client(&recording);
    client.metadata().tasks().await.unwrap();
    recording.take();
    // The seconds since the last step, the answer to a renewal if there is one, and the token of the request.
    for (seconds, renewal, token) in [
        (45 * 60, Some((500, "{}")), "one"),
        (1, None, "one"),
        (1, Some((401, "{}")), "one"),
        (3, None, "one"),
        (1, Some((200, r#"{"token":"two"}"#)), "two"),
        (60, None, "two"),
    ] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        if let Some((status, body)) = renewal {
            recording.answer(status, body);
        }
        recording.answer(200, "[]");
        client.metadata().tasks().await.unwrap();
        let requests = recording.take();
        assert_eq!(requests.len(), 1 + usize::from(renewal.is_some()));
        let last = requests.last().unwrap();
        assert_eq!(header(last, "X-Authorization"), Some(token));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_token_backs_off_and_polls_when_it_has_one() {
    for status in [401, 500] {
        for worker in [
            function("charge", |input: Value| Ok(input)),
            async_function("charge", async |input: Value| Ok(input)),
        ] {
            let recording = Recording::default();
            for _ in 0..4 {
                recording.answer(status, "{}");
            }
            recording.answer(200, r#"{"token":"one"}"#);
            let tasks = client(&recording).tasks();
            let runner = TaskRunner::new(worker, tasks, EventDispatcher::silent()).unwrap();
            let control = runner.control();
            let running = tokio::spawn(runner.run());
            // Attempts come at 0, 2, 6 and 14 seconds. The next one comes at 30.
            tokio::time::sleep(Duration::from_secs(29)).await;
            let requests = recording.take();
            let paths: Vec<_> = requests.iter().map(|request| &*request.path).collect();
            assert_eq!(paths, ["/api/token"; 4], "{status}");
            tokio::time::sleep(Duration::from_secs(2)).await;
            let requests = recording.take();
            assert_eq!(requests[0].path, "/api/token");
            assert!(requests[1].path.starts_with("/api/tasks/poll/batch/charge"));
            assert_eq!(header(&requests[1], "X-Authorization"), Some("one"));
            control.stop();
            running.await.unwrap();
        }
    }
}
