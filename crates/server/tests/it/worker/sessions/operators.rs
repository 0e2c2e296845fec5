//! Sessions as operators see them.

use serde_json::{Value, json};

use super::{check, close, create, in_session, outcome, register, schedule, take, two_workers};
use crate::support::{Server, texts};

/// One session of each status: `active`, `closed`, `expired`, `failed` and `orphaned` are their ids too.
async fn one_of_each() -> Server {
    let server = two_workers().await;
    register(&server, "c", json!({"process_metrics": {"process_id": 1}})).await;
    outcome(
        create(&server, "a", "expired", json!({"lease_seconds": 1})),
        201,
        "created",
    )
    .await;
    outcome(create(&server, "a", "closed", json!({})), 201, "created").await;
    outcome(close(&server, "a", "closed"), 200, "closed").await;
    outcome(create(&server, "c", "failed", json!({})), 201, "created").await;
    register(&server, "c", json!({"process_metrics": {"process_id": 2}})).await;
    outcome(
        create(
            &server,
            "b",
            "orphaned",
            json!({"requirements": ["gpu:nvidia-l4"]}),
        ),
        201,
        "created",
    )
    .await;
    server
        .worker_call(http::Method::DELETE, "/registrations/b")
        .accepted(200)
        .await;
    server.advance(1).await;
    outcome(create(&server, "a", "active", json!({})), 201, "created").await;
    server
}

#[tokio::test]
async fn every_status_is_listed_counted_and_shown() {
    let server = one_of_each().await;
    let list = server.get("/worker-sessions").accepted(200).await;
    check(&list, "workerSessionVisibility");
    assert_eq!(list["next_page_token"], Value::Null);
    assert_eq!(
        list["metrics"],
        json!({"total": 5, "active": 1, "closed": 1, "expired": 1, "failed": 1, "orphaned": 1})
    );
    // Newest change first, then by id.
    assert_eq!(
        texts(&list["sessions"], "session_id"),
        ["active", "expired", "closed", "failed", "orphaned"]
    );
    for session in list["sessions"].as_array().expect("sessions") {
        assert_eq!(session["session_id"], session["status"], "{session}");
        check(session, "workerSessionSnapshot");
    }
    let metrics = server.get("/system/operator-metrics").accepted(200).await;
    assert_eq!(
        metrics["operator_metrics"]["worker_sessions"],
        list["metrics"]
    );
    assert_eq!(metrics["namespace"], "default");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let server = one_of_each().await;
    let ids = |query: &'static str| {
        let server = &server;
        async move {
            let list = server
                .get(&format!("/worker-sessions?{query}"))
                .accepted(200)
                .await;
            texts(&list["sessions"], "session_id").join(" ")
        }
    };
    for status in ["active", "closed", "expired", "failed", "orphaned"] {
        let list = server
            .get(&format!("/worker-sessions?status={status}"))
            .accepted(200)
            .await;
        assert_eq!(texts(&list["sessions"], "session_id"), [status]);
        assert_eq!(list["metrics"]["total"], 5);
    }
    assert_eq!(ids("worker_id=a").await, "active expired closed");
    assert_eq!(ids("queue=none").await, "");
    assert_eq!(ids("queue=default&worker_id=c").await, "failed");
    let mut found = Vec::new();
    let mut path = "/worker-sessions?page_size=2".to_owned();
    loop {
        let page = server.get(&path).accepted(200).await;
        found.extend(
            texts(&page["sessions"], "session_id")
                .into_iter()
                .map(str::to_owned),
        );
        match page["next_page_token"].as_str() {
            Some(token) => path = format!("/worker-sessions?page_size=2&next_page_token={token}"),
            None => break,
        }
    }
    assert_eq!(found, ["active", "expired", "closed", "failed", "orphaned"]);
    for (query, field) in [
        ("status=open", "status"),
        ("page_size=0", "page_size"),
        ("page_size=1001", "page_size"),
        ("next_page_token=zz", "next_page_token"),
    ] {
        let fields = server
            .get(&format!("/worker-sessions?{query}"))
            .invalid()
            .await;
        assert_eq!(fields, [field]);
    }
}

#[tokio::test]
async fn sessions_are_for_operators_and_metrics_for_administrators() {
    let server = Server::guarded().await;
    for path in ["/worker-sessions", "/worker-sessions/s"] {
        server.get(path).refused(401, "unauthorized").await;
        server.get(path).token("w").refused(403, "forbidden").await;
    }
    server
        .get("/worker-sessions")
        .token("o")
        .accepted(200)
        .await;
    server
        .get("/system/operator-metrics")
        .token("o")
        .refused(403, "forbidden")
        .await;
    server
        .get("/system/operator-metrics")
        .token("a")
        .accepted(200)
        .await;
    let call = server.get("/worker-sessions/s").token("o");
    let body = call.refused(404, "worker_session_not_found").await;
    assert_eq!(body["session_id"], "s");
    server
        .post("/worker-sessions", &json!({}))
        .token("o")
        .refused(405, "method_not_allowed")
        .await;
}

#[tokio::test]
async fn a_workers_places_for_sessions_are_shown() {
    let server = two_workers().await;
    let slots = json!({"session_available": 2, "session_capacity": 3});
    register(
        &server,
        "c",
        json!({"max_concurrent_worker_sessions": 3, "task_slots": slots}),
    )
    .await;
    let shown = server.get("/workers/c").accepted(200).await;
    assert_eq!(shown["max_concurrent_worker_sessions"], 3);
    assert_eq!(
        (
            &shown["task_slots"]["session_available"],
            &shown["task_slots"]["session_capacity"]
        ),
        (&json!(2), &json!(3))
    );
    let shown = server.get("/workers/a").accepted(200).await;
    assert_eq!(shown["max_concurrent_worker_sessions"], 10);
}

#[tokio::test]
async fn session_changes_are_counted() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({})), in_session("s", json!({}))]),
    )
    .await;
    take(&server, "a").await;
    super::refused(
        create(&server, "b", "s", json!({})),
        409,
        "session_owned_by_another_worker",
    )
    .await;
    outcome(close(&server, "a", "s"), 200, "closed").await;
    let mut registry = prometheus_client::registry::Registry::default();
    server.host.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    for line in [
        r#"longhaul_worker_sessions_total{kind="created"} 1"#,
        r#"longhaul_worker_sessions_total{kind="closed"} 1"#,
        r#"longhaul_worker_session_refusals_total{kind="session_owned_by_another_worker"} 1"#,
        "longhaul_session_tasks_blocked 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn ended_sessions_are_deleted_after_their_retention() {
    let server = two_workers().await;
    server
        .call(http::Method::PUT, "/namespaces/default")
        .json(&json!({"retention_days": 1}))
        .accepted(200)
        .await;
    outcome(create(&server, "a", "closed", json!({})), 201, "created").await;
    outcome(close(&server, "a", "closed"), 200, "closed").await;
    let long = json!({"ttl_seconds": 86_400 * 90, "lease_seconds": 60});
    outcome(create(&server, "a", "lapsed", long), 201, "created").await;
    outcome(create(&server, "a", "ended", json!({})), 201, "created").await;
    server.advance(86_400 * 29).await;
    super::seen(&server, "closed").await;
    // A month at least, however short runs are kept; what may still be taken over stays.
    server.advance(86_400 * 2).await;
    super::is_unknown(&server, "closed").await;
    super::is_unknown(&server, "ended").await;
    super::expect_status(
        &super::seen(&server, "lapsed").await,
        "expired",
        json!("lease_expired"),
    );
}
