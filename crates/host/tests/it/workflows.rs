//! Commands on workflows: races, repeats, and runs that continue.

use longhaul_engine::Rejection;
use longhaul_engine::run::message::external::Stop;
use longhaul_engine::run::start::StartOutcome;
use longhaul_host::{CommandTarget, Error};
use longhaul_protocol::{Payload, Reason};
use serde_json::json;

use crate::setup::{holder, namespace, setup, start_of};

fn target(workflow_id: &str, request_id: Option<&str>) -> CommandTarget {
    CommandTarget {
        namespace: namespace(),
        workflow_id: workflow_id.into(),
        run_id: None,
        request_id: request_id.map(str::to_owned),
        principal: None,
        context: None,
    }
}

#[tokio::test]
async fn of_many_simultaneous_starts_exactly_one_begins() {
    let setup = setup().await;
    let starts = (0..20).map(|_| {
        let host = setup.host.clone();
        tokio::spawn(async move { host.workflows().start(start_of("order-1")).await })
    });
    let mut begun = 0;
    for start in starts.collect::<Vec<_>>() {
        match start.await.unwrap() {
            Ok(started) => {
                assert_eq!(started.outcome, StartOutcome::StartedNew);
                begun += 1;
            }
            Err(error) => assert!(
                matches!(error, Error::Rejected(Rejection::AlreadyStarted { .. })),
                "{error}"
            ),
        }
    }
    assert_eq!(begun, 1);
}

#[tokio::test]
async fn of_completion_and_cancel_exactly_one_wins() {
    for _ in 0..20 {
        let setup = setup().await;
        setup.start("order-1").await;
        let task = setup.task().await;
        let (host, cancelling) = (setup.host.clone(), setup.host.clone());
        let completing = tokio::spawn(async move {
            let commands = crate::setup::commands(json!([{"type": "complete_workflow"}]));
            host.workflow_tasks()
                .complete(&holder(&task), commands)
                .await
        });
        let cancelling = tokio::spawn(async move {
            cancelling
                .workflows()
                .stop(&target("order-1", None), Stop::Cancel, None)
                .await
        });
        let outcomes = (completing.await.unwrap(), cancelling.await.unwrap());
        match outcomes {
            (Ok(_), Err(lost)) => assert_eq!(lost.reason(), Reason::RunNotActive),
            (Err(lost), Ok(_)) => assert_eq!(lost.reason(), Reason::RunClosed),
            (left, right) => panic!("exactly one wins: {left:?} {right:?}"),
        }
    }
}

#[tokio::test]
async fn a_signal_follows_a_run_that_continued_as_new() {
    let setup = setup().await;
    let first = setup.start("order-1").await;
    let task = setup.task().await;
    setup
        .complete(&task, json!([{"type": "continue_as_new"}]))
        .await;
    let receipt = setup
        .host
        .workflows()
        .signal(&target("order-1", None), "more", Payload::empty_list())
        .await
        .unwrap();
    assert_ne!(receipt.run_id, first.run_id);
    let mut old = target("order-1", None);
    old.run_id = Some(first.run_id);
    let refused = setup
        .host
        .workflows()
        .signal(&old, "more", Payload::empty_list())
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), Reason::HistoricalRunCommandRejected);
}

#[tokio::test]
async fn many_repeats_of_one_request_are_one_signal() {
    let setup = setup().await;
    setup.start("order-1").await;
    let sends = (0..20).map(|_| {
        let host = setup.host.clone();
        tokio::spawn(async move {
            host.workflows()
                .signal(&target("order-1", Some("r1")), "go", Payload::empty_list())
                .await
        })
    });
    let mut fresh = 0;
    for send in sends.collect::<Vec<_>>() {
        fresh += usize::from(!send.await.unwrap().unwrap().retained);
    }
    assert_eq!(fresh, 1);
    let task = setup.task().await;
    let signals = task
        .history
        .events
        .iter()
        .filter(|event| event.event_type == "SignalReceived")
        .count();
    assert_eq!(signals, 1);
}
