//! Leases, lost holders and heartbeats of activities in sessions.

use serde_json::{Value, json};

use super::{
    beat, check, close, create, expect_status, finish, in_session, outcome, refused, register,
    schedule, seen, take, take_nothing, two_workers,
};
use crate::support::{Server, activity_report, history, stop, types};

async fn heard(server: &Server, worker_id: &str) {
    server
        .worker_post("/heartbeat", &json!({"worker_id": worker_id}))
        .accepted(200)
        .await;
}

/// Advances the clock while these workers keep sending heartbeats.
async fn pass(server: &Server, seconds: u64, alive: &[&str]) {
    for _ in 0..seconds / 30 {
        server.advance(30).await;
        for worker_id in alive {
            heard(server, worker_id).await;
        }
    }
    server.advance(seconds % 30).await;
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_and_another_worker_takes_over() {
    let server = two_workers().await;
    let created = outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    pass(&server, 119, &["a", "b"]).await;
    refused(
        create(&server, "b", "s", json!({})),
        409,
        "session_owned_by_another_worker",
    )
    .await;
    server.advance(1).await;
    let session = seen(&server, "s").await;
    expect_status(&session, "expired", json!("lease_expired"));
    assert_eq!(session["lease_owner"], "a");
    refused(
        beat(&server, "a", "s", json!({})),
        409,
        "session_not_active",
    )
    .await;
    let taken = outcome(create(&server, "b", "s", json!({})), 200, "reacquired").await;
    assert_eq!(taken["lease_owner"], "b");
    assert_eq!(taken["ttl_expires_at"], created["ttl_expires_at"]);
    refused(
        beat(&server, "a", "s", json!({})),
        409,
        "session_owner_mismatch",
    )
    .await;
    refused(close(&server, "a", "s"), 409, "session_owner_mismatch").await;
}

#[tokio::test]
async fn renewals_never_pass_the_absolute_end() {
    let server = two_workers().await;
    let said = json!({"lease_seconds": 9000, "ttl_seconds": 100});
    let created = outcome(create(&server, "a", "s", said), 201, "created").await;
    assert_eq!(created["lease_expires_at"], created["ttl_expires_at"]);
    pass(&server, 90, &["a", "b"]).await;
    outcome(
        beat(&server, "a", "s", json!({})),
        200,
        "heartbeat_recorded",
    )
    .await;
    server.advance(10).await;
    expect_status(&seen(&server, "s").await, "expired", json!("ttl_expired"));
    for worker_id in ["a", "b"] {
        let call = create(&server, worker_id, "s", json!({}));
        refused(call, 409, "session_reacquire_disallowed").await;
    }
    // Its last owner may still close it, which is as final.
    let closed = outcome(close(&server, "a", "s"), 200, "closed").await;
    expect_status(&closed, "closed", Value::Null);
}

#[tokio::test]
async fn a_silent_owner_loses_its_session_though_the_lease_is_long() {
    let server = two_workers().await;
    outcome(
        create(&server, "a", "s", json!({"lease_seconds": 1000})),
        201,
        "created",
    )
    .await;
    pass(&server, 60, &["b"]).await;
    expect_status(&seen(&server, "s").await, "active", Value::Null);
    server.advance(1).await;
    let session = seen(&server, "s").await;
    expect_status(&session, "orphaned", json!("worker_heartbeat_stale"));
    assert_eq!(
        (&session["holder"]["is_stale"], &session["holder"]["status"]),
        (&json!(true), &json!("stale"))
    );
    // The owner comes back. The session stays lost until a worker takes it over.
    heard(&server, "a").await;
    expect_status(
        &seen(&server, "s").await,
        "orphaned",
        json!("worker_heartbeat_stale"),
    );
    refused(
        beat(&server, "a", "s", json!({})),
        409,
        "session_not_active",
    )
    .await;
    outcome(create(&server, "a", "s", json!({})), 200, "reacquired").await;
}

#[tokio::test]
async fn a_worker_that_leaves_orphans_its_sessions_at_once() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({})), in_session("s", json!({}))]),
    )
    .await;
    let first = take(&server, "b").await;
    finish(&server, &first).await;
    server
        .worker_call(http::Method::DELETE, "/registrations/b")
        .accepted(200)
        .await;
    let session = seen(&server, "s").await;
    expect_status(&session, "orphaned", json!("worker_heartbeat_stale"));
    assert_eq!(
        session["holder"],
        json!({"worker_id": "b", "task_queue": null, "status": null, "last_heartbeat_at": null, "is_stale": true})
    );
    let task = take(&server, "a").await;
    assert_eq!(task["worker_session"]["lease_owner"], "a");
}

#[tokio::test]
async fn another_process_under_the_same_id_finds_its_sessions_failed() {
    let server = two_workers().await;
    let process = |id: u64| json!({"process_metrics": {"process_id": id}});
    register(&server, "c", process(1)).await;
    outcome(create(&server, "c", "s", json!({})), 201, "created").await;
    register(&server, "c", process(1)).await;
    expect_status(&seen(&server, "s").await, "active", Value::Null);
    register(&server, "c", json!({})).await;
    expect_status(&seen(&server, "s").await, "active", Value::Null);
    register(&server, "c", process(1)).await;
    register(&server, "c", process(2)).await;
    expect_status(&seen(&server, "s").await, "failed", Value::Null);
    refused(
        beat(&server, "c", "s", json!({})),
        409,
        "session_not_active",
    )
    .await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    let task = take(&server, "c").await;
    assert_eq!(task["worker_session"]["status"], "active");
}

#[tokio::test]
async fn a_stale_registration_that_is_renewed_finds_its_sessions_failed() {
    let server = two_workers().await;
    let long = json!({"lease_seconds": 1000});
    outcome(create(&server, "a", "s", long), 201, "created").await;
    // The owner is stale, and nothing looked since.
    server.clock.advance_seconds(61);
    register(&server, "a", json!({})).await;
    let status = seen(&server, "s").await["status"].clone();
    assert!(status == "failed" || status == "orphaned", "{status}");
    outcome(create(&server, "a", "s", json!({})), 200, "reacquired").await;
}

#[tokio::test]
async fn a_session_that_forbids_reacquiring_is_not_taken_over() {
    let server = two_workers().await;
    let strict = json!({"allow_reacquire_after_failure": false});
    outcome(create(&server, "a", "s", strict.clone()), 201, "created").await;
    outcome(create(&server, "a", "t", json!({})), 201, "created").await;
    outcome(
        create(
            &server,
            "a",
            "u",
            json!({"lease_seconds": 1000, "allow_reacquire_after_failure": false}),
        ),
        201,
        "created",
    )
    .await;
    pass(&server, 120, &["b"]).await;
    expect_status(
        &seen(&server, "u").await,
        "orphaned",
        json!("worker_heartbeat_stale"),
    );
    for (id, said) in [("s", json!({})), ("t", strict), ("u", json!({}))] {
        let call = create(&server, "b", id, said);
        let body = refused(call, 409, "session_reacquire_disallowed").await;
        assert_eq!(body["session"]["lease_owner"], "a");
    }
    register(&server, "a", json!({})).await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    take_nothing(&server, "a").await;
    take_nothing(&server, "b").await;
}

#[tokio::test]
async fn a_session_can_be_taken_over_until_its_absolute_end() {
    let server = two_workers().await;
    let said = json!({"ttl_seconds": 100, "lease_seconds": 30});
    outcome(create(&server, "a", "s", said), 201, "created").await;
    pass(&server, 99, &["a", "b"]).await;
    let taken = outcome(create(&server, "b", "s", json!({})), 200, "reacquired").await;
    assert_eq!(taken["lease_expires_at"], taken["ttl_expires_at"]);
    assert_eq!(taken["ttl_expires_at"], "2026-01-01T00:01:40.000000Z");
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    server.advance(1).await;
    take_nothing(&server, "b").await;
    refused(
        create(&server, "b", "s", json!({})),
        409,
        "session_reacquire_disallowed",
    )
    .await;
}

#[tokio::test]
async fn a_heartbeat_of_the_activity_renews_both_leases() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({"lease_seconds": 60}))]),
    )
    .await;
    let task = take(&server, "a").await;
    server.advance(30).await;
    let pulse = activity_report(&server, &task, "heartbeat", json!({"details": 1}))
        .accepted(200)
        .await;
    check(&pulse["worker_session"], "workerSessionTaskAffinity");
    assert_eq!(
        (
            &pulse["can_continue"],
            &pulse["heartbeat_recorded"],
            &pulse["cancel_requested"],
            &pulse["reason"]
        ),
        (&json!(true), &json!(true), &json!(false), &Value::Null)
    );
    assert_eq!(
        pulse["worker_session"]["lease_expires_at"],
        "2026-01-01T00:01:30.000000Z"
    );
    assert_eq!(
        pulse["worker_session"]["ttl_expires_at"],
        task["worker_session"]["ttl_expires_at"]
    );
    assert_eq!(pulse["worker_session"]["lease_owner"], "a");
    assert!(pulse["lease_expires_at"].as_str() > task["lease_expires_at"].as_str());
    assert!(pulse["last_heartbeat_at"].is_string());
    let status = activity_report(&server, &task, "status", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        (&status["can_continue"], &status["reason"]),
        (&json!(true), &Value::Null)
    );
}

#[tokio::test]
async fn a_lost_session_refuses_the_heartbeat_and_leaves_the_attempt_as_it_was() {
    let server = two_workers().await;
    let lost = |how: &'static str| {
        let server = &server;
        async move {
            let short = json!({"lease_seconds": 10});
            schedule(server, how, json!([in_session(how, short)])).await;
            let task = take(server, "a").await;
            match how {
                "closed" => drop(outcome(close(server, "a", how), 200, "closed").await),
                _ => server.advance(10).await,
            }
            if how == "taken" {
                outcome(create(server, "b", how, json!({})), 200, "reacquired").await;
            }
            task
        }
    };
    for (how, reason, status) in [
        ("expired", "session_not_active", "expired"),
        ("closed", "session_not_active", "closed"),
        ("taken", "session_owner_mismatch", "active"),
    ] {
        let task = lost(how).await;
        let events = history(&server, &task).await;
        let pulse = activity_report(&server, &task, "heartbeat", json!({"details": 1}))
            .accepted(200)
            .await;
        assert_eq!(
            (
                &pulse["can_continue"],
                &pulse["cancel_requested"],
                &pulse["heartbeat_recorded"],
                &pulse["reason"]
            ),
            (&json!(false), &json!(false), &json!(false), &json!(reason)),
            "{pulse}"
        );
        check(&pulse["worker_session"], "workerSessionTaskAffinity");
        assert_eq!(pulse["worker_session"]["status"], status);
        assert_eq!(pulse["lease_expires_at"], task["lease_expires_at"]);
        assert_eq!(history(&server, &task).await, events);
        let status = activity_report(&server, &task, "status", json!({}))
            .accepted(200)
            .await;
        assert_eq!(
            (&status["can_continue"], &status["reason"]),
            (&json!(false), &json!("worker_session_unavailable"))
        );
        // The attempt's own lease is still valid, so its result counts.
        finish(&server, &task).await;
    }
}

#[tokio::test]
async fn the_worker_of_a_cancelled_run_keeps_its_session_during_cleanup() {
    for verb in ["cancel", "terminate"] {
        let server = two_workers().await;
        schedule(
            &server,
            "wf",
            json!([in_session("s", json!({"lease_seconds": 60}))]),
        )
        .await;
        let task = take(&server, "a").await;
        server.advance(30).await;
        stop(&server, verb).await;
        let pulse = activity_report(&server, &task, "heartbeat", json!({}))
            .accepted(200)
            .await;
        assert_eq!(
            (
                &pulse["can_continue"],
                &pulse["cancel_requested"],
                &pulse["heartbeat_recorded"]
            ),
            (&json!(false), &json!(true), &json!(false))
        );
        assert!(pulse["run_closed_reason"].is_string());
        assert_eq!(pulse["worker_session"]["status"], "active");
        assert_eq!(
            pulse["worker_session"]["lease_expires_at"],
            "2026-01-01T00:01:30.000000Z"
        );
        assert_eq!(
            seen(&server, "s").await["lease_expires_at"],
            "2026-01-01T00:01:30.000000Z"
        );
        // Other runs use the session as before.
        schedule(&server, "wf2", json!([in_session("s", json!({}))])).await;
        take(&server, "a").await;
    }
}

#[tokio::test]
async fn a_replaced_attempt_renews_nothing() {
    let server = two_workers().await;
    let mut command = in_session("s", json!({"lease_seconds": 1000}));
    command["retry_policy"] = json!({"max_attempts": 3, "backoff_seconds": [0]});
    schedule(&server, "wf", json!([command])).await;
    let first = take(&server, "a").await;
    // The attempt's lease ends, the session's does not: the same worker is given the task again.
    pass(&server, 301, &["a", "b"]).await;
    take_nothing(&server, "b").await;
    let second = take(&server, "a").await;
    assert_eq!(second["attempt_number"], 2);
    let before = seen(&server, "s").await["lease_expires_at"].clone();
    pass(&server, 60, &["a", "b"]).await;
    let pulse = activity_report(&server, &first, "heartbeat", json!({}))
        .accepted(200)
        .await;
    assert_eq!(pulse["reason"], "stale_attempt");
    assert_eq!(seen(&server, "s").await["lease_expires_at"], before);
    activity_report(&server, &first, "complete", json!({"result": null}))
        .refused(409, "stale_attempt")
        .await;
    finish(&server, &second).await;
    let events = history(&server, &second).await;
    let completed = types(&events)
        .into_iter()
        .filter(|name| *name == "ActivityCompleted");
    assert_eq!(completed.count(), 1);
}

#[tokio::test]
async fn a_result_counts_after_the_session_went_to_another_worker() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([
            in_session("s", json!({"lease_seconds": 10})),
            in_session("s", json!({}))
        ]),
    )
    .await;
    let first = take(&server, "a").await;
    server.advance(10).await;
    // The former holder's attempt does not fill the session of the new one.
    let second = take(&server, "b").await;
    assert_eq!(second["worker_session"]["lease_owner"], "b");
    assert_eq!(seen(&server, "s").await["active_activity_count"], 1);
    finish(&server, &first).await;
    finish(&server, &second).await;
}

#[tokio::test]
async fn a_capability_that_is_gone_ends_admissions_but_not_the_session() {
    let server = two_workers().await;
    let needs = json!({"requirements": ["gpu:nvidia-l4"]});
    outcome(create(&server, "a", "s", needs.clone()), 201, "created").await;
    register(&server, "a", json!({"capabilities": []})).await;
    schedule(&server, "wf", json!([in_session("s", needs)])).await;
    take_nothing(&server, "a").await;
    take_nothing(&server, "b").await;
    expect_status(&seen(&server, "s").await, "active", Value::Null);
    let shown = server.get("/workflows/wf/debug").accepted(200).await;
    assert_eq!(
        shown["pending_activities"][0]["session_blocked_reason"],
        "session_requirements_not_met"
    );
    pass(&server, 120, &["a", "b"]).await;
    let task = take(&server, "b").await;
    assert_eq!(task["worker_session"]["lease_owner"], "b");
}

#[tokio::test]
async fn older_activities_keep_the_options_they_were_scheduled_with() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({"lease_seconds": 50}))]),
    )
    .await;
    let said = json!({"lease_seconds": 500, "ttl_seconds": 7});
    outcome(create(&server, "a", "s", said), 201, "created").await;
    let task = take(&server, "a").await;
    assert_eq!(
        (
            &task["worker_session"]["lease_seconds"],
            &task["worker_session"]["ttl_seconds"]
        ),
        (&json!(50), &json!(1800))
    );
    assert_eq!(
        task["worker_session"]["ttl_expires_at"],
        "2026-01-01T00:00:07.000000Z"
    );
}

#[tokio::test]
async fn a_close_leaves_the_running_attempt_alone() {
    let server = two_workers().await;
    schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    let task = take(&server, "a").await;
    outcome(close(&server, "a", "s"), 200, "closed").await;
    finish(&server, &task).await;
}
