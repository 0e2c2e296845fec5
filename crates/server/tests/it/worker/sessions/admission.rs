//! Activities in sessions: which workers get them.

use serde_json::{Value, json};

use super::{
    close, create, expect_status, finish, in_session, is_unknown, outcome, register, schedule,
    seen, take, take_nothing, two_workers,
};
use crate::support::{Server, complete, history, merge, payload_of};

#[tokio::test]
async fn the_published_example_is_accepted_unchanged() {
    let server = Server::open().await;
    register(&server, "a", json!({})).await;
    register(
        &server,
        "gpu-worker-1",
        json!({"task_queue": "gpu-activities"}),
    )
    .await;
    let options = json!({
        "session_id": "gpu-render", "queue": "gpu-activities", "requirements": ["gpu:nvidia-l4"], "lease_seconds": 120,
        "ttl_seconds": 1800, "max_concurrent_activities": 1, "create_if_missing": true,
        "allow_reacquire_after_failure": true,
    });
    let command = json!({"type": "schedule_activity", "activity_type": "media.render-frames",
        "arguments": {"codec": "avro", "blob": "wwHioz3/VYAiNwwA"}, "worker_session": options});
    let decided = schedule(&server, "wf", json!([command])).await;
    // The session's queue is the activity's where the call names none.
    let fields = json!({"task_queue": "gpu-activities"});
    let answer = server
        .worker("gpu-worker-1")
        .poll("activity", fields)
        .accepted(200)
        .await;
    let mut affinity = options.clone();
    merge(
        &mut affinity,
        json!({"namespace": "default", "status": "active", "lease_owner": "gpu-worker-1",
               "lease_expires_at": "2026-01-01T00:02:00.000000Z", "ttl_expires_at": "2026-01-01T00:30:00.000000Z"}),
    );
    assert_eq!(answer["task"]["worker_session"], affinity);
    super::check(
        &answer["task"]["worker_session"],
        "workerSessionTaskAffinity",
    );
    let events = history(&server, &decided).await;
    let scheduled = payload_of(&events, "ActivityScheduled");
    assert_eq!(scheduled["activity"]["worker_session"], options);
    assert_eq!(scheduled["activity"]["queue"], "gpu-activities");
}

#[tokio::test]
async fn history_keeps_what_was_written_and_delivery_fills_it_in() {
    let server = two_workers().await;
    let said = json!({"requirements": [" gpu:nvidia-l4", "gpu:nvidia-l4"]});
    let decided = schedule(&server, "wf", json!([in_session(" s ", said)])).await;
    let events = history(&server, &decided).await;
    let scheduled = payload_of(&events, "ActivityScheduled");
    assert_eq!(
        scheduled["activity"]["worker_session"],
        json!({"session_id": "s", "requirements": ["gpu:nvidia-l4"]})
    );
    let task = take(&server, "a").await;
    let session = &task["worker_session"];
    assert_eq!(
        (
            &session["queue"],
            &session["lease_seconds"],
            &session["create_if_missing"]
        ),
        (&json!("default"), &json!(120), &json!(true))
    );
    let shown = server.get("/workflows/wf/debug").accepted(200).await;
    assert_eq!(
        shown["pending_activities"][0]["activity_options"]["worker_session"],
        json!({"session_id": "s", "requirements": ["gpu:nvidia-l4"]})
    );
}

#[tokio::test]
async fn the_calls_own_queue_wins_and_both_are_remembered() {
    let server = two_workers().await;
    register(&server, "c", json!({"task_queue": "other"})).await;
    let mut command = in_session("s", json!({"queue": "other"}));
    command["queue"] = json!("default");
    let decided = schedule(&server, "wf", json!([command])).await;
    let answer = server
        .worker("c")
        .poll("activity", json!({"task_queue": "other"}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "empty");
    let task = take(&server, "a").await;
    assert_eq!(task["worker_session"]["queue"], "default");
    assert_eq!(seen(&server, "s").await["queue"], "default");
    let events = history(&server, &decided).await;
    let activity = &payload_of(&events, "ActivityScheduled")["activity"];
    assert_eq!(
        (&activity["queue"], &activity["worker_session"]["queue"]),
        (&json!("default"), &json!("other"))
    );
}

#[tokio::test]
async fn malformed_options_change_nothing() {
    let server = two_workers().await;
    server.start("wf").await;
    let task = server.worker("a").workflow_task().await;
    for (field, wrong) in [
        ("", json!("gpu")),
        ("", json!([])),
        (".session_id", json!({})),
        (".session_id", json!({"session_id": " "})),
        (
            ".lease_seconds",
            json!({"session_id": "s", "lease_seconds": 0}),
        ),
        (
            ".ttl_seconds",
            json!({"session_id": "s", "ttl_seconds": "9"}),
        ),
        (
            ".max_concurrent_activities",
            json!({"session_id": "s", "max_concurrent_activities": 0.5}),
        ),
        (
            ".create_if_missing",
            json!({"session_id": "s", "create_if_missing": 1}),
        ),
        (
            ".allow_reacquire_after_failure",
            json!({"session_id": "s", "allow_reacquire_after_failure": "no"}),
        ),
        (
            ".requirements.0",
            json!({"session_id": "s", "requirements": [7]}),
        ),
        (".queue", json!({"session_id": "s", "queue": 7})),
    ] {
        let command =
            json!({"type": "schedule_activity", "activity_type": "say", "worker_session": wrong});
        let fields = complete(&server, &task, json!([command])).invalid().await;
        assert_eq!(
            fields,
            [format!("commands.0.worker_session{field}")],
            "{wrong}"
        );
    }
    for command in [
        json!({"type": "start_timer", "delay_seconds": 1, "worker_session": {"session_id": "s"}}),
        json!({"type": "complete_workflow", "worker_session": {"session_id": "s"}}),
        json!({"type": "start_child_workflow", "workflow_type": "w", "worker_session": {"session_id": "s"}}),
    ] {
        let fields = complete(&server, &task, json!([command])).invalid().await;
        assert_eq!(fields, ["commands.0.worker_session"]);
    }
    let none = json!({"type": "schedule_activity", "activity_type": "say", "worker_session": null});
    complete(&server, &task, json!([none])).accepted(200).await;
    assert_eq!(take(&server, "a").await["worker_session"], Value::Null);
}

#[tokio::test]
async fn the_first_admitted_activity_creates_and_the_next_goes_to_the_same_worker() {
    let server = two_workers().await;
    let command = in_session("s", json!({}));
    schedule(&server, "wf", json!([command, command])).await;
    is_unknown(&server, "s").await;
    let first = take(&server, "b").await;
    let session = seen(&server, "s").await;
    expect_status(&session, "active", Value::Null);
    assert_eq!(
        (&session["lease_owner"], &session["active_activity_count"]),
        (&json!("b"), &json!(1))
    );
    // One at a time, and only for its holder.
    take_nothing(&server, "a").await;
    take_nothing(&server, "b").await;
    finish(&server, &first).await;
    take_nothing(&server, "a").await;
    let second = take(&server, "b").await;
    assert_eq!(second["attempt_number"], 1);
    assert_eq!(
        second["worker_session"]["ttl_expires_at"],
        first["worker_session"]["ttl_expires_at"]
    );
}

#[tokio::test]
async fn several_activities_run_at_once_if_the_session_allows_it() {
    let server = two_workers().await;
    let command = in_session("s", json!({"max_concurrent_activities": 2}));
    schedule(&server, "wf", json!([command, command, command])).await;
    let first = take(&server, "a").await;
    take(&server, "a").await;
    take_nothing(&server, "a").await;
    assert_eq!(seen(&server, "s").await["active_activity_count"], 2);
    finish(&server, &first).await;
    take(&server, "a").await;
}

#[tokio::test]
async fn another_workers_session_does_not_hide_other_tasks() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    let mut commands: Vec<Value> = (0..50).map(|_| in_session("s", json!({}))).collect();
    commands.push(json!({"type": "schedule_activity", "activity_type": "plain"}));
    schedule(&server, "wf", json!(commands)).await;
    let task = take(&server, "b").await;
    assert_eq!(task["activity_type"], "plain");
    take_nothing(&server, "b").await;
    assert_eq!(
        take(&server, "a").await["worker_session"]["session_id"],
        "s"
    );
}

#[tokio::test]
async fn ready_order_is_kept_between_sessions_and_other_work() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    schedule(
        &server,
        "w1",
        json!([{"type": "schedule_activity", "activity_type": "plain"}]),
    )
    .await;
    server.advance(1).await;
    schedule(&server, "w2", json!([in_session("s", json!({}))])).await;
    server.advance(1).await;
    schedule(
        &server,
        "w3",
        json!([{"type": "schedule_activity", "activity_type": "later"}]),
    )
    .await;
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(take(&server, "a").await["activity_type"].clone());
    }
    assert_eq!(order, ["plain", "say", "later"]);
}

#[tokio::test]
async fn a_worker_without_what_is_required_gets_other_work() {
    let server = two_workers().await;
    register(&server, "plain", json!({"capabilities": []})).await;
    let commands = json!([
        in_session("s", json!({"requirements": ["gpu:nvidia-l4"]})),
        {"type": "schedule_activity", "activity_type": "plain"},
    ]);
    schedule(&server, "wf", commands).await;
    assert_eq!(take(&server, "plain").await["activity_type"], "plain");
    take_nothing(&server, "plain").await;
    is_unknown(&server, "s").await;
    assert_eq!(take(&server, "a").await["activity_type"], "say");
}

#[tokio::test]
async fn a_worker_at_its_limit_gets_other_work() {
    let server = two_workers().await;
    register(&server, "one", json!({"max_concurrent_worker_sessions": 1})).await;
    let commands = json!([
        in_session("s1", json!({})),
        in_session("s2", json!({})),
        {"type": "schedule_activity", "activity_type": "plain"},
    ]);
    schedule(&server, "wf", commands).await;
    assert_eq!(
        take(&server, "one").await["worker_session"]["session_id"],
        "s1"
    );
    assert_eq!(take(&server, "one").await["activity_type"], "plain");
    take_nothing(&server, "one").await;
    is_unknown(&server, "s2").await;
    outcome(close(&server, "one", "s1"), 200, "closed").await;
    assert_eq!(
        take(&server, "one").await["worker_session"]["session_id"],
        "s2"
    );
}

#[tokio::test]
async fn tasks_wait_for_a_session_that_must_exist() {
    let server = two_workers().await;
    schedule(
        &server,
        "wf",
        json!([in_session("s", json!({"create_if_missing": false}))]),
    )
    .await;
    take_nothing(&server, "a").await;
    take_nothing(&server, "b").await;
    is_unknown(&server, "s").await;
    outcome(create(&server, "b", "s", json!({})), 201, "created").await;
    take_nothing(&server, "a").await;
    let task = take(&server, "b").await;
    // What was refused before cost no attempt.
    assert_eq!(task["attempt_number"], 1);
}

#[tokio::test]
async fn an_unadmitted_task_is_seen_in_the_runs_diagnosis() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    outcome(close(&server, "a", "s"), 200, "closed").await;
    let decided = schedule(&server, "wf", json!([in_session("s", json!({}))])).await;
    take_nothing(&server, "a").await;
    let shown = server.get("/workflows/wf/debug").accepted(200).await;
    assert_eq!(
        shown["pending_activities"][0]["session_blocked_reason"],
        "session_closed"
    );
    assert_eq!(shown["findings"][0]["code"], "session_blocked");
    assert_eq!(shown["findings"][0]["severity"], "error");
    assert_eq!(shown["diagnostic_status"], "needs_attention");
    let events = history(&server, &decided).await;
    assert!(
        events
            .iter()
            .all(|event| event["event_type"] != "ActivityStarted")
    );
    // Other reasons, each with its own word.
    for (id, said, reason) in [
        (
            "missing",
            json!({"create_if_missing": false}),
            "session_missing",
        ),
        (
            "weak",
            json!({"requirements": ["tpu"]}),
            "session_requirements_not_met",
        ),
    ] {
        schedule(&server, id, json!([in_session(id, said)])).await;
        let shown = server
            .get(&format!("/workflows/{id}/debug"))
            .accepted(200)
            .await;
        assert_eq!(
            shown["pending_activities"][0]["session_blocked_reason"],
            reason
        );
        assert_eq!(shown["findings"][0]["severity"], "warning");
    }
}

#[tokio::test]
async fn a_blocked_task_ends_with_its_timeout() {
    let server = two_workers().await;
    outcome(create(&server, "a", "s", json!({})), 201, "created").await;
    outcome(close(&server, "a", "s"), 200, "closed").await;
    let mut command = in_session("s", json!({}));
    command["schedule_to_start_timeout"] = json!(30);
    let decided = schedule(&server, "wf", json!([command])).await;
    server.advance(31).await;
    let events = history(&server, &decided).await;
    assert_eq!(
        payload_of(&events, "ActivityTimedOut")["timeout_kind"],
        "schedule_to_start"
    );
}

#[tokio::test]
async fn a_repeated_poll_gets_the_same_task_and_renews_nothing() {
    let server = two_workers().await;
    let command = in_session("s", json!({"max_concurrent_activities": 5}));
    schedule(&server, "wf", json!([command, command])).await;
    let fields = json!({"poll_request_id": "p1"});
    let first = server
        .worker("a")
        .poll("activity", fields.clone())
        .accepted(200)
        .await;
    server.advance(10).await;
    let again = server
        .worker("a")
        .poll("activity", fields)
        .accepted(200)
        .await;
    assert_eq!(again["task"], first["task"]);
    assert_eq!(seen(&server, "s").await["active_activity_count"], 1);
}
