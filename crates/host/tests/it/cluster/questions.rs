//! Questions that are asked at one server and answered at another.

use longhaul_host::{
    Error, Host, LeasedQuestion, Polled, Queried, QueryResult, QuestionFailure, QuestionHolder,
    QuestionRefusal, Result,
};
use longhaul_protocol::Payload;
use longhaul_store::memory::Delivery;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{DELIVERIES, Servers, servers, settle};
use crate::setup::{leased, namespace, poll_of, registration};

async fn ready(servers: &Servers) {
    let mut worker = registration("w1");
    worker.capabilities = vec!["query_tasks".to_owned()];
    servers
        .first
        .workers()
        .register(worker.clone())
        .await
        .unwrap();
    servers.second.workers().register(worker).await.unwrap();
    servers.start("order-1").await;
    settle(servers).await;
}

fn ask(host: &Host) -> JoinHandle<Result<Queried>> {
    let host = host.clone();
    tokio::spawn(async move {
        let workflow_id = "order-1".into();
        host.queries()
            .ask(
                &namespace(),
                &workflow_id,
                None,
                "state",
                Payload::empty_list(),
            )
            .await
    })
}

/// Polls for a query in the background.
fn poll_queries(host: &Host) -> JoinHandle<Result<Polled<LeasedQuestion>>> {
    let host = host.clone();
    tokio::spawn(async move { host.queries().poll(&poll_of("w1", None, 60)).await })
}

fn holder(question: &LeasedQuestion) -> QuestionHolder {
    QuestionHolder {
        namespace: namespace(),
        task_id: question.task_id.clone(),
        owner: question.lease.owner.clone(),
        attempt: question.lease.attempt,
    }
}

fn result() -> QueryResult {
    QueryResult {
        shown: json!("paid"),
        envelope: Payload::empty_list(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_is_asked_here_leased_there_and_answered_anywhere() {
    for delivery in DELIVERIES {
        for answers_at_first in [true, false] {
            let servers = servers(delivery).await;
            ready(&servers).await;
            let polling = poll_queries(&servers.second);
            settle(&servers).await;
            let asked = ask(&servers.first);
            settle(&servers).await;
            let question = leased(polling.await.unwrap());
            assert_eq!(question.name, "state");
            let host = if answers_at_first {
                &servers.first
            } else {
                &servers.second
            };
            let holder = holder(&question);
            assert!(!host.queries().complete(&holder, result()).await.unwrap());
            settle(&servers).await;
            let answer = asked.await.unwrap().unwrap();
            assert_eq!(answer.result.shown, json!("paid"), "{delivery:?}");
            settle(&servers).await;
            // A report that is repeated anywhere is the same; another one is refused.
            for host in [&servers.first, &servers.second] {
                assert!(host.queries().complete(&holder, result()).await.unwrap());
                let failed = QuestionFailure::default();
                let refused = host.queries().fail(&holder, failed).await.unwrap_err();
                assert!(
                    matches!(
                        refused,
                        Error::Question {
                            refusal: QuestionRefusal::Answered,
                            ..
                        }
                    ),
                    "{refused:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_is_leased_where_it_was_asked_is_answered_anywhere() {
    for delivery in DELIVERIES {
        let servers = servers(delivery).await;
        ready(&servers).await;
        let polling = poll_queries(&servers.first);
        settle(&servers).await;
        let asked = ask(&servers.first);
        settle(&servers).await;
        let question = leased(polling.await.unwrap());
        let held = servers.second.queries().status(&holder(&question)).await;
        assert!(held.unwrap().refusal.is_none());
        let holder = holder(&question);
        let completed = servers.second.queries().complete(&holder, result()).await;
        assert!(!completed.unwrap());
        settle(&servers).await;
        assert!(asked.await.unwrap().is_ok(), "{delivery:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_servers_leases_a_query() {
    let servers = servers(Delivery::AtOnce).await;
    ready(&servers).await;
    let asked = ask(&servers.first);
    settle(&servers).await;
    let poll = poll_of("w1", None, 0);
    let mut found = 0;
    for host in [&servers.second, &servers.first] {
        let polled = host.queries().poll(&poll).await;
        found += usize::from(super::is_leased(&polled));
    }
    assert_eq!(found, 1);
    asked.abort();
}

#[tokio::test(start_paused = true)]
async fn a_query_ends_everywhere_when_its_caller_leaves() {
    let servers = servers(Delivery::AtOnce).await;
    ready(&servers).await;
    let asked = ask(&servers.first);
    settle(&servers).await;
    asked.abort();
    let _ = asked.await;
    settle(&servers).await;
    let polled = servers.second.queries().poll(&poll_of("w1", None, 0)).await;
    assert!(!super::is_leased(&polled));
}

#[tokio::test(start_paused = true)]
async fn the_query_of_a_worker_that_leaves_goes_to_the_next() {
    let servers = servers(Delivery::AtOnce).await;
    ready(&servers).await;
    let mut other = registration("w2");
    other.capabilities = vec!["query_tasks".to_owned()];
    servers.second.workers().register(other).await.unwrap();
    let polling = poll_queries(&servers.second);
    settle(&servers).await;
    let asked = ask(&servers.first);
    settle(&servers).await;
    leased(polling.await.unwrap());
    servers
        .second
        .workers()
        .deregister(&namespace(), &"w1".into())
        .await
        .unwrap();
    settle(&servers).await;
    let question = leased(
        servers
            .second
            .queries()
            .poll(&poll_of("w2", None, 30))
            .await,
    );
    assert_eq!(question.lease.attempt, 2);
    let holder = holder(&question);
    servers
        .first
        .queries()
        .complete(&holder, result())
        .await
        .unwrap();
    assert!(asked.await.unwrap().is_ok());
}
