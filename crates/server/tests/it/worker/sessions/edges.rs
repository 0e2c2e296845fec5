//! Races and failures around sessions that need no real disk; those that do are in the host's tests.

use std::sync::Arc;

use longhaul_store::Store;
use longhaul_store::memory::{Cluster, Memory};
use serde_json::{Value, json};

use super::{
    close, create, expect_status, finish, in_session, outcome, refused, register, schedule, seen,
    take, take_nothing, try_poll, two_workers,
};
use crate::support::Server;

#[tokio::test]
async fn only_one_of_two_concurrent_creates_creates_the_session() {
    let server = two_workers().await;
    let (a, b) = tokio::join!(
        create(&server, "a", "s", json!({})).send(),
        create(&server, "b", "s", json!({})).send()
    );
    let mut statuses = [a.status.as_u16(), b.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
}

#[tokio::test]
async fn only_one_of_two_concurrent_polls_gets_the_last_place() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({})), in_session("s", json!({}))]),
    )
    .await;
    let (one, two) = tokio::join!(try_poll(&server, "a"), try_poll(&server, "a"));
    let leased: Vec<&Value> = [&one.body, &two.body]
        .into_iter()
        .filter(|body| body["poll_status"] == "leased")
        .collect();
    assert_eq!(leased.len(), 1);
    finish(&server, &leased[0]["task"]).await;
    take(&server, "a").await;
}

#[tokio::test]
async fn only_one_of_two_polls_at_the_limit_creates_a_session() {
    let server = two_workers().await;
    register(&server, "one", json!({"max_concurrent_worker_sessions": 1})).await;
    schedule(
        &server,
        "wf",
        json!([in_session("s1", json!({})), in_session("s2", json!({}))]),
    )
    .await;
    let (one, two) = tokio::join!(try_poll(&server, "one"), try_poll(&server, "one"));
    let leased = [&one, &two]
        .into_iter()
        .filter(|answer| answer.body["poll_status"] == "leased");
    assert_eq!(leased.count(), 1);
}

#[tokio::test]
async fn a_close_and_an_admission_at_once_leave_no_lease_on_a_closed_session() {
    for _ in 0..20 {
        let server = two_workers().await;
        outcome(create(&server, "a", "s", json!({})), 201, "created").await;
        schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
        let (polled, closed) =
            tokio::join!(try_poll(&server, "a"), close(&server, "a", "s").send());
        assert_eq!(closed.status, 200);
        let session = seen(&server, "s").await;
        expect_status(&session, "closed", Value::Null);
        match polled.body["poll_status"].as_str() {
            Some("leased") => assert_eq!(polled.body["task"]["worker_session"]["status"], "active"),
            _ => take_nothing(&server, "a").await,
        }
    }
}

#[tokio::test]
async fn a_close_blocks_what_is_ready() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    outcome(close(&server, "a", "s"), 200, "closed").await;
    take_nothing(&server, "a").await;
    let shown = server.get("/workflows/wf/debug").accepted(200).await;
    assert_eq!(
        shown["pending_activities"][0]["session_blocked_reason"],
        "session_closed"
    );
}

#[tokio::test]
async fn a_restart_changes_nothing() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let open = || async {
        let store = Arc::clone(&store);
        Server::on_store(store).await
    };
    let server = open().await;
    register(&server, "a", json!({})).await;
    register(&server, "b", json!({})).await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({})), in_session("s", json!({}))]),
    )
    .await;
    let first = take(&server, "a").await;
    let before = seen(&server, "s").await;
    server.host.stop().await;
    let server = open().await;
    assert_eq!(seen(&server, "s").await, before);
    take_nothing(&server, "a").await;
    take_nothing(&server, "b").await;
    finish(&server, &first).await;
    take_nothing(&server, "b").await;
    take(&server, "a").await;
}

#[tokio::test]
async fn two_servers_agree_on_a_stored_session() {
    let cluster = Cluster::default();
    let open = || async { Server::on_store(Arc::new(cluster.server())).await };
    let (left, right) = (open().await, open().await);
    register(&left, "a", json!({})).await;
    register(&right, "b", json!({})).await;
    outcome(create(&left, "a", "s", json!({})), 201, "created").await;
    refused(
        create(&right, "b", "s", json!({})),
        409,
        "session_owned_by_another_worker",
    )
    .await;
    // The other server has never seen the session, and learns of it by asking.
    schedule(&left, "wf", json!([in_session("s", json!({})), {"type": "schedule_activity", "activity_type": "plain"}])).await;
    let task = take(&right, "b").await;
    assert_eq!(task["activity_type"], "plain");
    take_nothing(&right, "b").await;
    take(&left, "a").await;
}

#[tokio::test]
async fn thousands_of_blocked_tasks_delay_no_other_task() {
    let server = two_workers().await;
    outcome(
        create(&server, "a", "s", json!({"lease_seconds": 1000})),
        201,
        "created",
    )
    .await;
    for number in 0..10 {
        let commands: Vec<Value> = (0..200).map(|_| in_session("s", json!({}))).collect();
        schedule(&server, &format!("blocked-{number}"), json!(commands)).await;
    }
    let plain = json!([{"type": "schedule_activity", "activity_type": "plain"}]);
    for number in 0..50 {
        schedule(&server, &format!("plain-{number}"), plain.clone()).await;
        assert_eq!(take(&server, "b").await["activity_type"], "plain");
    }
    take_nothing(&server, "b").await;
    let first = take(&server, "a").await;
    finish(&server, &first).await;
    take(&server, "a").await;
}
