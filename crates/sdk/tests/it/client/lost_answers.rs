//! Lost requests and responses: idempotent requests are repeated, others are not.

use longhaul_sdk::WorkflowCall;
use longhaul_sdk::client::{DuplicatePolicy, Error, StartError};
use longhaul_sdk::transport::{RequestError, TransportError};

use crate::support::{Bench, Fate, Unlucky};

fn greet() -> WorkflowCall<String> {
    WorkflowCall::named("greet")
}

const STARTS: &str = "/api/workflows";

#[tokio::test]
async fn a_start_without_an_id_survives_a_lost_response() {
    let bench = Bench::new().await;
    let client = bench
        .client_over(|inner| Unlucky::new(inner, STARTS, [Fate::AnswerLost]))
        .await;
    let handle = client.start(greet()).await.unwrap();
    let run = handle.describe().await.unwrap();
    assert_eq!(Some(run.run_id.as_str()), handle.run_id());
    assert_eq!(bench.client.list().page(None).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_start_with_an_id_is_repeated_only_if_that_is_safe() {
    let bench = Bench::new().await;
    let wire = |fates: &[Fate]| {
        let fates = fates.to_vec();
        bench.client_over(move |inner| Unlucky::new(inner, STARTS, fates))
    };
    // The request did not arrive, or the server reported that it had no effect.
    let busy = r#"{"reason":"backend_lock_pressure","retryable":true,"retry_after_seconds":0}"#;
    let client = wire(&[Fate::Lost, Fate::Answered(503, busy)]).await;
    client.start(greet()).id("a").await.unwrap();
    // The start may have succeeded, and the client cannot distinguish it from the start of another caller.
    let client = wire(&[Fate::AnswerLost]).await;
    let error = client.start(greet()).id("b").await.unwrap_err();
    let interrupted = StartError::Client(Error::Request(RequestError::Transport(
        TransportError::Interrupted("no way back".to_owned()),
    )));
    assert_eq!(error.to_string(), interrupted.to_string());
    bench.client.workflow::<()>("b").describe().await.unwrap();
    // This caller accepts the workflow of any caller.
    let client = wire(&[Fate::AnswerLost]).await;
    let start = client
        .start(greet())
        .id("c")
        .on_duplicate(DuplicatePolicy::UseExisting);
    start.await.unwrap();
}

#[tokio::test]
async fn a_signal_is_delivered_once() {
    let bench = Bench::new().await;
    let started = bench.client.start(greet()).id("w").await.unwrap();
    let mut unlucky = None;
    let gateway = Fate::Answered(502, "<html>bad gateway</html>");
    let client = bench
        .client_over(|inner| {
            let wire = Unlucky::new(inner, "/signal/go", [Fate::AnswerLost, gateway]);
            unlucky.insert(wire).clone()
        })
        .await;
    let handle = client.workflow::<String>("w");
    handle.signal_named("go", 1).await.unwrap();
    assert_eq!(unlucky.unwrap().seen(), 3);
    let events = started.history().all().await.unwrap();
    let signals = events
        .iter()
        .filter(|event| event.event_type == "SignalReceived");
    assert_eq!(signals.count(), 1);
}

#[tokio::test]
async fn refusals_are_not_repeated() {
    let bench = Bench::new().await;
    let mut unlucky = None;
    let client = bench
        .client_over(|inner| unlucky.insert(Unlucky::new(inner, "/missing", [])).clone())
        .await;
    client
        .workflow::<()>("missing")
        .describe()
        .await
        .unwrap_err();
    assert_eq!(unlucky.unwrap().seen(), 1);
}

#[tokio::test]
async fn attempts_end() {
    let bench = Bench::new().await;
    let mut unlucky = None;
    let client = bench
        .client_over(|inner| {
            let lost = [Fate::Lost; 9];
            unlucky.insert(Unlucky::new(inner, "/w", lost)).clone()
        })
        .await;
    let error = client.workflow::<()>("w").describe().await.unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(unlucky.unwrap().seen(), 4);
}

#[tokio::test]
async fn a_response_of_another_shape_is_malformed() {
    let bench = Bench::new().await;
    let strange = Fate::Answered(200, r#"{"hello":"world"}"#);
    let client = bench
        .client_over(|inner| Unlucky::new(inner, "/w", [strange]))
        .await;
    let error = client.workflow::<()>("w").describe().await.unwrap_err();
    assert!(
        matches!(error, Error::Request(RequestError::Malformed(_))),
        "{error}"
    );
    assert!(!error.is_retryable());
}
