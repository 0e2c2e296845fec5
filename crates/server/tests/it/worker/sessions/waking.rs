//! A poll that waits is given what a session sets free: by a close, by the end of an attempt, at lease end, when the owner is
//! lost.

use serde_json::{Value, json};

use super::{close, create, finish, in_session, outcome, schedule, seen, take, two_workers};
use crate::support::Server;

/// Polls for up to half a minute while `change` happens, and returns the response.
async fn while_waiting(
    server: &Server,
    worker_id: &str,
    change: impl Future<Output = ()>,
) -> Value {
    let waiting = server
        .worker(worker_id)
        .poll("activity", json!({"timeout_seconds": 30}));
    let (answer, ()) = tokio::join!(waiting.send(), async {
        server.polls_waiting(1).await;
        change.await;
    });
    answer.body
}

/// Like [`while_waiting`], but the poll must get a task, which is returned.
async fn woken(server: &Server, worker_id: &str, change: impl Future<Output = ()>) -> Value {
    let body = while_waiting(server, worker_id, change).await;
    assert_eq!(body["poll_status"], "leased", "{body}");
    body["task"].clone()
}

#[tokio::test]
async fn the_end_of_an_attempt_wakes_a_poll() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({})), in_session("s", json!({}))]),
    )
    .await;
    let first = take(&server, "a").await;
    let next = woken(&server, "a", finish(&server, &first)).await;
    assert_eq!(next["worker_session"]["session_id"], "s");
}

#[tokio::test]
async fn a_failed_attempt_wakes_a_poll() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({})), in_session("s", json!({}))]),
    )
    .await;
    let first = take(&server, "a").await;
    woken(&server, "a", async {
        let failure = json!({"failure": {"message": "no"}});
        crate::support::activity_report(&server, &first, "fail", failure)
            .accepted(200)
            .await;
    })
    .await;
}

#[tokio::test]
async fn a_close_that_frees_a_place_wakes_a_poll() {
    let server = two_workers().await;
    super::register(&server, "one", json!({"max_concurrent_worker_sessions": 1})).await;
    outcome(create(&server, "one", "s1", json!({})), 201, "created").await;
    schedule(&server, "wf", json!([in_session("s2", json!({}))])).await;
    let task = woken(&server, "one", async {
        outcome(close(&server, "one", "s1"), 200, "closed").await;
    })
    .await;
    assert_eq!(task["worker_session"]["session_id"], "s2");
}

#[tokio::test]
async fn creating_a_required_session_wakes_a_poll() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({"create_if_missing": false}))]),
    )
    .await;
    let task = woken(&server, "a", async {
        outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    })
    .await;
    assert_eq!(task["worker_session"]["lease_owner"], "a");
}

#[tokio::test]
async fn a_registration_with_the_requirements_wakes_a_poll() {
    let server = two_workers().await;
    let needs = json!({"requirements": ["tpu:v5"]});
    schedule(&server, "wf", json!([in_session("s", needs)])).await;
    let task = woken(&server, "b", async {
        super::register(&server, "b", json!({"capabilities": ["tpu:v5"]})).await;
    })
    .await;
    assert_eq!(task["worker_session"]["lease_owner"], "b");
}

#[tokio::test]
async fn the_end_of_a_session_lease_wakes_a_poll() {
    let server = two_workers().await;
    outcome(
        create(&server, "a", "s", json!({"lease_seconds": 20})),
        201,
        "created",
    )
    .await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    let task = woken(&server, "b", server.advance(20)).await;
    assert_eq!(task["worker_session"]["lease_owner"], "b");
}

#[tokio::test]
async fn a_stale_owner_wakes_a_poll() {
    let server = two_workers().await;
    outcome(
        create(&server, "a", "s", json!({"lease_seconds": 1000})),
        201,
        "created",
    )
    .await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    let task = woken(&server, "b", server.advance(61)).await;
    assert_eq!(task["worker_session"]["lease_owner"], "b");
    assert_eq!(seen(&server, "s").await["lease_owner"], "b");
}

#[tokio::test]
async fn a_deregistered_owner_wakes_a_poll() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    woken(&server, "b", async {
        server
            .worker_call(http::Method::DELETE, "/registrations/a")
            .accepted(200)
            .await;
    })
    .await;
}

#[tokio::test]
async fn a_new_task_wakes_only_the_holder() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let commands = json!([in_session("s", json!({}))]);
    let poll_of = |worker_id: &'static str, seconds: u64| {
        server
            .worker(worker_id)
            .poll("activity", json!({"timeout_seconds": seconds}))
            .send()
    };
    let (other, holder, ()) = tokio::join!(poll_of("b", 1), poll_of("a", 30), async {
        server.polls_waiting(2).await;
        schedule(&server, "wf", commands).await;
    });
    assert_eq!(other.body["poll_status"], "empty");
    assert_eq!(holder.body["poll_status"], "leased");
}

#[tokio::test]
async fn many_polls_of_many_workers_share_what_there_is() {
    let server = two_workers().await;
    let commands: Vec<Value> = (0..20)
        .map(|n| in_session(&format!("s{n}"), json!({})))
        .collect();
    let polls = (0..20).map(|n| {
        let worker_id = if n % 2 == 0 { "a" } else { "b" };
        server
            .worker(worker_id)
            .poll("activity", json!({"timeout_seconds": 30}))
            .send()
    });
    let (answers, _) = tokio::join!(futures::future::join_all(polls), async {
        server.polls_waiting(20).await;
        schedule(&server, "wf", json!(commands)).await
    });
    let mut sessions: Vec<String> = answers
        .iter()
        .map(|answer| {
            answer.body["task"]["worker_session"]["session_id"]
                .as_str()
                .expect("a task")
                .to_owned()
        })
        .collect();
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 20);
}
