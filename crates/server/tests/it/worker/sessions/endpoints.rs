//! Create, heartbeat and close by name: every answer and every refusal.

use serde_json::{Value, json};

use super::{
    beat, check, close, create, expect_status, outcome, refused, register, schedule, seen, take,
    two_workers,
};
use crate::support::Server;

#[tokio::test]
async fn a_created_session_is_answered_in_full() {
    let server = two_workers().await;
    let call = create(
        &server,
        "a",
        "gpu-render",
        json!({"queue": "default", "requirements": ["gpu:nvidia-l4"], "connection": "c"}),
    );
    let body = call.accepted(201).await;
    check(&body, "workerSessionOperationResult");
    assert_eq!(body["activity_task_id"], Value::Null);
    assert_eq!(
        body["session"],
        json!({
            "session_id": "gpu-render", "namespace": "default", "connection": "c", "queue": "default",
            "requirements": ["gpu:nvidia-l4"], "status": "active", "lease_owner": "a",
            "holder": {"worker_id": "a", "task_queue": "default", "status": "active",
                       "last_heartbeat_at": "2026-01-01T00:00:00.000000Z", "is_stale": false},
            "lease_expires_at": "2026-01-01T00:02:00.000000Z", "ttl_expires_at": "2026-01-01T00:30:00.000000Z",
            "closed_at": null, "failure_reason": null, "lease_seconds": 120, "ttl_seconds": 1800,
            "max_concurrent_activities": 1, "create_if_missing": true, "allow_reacquire_after_failure": true,
            "active_activity_count": 0, "last_heartbeat_at": "2026-01-01T00:00:00.000000Z",
            "created_at": "2026-01-01T00:00:00.000000Z", "updated_at": "2026-01-01T00:00:00.000000Z",
        })
    );
    assert_eq!(seen(&server, "gpu-render").await, body["session"]);
}

#[tokio::test]
async fn a_repeated_create_of_the_owner_keeps_the_absolute_end() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    server.advance(10).await;
    let said = json!({"lease_seconds": 300, "ttl_seconds": 5, "max_concurrent_activities": 4});
    let session = outcome(create(&server, "a", "s", said), 200, "reused").await;
    assert_eq!(session["lease_expires_at"], "2026-01-01T00:05:10.000000Z");
    assert_eq!(session["ttl_expires_at"], "2026-01-01T00:30:00.000000Z");
    assert_eq!(session["max_concurrent_activities"], 4);
    assert_eq!(session["ttl_seconds"], 5);
}

#[tokio::test]
async fn another_worker_is_refused_with_the_holder() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let call = create(&server, "b", "s", json!({}));
    let body = refused(call, 409, "session_owned_by_another_worker").await;
    assert_eq!(body["session"]["lease_owner"], "a");
}

#[tokio::test]
async fn every_malformed_create_names_its_field() {
    let server = two_workers().await;
    for (field, wrong) in [
        ("worker_id", json!(null)),
        ("session_id", json!(null)),
        ("session_id", json!(7)),
        ("session_id", json!("x".repeat(256))),
        ("queue", json!("")),
        ("connection", json!(1)),
        ("requirements", json!("gpu")),
        ("requirements.1", json!(["gpu", " "])),
        ("lease_seconds", json!(0)),
        ("ttl_seconds", json!("1")),
        ("max_concurrent_activities", json!(-1)),
        ("create_if_missing", json!("yes")),
        ("allow_reacquire_after_failure", json!(0)),
    ] {
        let key = field.split('.').next().expect("a name");
        let call = create(&server, "a", "s", json!({key: wrong}));
        assert_eq!(call.invalid().await, [field], "{wrong}");
    }
    for blank in ["", "  ", "\t"] {
        let call = create(&server, "a", blank, json!({}));
        refused(call, 422, "invalid_worker_session").await;
    }
    super::is_unknown(&server, "s").await;
}

#[tokio::test]
async fn an_id_is_trimmed_once() {
    let server = two_workers().await;
    let session = outcome(create(&server, "a", "  s ", json!({})), 201, "created").await;
    assert_eq!(session["session_id"], "s");
    outcome(close(&server, "a", "s"), 200, "closed").await;
}

#[tokio::test]
async fn an_unregistered_worker_creates_nothing() {
    let server = two_workers().await;
    let call = create(&server, "unknown", "s", json!({}));
    let body = refused(call, 412, "worker_not_registered").await;
    assert_eq!(body["worker_id"], "unknown");
}

#[tokio::test]
async fn the_queue_must_be_the_workers() {
    let server = two_workers().await;
    let call = create(
        &server,
        "a",
        "s",
        json!({"queue": "other", "requirements": ["none"]}),
    );
    let body = refused(call, 409, "session_queue_mismatch").await;
    assert_eq!(
        (
            &body["worker_id"],
            &body["registered_task_queue"],
            &body["requested_session_queue"]
        ),
        (&json!("a"), &json!("default"), &json!("other"))
    );
}

#[tokio::test]
async fn requirements_must_be_registered_exactly() {
    let server = two_workers().await;
    for wanted in [
        "gpu:NVIDIA-L4",
        "gpu",
        "gpu:nvidia-l4-b",
        "fs:/mnt/models",
        "zone:us-east-1a",
    ] {
        let said = json!({"requirements": ["gpu:nvidia-l4", wanted]});
        let call = create(&server, "a", "s", said);
        let body = refused(call, 409, "session_requirements_not_met").await;
        assert_eq!(body["missing_requirements"], json!([wanted]));
    }
    register(
        &server,
        "c",
        json!({"capabilities": [" fs:/mnt/models ", "zone:us-east-1a", "gpu:a100"]}),
    )
    .await;
    let said =
        json!({"requirements": ["zone:us-east-1a", "fs:/mnt/models", "gpu:a100", "gpu:a100"]});
    let session = outcome(create(&server, "c", "s", said), 201, "created").await;
    assert_eq!(
        session["requirements"],
        json!(["zone:us-east-1a", "fs:/mnt/models", "gpu:a100"])
    );
}

#[tokio::test]
async fn a_missing_session_is_not_created_where_it_must_exist() {
    let server = two_workers().await;
    let call = create(&server, "a", "s", json!({"create_if_missing": false}));
    refused(call, 409, "session_missing").await;
    super::is_unknown(&server, "s").await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let call = create(&server, "a", "s", json!({"create_if_missing": false}));
    outcome(call, 200, "reused").await;
}

#[tokio::test]
async fn a_worker_holds_as_many_as_it_registered() {
    let server = two_workers().await;
    register(&server, "one", json!({"max_concurrent_worker_sessions": 1})).await;
    outcome(create(&server, "one", "s1", json!({})), 201, "created").await;
    let body = refused(
        create(&server, "one", "s2", json!({})),
        409,
        "worker_session_limit_exceeded",
    )
    .await;
    assert_eq!(body["max_concurrent_worker_sessions"], 1);
    outcome(create(&server, "one", "s1", json!({})), 200, "reused").await;
    outcome(close(&server, "one", "s1"), 200, "closed").await;
    outcome(create(&server, "one", "s2", json!({})), 201, "created").await;
    // The default is ten.
    for number in 0..10 {
        let id = format!("many-{number}");
        outcome(create(&server, "a", &id, json!({})), 201, "created").await;
    }
    let call = create(&server, "a", "many-10", json!({}));
    refused(call, 409, "worker_session_limit_exceeded").await;
}

#[tokio::test]
async fn a_heartbeat_renews_the_lease_and_nothing_else() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    server.advance(30).await;
    let session = outcome(
        beat(&server, "a", "s", json!({})),
        200,
        "heartbeat_recorded",
    )
    .await;
    assert_eq!(session["lease_expires_at"], "2026-01-01T00:02:30.000000Z");
    assert_eq!(session["last_heartbeat_at"], "2026-01-01T00:00:30.000000Z");
    // A shorter lease never moves the end back, a longer one never past the absolute end.
    let short = json!({"lease_seconds": 1});
    let session = outcome(beat(&server, "a", "s", short), 200, "heartbeat_recorded").await;
    assert_eq!(session["lease_expires_at"], "2026-01-01T00:02:30.000000Z");
    let long = json!({"lease_seconds": 9000});
    let session = outcome(beat(&server, "a", "s", long), 200, "heartbeat_recorded").await;
    assert_eq!(session["lease_expires_at"], "2026-01-01T00:30:00.000000Z");
    assert_eq!(session["lease_seconds"], 120);
}

#[tokio::test]
async fn a_heartbeat_checks_existence_then_status_then_owner() {
    let server = two_workers().await;
    refused(beat(&server, "a", "s", json!({})), 404, "session_not_found").await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let body = refused(
        beat(&server, "b", "s", json!({})),
        409,
        "session_owner_mismatch",
    )
    .await;
    assert_eq!(body["session"]["lease_owner"], "a");
    outcome(close(&server, "a", "s"), 200, "closed").await;
    let body = refused(
        beat(&server, "b", "s", json!({})),
        409,
        "session_not_active",
    )
    .await;
    assert_eq!(body["session"]["status"], "closed");
    for wrong in [json!({"worker_id": 7}), json!({"lease_seconds": 0})] {
        let fields = beat(&server, "a", "s", wrong.clone()).invalid().await;
        assert_eq!(fields.len(), 1, "{wrong}");
    }
}

#[tokio::test]
async fn a_close_is_final_and_may_be_repeated() {
    let server = two_workers().await;
    refused(close(&server, "a", "s"), 404, "session_not_found").await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    refused(close(&server, "b", "s"), 409, "session_owner_mismatch").await;
    server.advance(5).await;
    let session = outcome(close(&server, "a", "s"), 200, "closed").await;
    expect_status(&session, "closed", Value::Null);
    assert_eq!(session["closed_at"], "2026-01-01T00:00:05.000000Z");
    assert_eq!(session["lease_owner"], "a");
    server.advance(5).await;
    let again = outcome(close(&server, "a", "s"), 200, "already_closed").await;
    assert_eq!(again["closed_at"], session["closed_at"]);
    refused(close(&server, "b", "s"), 409, "session_owner_mismatch").await;
    for worker_id in ["a", "b"] {
        let call = create(&server, worker_id, "s", json!({}));
        let body = refused(call, 409, "session_closed").await;
        assert_eq!(body["session"]["status"], "closed");
    }
    // The reason may have any shape; the worker id may not.
    outcome(create(&server, "a", "t", json!({})), 201, "created").await;
    let odd = json!({"worker_id": "a", "reason": {"signal": 15}});
    let call = server.worker_call(http::Method::DELETE, "/sessions/t");
    outcome(call.json(&odd), 200, "closed").await;
    let call = server.worker_call(http::Method::DELETE, "/sessions/t");
    assert_eq!(call.json(&json!({})).invalid().await, ["worker_id"]);
    let call = server.worker_call(http::Method::DELETE, "/sessions/t");
    assert_eq!(call.invalid().await, ["worker_id"]);
}

#[tokio::test]
async fn any_text_is_an_id() {
    let server = two_workers().await;
    for id in [
        "a/b",
        "100%",
        "a b",
        "ключ/キー",
        "%2F",
        "..",
        "a?b#c",
        &"é".repeat(255),
    ] {
        outcome(create(&server, "a", id, json!({})), 201, "created").await;
        let session = outcome(beat(&server, "a", id, json!({})), 200, "heartbeat_recorded").await;
        assert_eq!(session["session_id"], id);
        assert_eq!(seen(&server, id).await["session_id"], id);
        outcome(close(&server, "a", id), 200, "closed").await;
        assert_eq!(seen(&server, id).await["status"], "closed");
    }
}

#[tokio::test]
async fn a_draining_worker_begins_nothing_and_may_still_end_what_it_holds() {
    let server = Server::open().await;
    register(&server, "a", json!({"build_id": "b1"})).await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    server
        .post(
            "/task-queues/default/build-ids/drain",
            &json!({"build_id": "b1"}),
        )
        .accepted(200)
        .await;
    let body = create(&server, "a", "t", json!({}))
        .refused(409, "worker_draining")
        .await;
    // Its reason is not among those of the published result, so it has the ordinary shape.
    assert!(body.get("admitted").is_none(), "{body}");
    outcome(
        beat(&server, "a", "s", json!({})),
        200,
        "heartbeat_recorded",
    )
    .await;
    outcome(close(&server, "a", "s"), 200, "closed").await;
}

#[tokio::test]
async fn the_oldest_protocol_has_sessions_and_the_gates_come_first() {
    let server = two_workers().await;
    let call = create(&server, "a", "s", json!({})).protocol(Some("1.0"));
    outcome(call, 201, "created").await;
    let call = create(&server, "a", "s", json!({})).protocol(None);
    call.refused(400, "missing_protocol_version").await;
    let call = create(&server, "a", "s", json!({})).namespace("nowhere");
    call.refused(404, "namespace_not_found").await;
    let guarded = Server::guarded().await;
    for token in [None, Some("o")] {
        let call = create(&guarded, "a", "s", json!({}));
        match token {
            None => call.refused(401, "unauthorized").await,
            Some(token) => call.token(token).refused(403, "forbidden").await,
        };
    }
    let large = "x".repeat(17 << 20);
    let call = create(&server, "a", "s", json!({"connection": large}));
    call.refused(413, "payload_too_large").await;
}

#[tokio::test]
async fn namespaces_share_nothing() {
    let server = two_workers().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    let body = json!({"worker_id": "b", "task_queue": "default", "runtime": "python"});
    server
        .worker_post("/register", &body)
        .namespace("other")
        .accepted(201)
        .await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let call = create(&server, "b", "s", json!({})).namespace("other");
    let session = outcome(call, 201, "created").await;
    assert_eq!(session["namespace"], "other");
    outcome(close(&server, "b", "s").namespace("other"), 200, "closed").await;
    expect_status(&seen(&server, "s").await, "active", Value::Null);
    let list = server
        .get("/worker-sessions")
        .namespace("other")
        .accepted(200)
        .await;
    assert_eq!(list["metrics"]["total"], 1);
    assert_eq!(list["sessions"][0]["lease_owner"], "b");
}

#[tokio::test]
async fn an_explicit_create_ignores_the_activity_limit() {
    let server = two_workers().await;
    schedule(&server, "wf", json!([super::in_session("s", json!({}))])).await;
    take(&server, "a").await;
    let session = outcome(create(&server, "a", "s", json!({})), 200, "reused").await;
    assert_eq!(session["active_activity_count"], 1);
}

#[tokio::test]
async fn the_contract_is_advertised_and_has_the_published_shape() {
    let server = two_workers().await;
    let info = server.get("/cluster/info").accepted(200).await;
    let answer = create(&server, "a", "s", json!({})).accepted(201).await;
    for capabilities in [
        &info["worker_protocol"]["server_capabilities"],
        &answer["server_capabilities"],
    ] {
        check(
            &capabilities["worker_sessions"],
            "workerSessionRuntimeContract",
        );
        assert_eq!(
            capabilities["worker_session_verbs"],
            json!(["create", "heartbeat", "close"])
        );
        assert_eq!(capabilities["worker_sessions"]["supported"], true);
        assert_eq!(
            capabilities["worker_sessions"]["minimum_protocol_version"],
            "1.0"
        );
    }
}
