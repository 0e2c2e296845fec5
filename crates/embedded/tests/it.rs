//! The embedded server: it keeps accepted work, completes requests when it stops, and uses a manual clock.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_embedded::{Embedded, EmbeddedTransport, Error};
use longhaul_protocol::Timestamp;
use longhaul_sdk::client::{ResultError, Status};
use longhaul_sdk::transport::{
    Request, RequestError, RequestRetry, Response, Transport, TransportError,
};
use longhaul_sdk::{Client, WorkflowCall};
use tokio::sync::Notify;

/// 2026-01-01T00:00:00Z.
const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A transport that notifies when the client sends a long poll.
#[derive(Debug)]
struct LongPolls {
    inner: EmbeddedTransport,
    sent: Arc<Notify>,
}

impl Transport for LongPolls {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        if request.path.contains("wait_for_close=1") {
            self.sent.notify_one();
        }
        self.inner.send(request)
    }
}

fn greet() -> WorkflowCall<String> {
    WorkflowCall::named("greet").argument("Ada")
}

#[tokio::test]
async fn accepted_work_exists_after_the_file_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made/on/the/way/orders.db");
    let server = Embedded::open(&file).await.unwrap();
    let started = server.client().start(greet()).id("w-1").await.unwrap();
    server.stop().await;

    let server = Embedded::open(&file).await.unwrap();
    let found = server.client().workflow::<String>("w-1");
    let described = found.describe().await.unwrap();
    assert_eq!(Some(described.run_id.as_str()), started.run_id());
    assert_eq!(described.status, Status::Pending);
    assert_eq!(
        described.arguments::<(String,)>().unwrap(),
        ("Ada".to_owned(),)
    );
    server.stop().await;
}

#[tokio::test]
async fn a_stopped_server_completes_waiting_requests_and_refuses_new_ones() {
    let server = Embedded::in_memory().await.unwrap();
    let transport = LongPolls {
        inner: server.transport(),
        sent: Arc::default(),
    };
    let sent = transport.sent.clone();
    let client = Client::over(transport)
        .retry(RequestRetry::NEVER)
        .connect()
        .await
        .unwrap();
    let handle = client.start(greet()).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.result().await }
    });
    sent.notified().await;
    server.stop().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, ResultError::Client(_)), "{error}");
    let error = handle.describe().await.unwrap_err();
    let gone = "the server cannot be reached: the embedded server was stopped";
    assert_eq!(error.to_string(), gone);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_manual_clock_moves_when_it_is_advanced() {
    let server = Embedded::builder()
        .manual_clock(BEGIN)
        .open()
        .await
        .unwrap();
    assert_eq!(server.now(), BEGIN);
    let client = server.client();
    let start = client.start(greet()).run_timeout(Duration::from_secs(3600));
    let handle = start.await.unwrap();
    let result = tokio::spawn({
        let handle = handle.clone();
        async move { handle.result().await }
    });
    server.advance(Duration::from_secs(3600));
    let error = result.await.unwrap().unwrap_err();
    assert!(
        matches!(error, ResultError::TimedOut(ref which) if which == "run_timeout"),
        "{error}"
    );
    assert_eq!(error.to_string(), "the workflow timed out (run_timeout)");
    assert_eq!(server.now(), BEGIN.plus_seconds(3600));
    server.advance(Duration::from_millis(1));
    assert_eq!(
        server.now().as_micros(),
        BEGIN.plus_seconds(3600).as_micros() + 1000
    );
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letter.txt");
    std::fs::write(
        &file,
        "Dear Ada, this is not a database, but long enough to look at.",
    )
    .unwrap();
    let error = Embedded::open(&file).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    let error = Embedded::open(file.join("below")).await.unwrap_err();
    assert!(matches!(error, Error::Folder(..)), "{error}");
}

#[tokio::test]
async fn every_check_of_the_server_applies() {
    let server = Embedded::in_memory().await.unwrap();
    let client = server.client().in_namespace("nowhere");
    let error = client.workflow::<()>("x").describe().await.unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), "namespace_not_found");
    let error = server
        .client()
        .workflow::<()>("..")
        .describe()
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        longhaul_sdk::client::Error::Request(RequestError::Transport(TransportError::Invalid(_)))
    ));
}
