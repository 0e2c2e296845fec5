//! A poll that waits is given what a session sets free: by a close, by the end of an attempt, at lease end, when the owner is
//! lost (worker-sessions.md §7, §15.26).

use serde_json::{Value, json};

use super::{close, create, finish, in_session, outcome, schedule, seen, take, two_workers};
use crate::support::server::Server;
use crate::support::worker::poll;

/// Polls for up to half a minute while `change` happens; what came of it.
async fn while_waiting(
    server: &Server,
    worker_id: &str,
    change: impl Future<Output = ()>,
) -> Value {
    let waiting = poll(
        server,
        "activity",
        worker_id,
        json!({"timeout_seconds": 30}),
    );
    let (answer, ()) = tokio::join!(waiting.send(), async {
        // The poll is in line before anything happens.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        change.await;
    });
    answer.body
}

/// As [`while_waiting`], and the task must have come.
async fn woken(server: &Server, worker_id: &str, change: impl Future<Output = ()>) -> Value {
    let body = while_waiting(server, worker_id, change).await;
    assert_eq!(body["poll_status"], "leased", "{body}");
    body["task"].clone()
}

#[tokio::test]
async fn by_the_end_of_an_attempt() {
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
async fn by_a_failed_attempt() {
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
        crate::support::worker::activity_report(&server, &first, "fail", failure)
            .accepted(200)
            .await;
    })
    .await;
}

#[tokio::test]
async fn by_a_close_that_makes_room_for_another_session() {
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
async fn by_a_create_of_what_must_exist() {
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
async fn by_a_registration_with_what_is_required() {
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
async fn at_lease_end() {
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
async fn when_the_owner_falls_silent() {
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
async fn when_the_owner_leaves() {
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
async fn by_a_new_task_only_the_holder() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let commands = json!([in_session("s", json!({}))]);
    let poll_of = |worker_id: &'static str, seconds: u64| {
        poll(
            &server,
            "activity",
            worker_id,
            json!({"timeout_seconds": seconds}),
        )
        .send()
    };
    let (other, holder, ()) = tokio::join!(poll_of("b", 1), poll_of("a", 30), async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
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
        poll(
            &server,
            "activity",
            worker_id,
            json!({"timeout_seconds": 30}),
        )
        .send()
    });
    let (answers, _) = tokio::join!(futures::future::join_all(polls), async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
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
