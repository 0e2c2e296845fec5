//! Local activities that a worker reports, already finished, in its completion.

use serde_json::{Value, json};

use crate::support::contract::local_activity_errors;
use crate::support::{
    Server, complete, envelope, every_type, expect_no_task, history, leased_task, merge,
    payload_of, report, stop, types,
};

/// Returns a call that succeeded at once; `fields` are added or replace.
fn reported(fields: Value) -> Value {
    let mut command = json!({
        "type": "record_local_activity",
        "activity_type": "payments.charge",
        "execution_mode": "local",
        "arguments": envelope(r#"["card"]"#),
        "result": envelope("7"),
        "outcome": "completed",
        "attempts": [{"attempt_id": "a1", "attempt_number": 1, "outcome": "completed", "duration_ms": 30}],
    });
    merge(&mut command, fields);
    command
}

/// Returns a call whose only attempt failed.
fn ended(outcome: &str, fields: Value) -> Value {
    let mut attempt = json!({"attempt_number": 1, "outcome": outcome, "duration_ms": 5, "message": "no",
        "exception_type": "Oops"});
    let mut command = reported(
        json!({"outcome": outcome, "message": "no", "exception_type": "Oops",
        "result": null}),
    );
    if let Some(kind) = fields.get("timeout_kind") {
        attempt["timeout_kind"] = kind.clone();
    }
    command["attempts"] = json!([attempt]);
    merge(&mut command, fields);
    command
}

/// Two attempts, the first with heartbeats.
fn tried_twice() -> Value {
    reported(json!({
        "retry_policy": {"max_attempts": 3, "backoff_seconds": [2], "non_retryable_error_types": ["Fatal"]},
        "start_to_close_timeout": 10,
        "schedule_to_close_timeout": 60,
        "heartbeat_timeout": 5,
        "attempts": [
            {"attempt_id": "a1", "attempt_number": 1, "outcome": "failed", "duration_ms": 12, "message": " boom\u{0} ",
             "exception_type": "PaymentError", "non_retryable": false, "retry_reason": "failure", "backoff_seconds": 2,
             "heartbeats": [{"elapsed_ms": 5, "details": {"phase": "auth"}}, {"elapsed_ms": 40}]},
            {"attempt_id": "a2", "attempt_number": 2, "outcome": "completed", "duration_ms": 30, "heartbeats": []},
        ],
    }))
}

/// Returns the events of one reported call, without the two of the start.
async fn events_of(command: Value) -> Vec<Value> {
    let (server, task) = leased_task().await;
    complete(
        &server,
        &task,
        json!([command, {"type": "start_timer", "delay_seconds": 9}]),
    )
    .accepted(200)
    .await;
    expect_no_task(&server, "activity").await;
    let mut events = history(&server, &task).await.split_off(2);
    let timer = events.pop().expect("the timer");
    assert_eq!(timer["payload"]["sequence"], 2);
    for event in &events {
        let payload = &event["payload"];
        for marked in [payload, &payload["activity"]] {
            let errors = local_activity_errors("localActivityHistoryMarker", marked);
            assert_eq!(errors, Vec::<String>::new(), "{event}");
        }
        assert_eq!(payload["sequence"], 1);
        assert_eq!(payload["activity_type"], "payments.charge");
        assert_eq!(payload["activity_class"], "payments.charge");
        assert_eq!(payload["workflow_task_id"], task["task_id"]);
        assert!(payload["activity"].get("queue").is_none(), "{event}");
        assert!(payload["activity"].get("connection").is_none(), "{event}");
    }
    events
}

#[tokio::test]
async fn a_reported_success_is_three_events_and_no_task() {
    let events = events_of(reported(json!({}))).await;
    assert_eq!(
        types(&events),
        ["ActivityScheduled", "ActivityStarted", "ActivityCompleted"]
    );
    let scheduled = &events[0]["payload"]["activity"];
    assert_eq!(scheduled["status"], "pending");
    assert_eq!(scheduled["attempt_count"], 0);
    assert_eq!(scheduled["arguments"], envelope(r#"["card"]"#));
    assert!(scheduled.get("retry_policy").is_none(), "none was given");
    let completed = &events[2]["payload"];
    assert_eq!(completed["result"], envelope("7"));
    assert_eq!(completed["payload_codec"], "avro");
    assert_eq!(completed["activity"]["status"], "completed");
    assert_eq!(completed["activity_attempt"]["status"], "completed");
    assert_eq!(completed["activity_attempt"]["worker_attempt_id"], "a1");
    assert_eq!(completed["activity_attempt"]["lease_owner"], "w");
    assert_eq!(
        completed["activity"]["started_at"],
        "2025-12-31T23:59:59.970000Z"
    );
    assert_eq!(
        completed["activity"]["closed_at"],
        "2026-01-01T00:00:00.000000Z"
    );
}

#[tokio::test]
async fn two_attempts_and_their_heartbeats_keep_their_order_and_moments() {
    let events = events_of(tried_twice()).await;
    assert_eq!(
        types(&events),
        [
            "ActivityScheduled",
            "ActivityStarted",
            "ActivityHeartbeatRecorded",
            "ActivityHeartbeatRecorded",
            "ActivityRetryScheduled",
            "ActivityStarted",
            "ActivityCompleted",
        ]
    );
    let payload = |place: usize| &events[place]["payload"];
    assert_eq!(
        payload(0)["activity"]["retry_policy"],
        json!({"snapshot_version": 1, "max_attempts": 3, "backoff_seconds": [2], "start_to_close_timeout": 10,
            "schedule_to_start_timeout": null, "schedule_to_close_timeout": 60, "heartbeat_timeout": 5,
            "non_retryable_error_types": ["Fatal"]})
    );
    // The second attempt took 30 ms, the back-off 2 s, and the first attempt lived until its last heartbeat at least.
    let begin = "2025-12-31T23:59:57.930000Z";
    assert_eq!(payload(0)["activity"]["created_at"], begin);
    assert_eq!(payload(1)["activity_attempt"]["started_at"], begin);
    assert_eq!(payload(1)["worker_attempt_id"], "a1");
    assert_eq!(payload(1)["attempt_number"], 1);
    assert_eq!(payload(2)["heartbeat_at"], "2025-12-31T23:59:57.935000Z");
    assert_eq!(payload(2)["progress"], json!({"phase": "auth"}));
    assert_eq!(payload(2)["lease_expires_at"], Value::Null);
    assert!(payload(3).get("progress").is_none());
    let retry = payload(4);
    assert_eq!(retry["retry_reason"], "failure");
    assert_eq!(retry["retry_backoff_seconds"], 2);
    assert_eq!(retry["retry_after_attempt"], 1);
    assert_eq!(
        retry["retry_after_attempt_id"],
        payload(1)["activity_attempt_id"]
    );
    assert_eq!(retry["max_attempts"], 3);
    assert_eq!(
        retry["message"], "boom",
        "blanks and NULs at the ends are cut"
    );
    assert_eq!(retry["exception_type"], "PaymentError");
    assert!(
        retry.get("retry_task_id").is_none(),
        "the worker waited itself"
    );
    assert_eq!(payload(5)["worker_attempt_id"], "a2");
    assert_eq!(payload(5)["attempt_number"], 2);
    let moments: Vec<&str> = [
        (1, "started_at"),
        (2, "last_heartbeat_at"),
        (3, "last_heartbeat_at"),
        (4, "closed_at"),
        (5, "started_at"),
        (6, "closed_at"),
    ]
    .iter()
    .map(|(place, key)| {
        payload(*place)["activity_attempt"][key]
            .as_str()
            .expect("a moment")
    })
    .collect();
    assert!(moments.is_sorted(), "{moments:?}");
}

#[tokio::test]
async fn a_reported_failure_has_the_shape_that_the_workflow_saw() {
    let events = events_of(ended(
        "failed",
        json!({"non_retryable": true, "attempts": [
        {"attempt_number": 1, "outcome": "failed", "message": "no", "non_retryable": true}]}),
    ))
    .await;
    let failed = payload_of(&events, "ActivityFailed");
    assert_eq!(failed["failure_category"], "application");
    assert_eq!(failed["non_retryable"], true);
    assert_eq!(failed["exception_type"], "Oops");
    assert_eq!(failed["message"], "no");
    assert!(failed["failure_id"].is_string());
    assert!(failed.get("exception_class").is_none() && failed.get("exception").is_none());
    for kind in ["start_to_close", "schedule_to_close", "heartbeat"] {
        let events = events_of(ended("timed_out", json!({"timeout_kind": kind}))).await;
        let timed_out = payload_of(&events, "ActivityTimedOut");
        assert_eq!(timed_out["timeout_kind"], kind);
        assert_eq!(timed_out["failure_category"], "timeout");
        assert_eq!(timed_out["exception_class"], "Oops");
        assert!(
            timed_out.get("exception_type").is_none() && timed_out.get("non_retryable").is_none()
        );
        assert_eq!(timed_out["activity"]["status"], "failed");
    }
    let events = events_of(ended("cancelled", json!({}))).await;
    let cancelled = payload_of(&events, "ActivityCancelled");
    assert_eq!(cancelled["cancelled_at"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(cancelled["activity"]["status"], "cancelled");
    assert_eq!(cancelled["attempt_number"], 1);
}

/// Returns the wrong fields of one command, and checks that nothing is recorded and the task is still leased.
async fn faults(command: Value) -> Vec<String> {
    let (server, task) = leased_task().await;
    let fields = complete(&server, &task, json!([command])).invalid().await;
    assert_eq!(history(&server, &task).await.len(), 2);
    report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    fields
        .iter()
        .map(|field| field.trim_start_matches("commands.0.").to_owned())
        .collect()
}

/// A failed attempt before the last one.
fn retried(fields: Value) -> Value {
    let mut first = json!({"attempt_number": 1, "outcome": "failed", "message": "no", "retry_reason": "failure",
        "backoff_seconds": 0});
    merge(&mut first, fields);
    reported(
        json!({"retry_policy": {"max_attempts": 3, "backoff_seconds": [0]},
        "attempts": [first, {"attempt_number": 2, "outcome": "completed"}]}),
    )
}

#[tokio::test]
async fn each_mistake_in_the_call_is_named_where_it_is() {
    for (fields, path) in [
        (json!({"activity_type": "  "}), "activity_type"),
        (json!({"activity_type": "x".repeat(256)}), "activity_type"),
        (json!({"activity_type": 7}), "activity_type"),
        (json!({"execution_mode": "remote"}), "execution_mode"),
        (json!({"execution_mode": null}), "execution_mode"),
        (
            json!({"arguments": {"codec": "avro", "blob": "!"}}),
            "arguments.blob",
        ),
        (
            json!({"result": {"codec": "avro", "blob": "!"}}),
            "result.blob",
        ),
        (json!({"outcome": "done"}), "outcome"),
        (json!({"result": null}), "result"),
        (json!({"non_retryable": false}), "non_retryable"),
        (json!({"timeout_kind": "heartbeat"}), "timeout_kind"),
        (
            json!({"start_to_close_timeout": 0}),
            "start_to_close_timeout",
        ),
        (
            json!({"schedule_to_close_timeout": 1.5}),
            "schedule_to_close_timeout",
        ),
        (json!({"heartbeat_timeout": "1"}), "heartbeat_timeout"),
        (
            json!({"heartbeat_timeout": 2, "start_to_close_timeout": 1}),
            "heartbeat_timeout",
        ),
        (
            json!({"heartbeat_timeout": 2, "schedule_to_close_timeout": 1}),
            "heartbeat_timeout",
        ),
        (
            json!({"start_to_close_timeout": 2, "schedule_to_close_timeout": 1}),
            "start_to_close_timeout",
        ),
        (json!({"retry_policy": []}), "retry_policy"),
        (
            json!({"retry_policy": {"jitter": 1}}),
            "retry_policy.jitter",
        ),
        (
            json!({"retry_policy": {"max_attempts": 0}}),
            "retry_policy.max_attempts",
        ),
        (
            json!({"retry_policy": {"max_attempts": 101}}),
            "retry_policy.max_attempts",
        ),
        (
            json!({"retry_policy": {"max_attempts": null}}),
            "retry_policy.max_attempts",
        ),
        (
            json!({"retry_policy": {"max_attempts": 2, "backoff_seconds": [-1]}}),
            "retry_policy.backoff_seconds",
        ),
        (
            json!({"retry_policy": {"max_attempts": 2, "backoff_seconds": 1}}),
            "retry_policy.backoff_seconds",
        ),
        (
            json!({"retry_policy": {"max_attempts": 2, "backoff_seconds": [1, 2]}}),
            "retry_policy.backoff_seconds",
        ),
        (
            json!({"retry_policy": {"backoff_seconds": [1]}}),
            "retry_policy.backoff_seconds",
        ),
        (
            json!({"retry_policy": {"non_retryable_error_types": ["A", "A"]}}),
            "retry_policy.non_retryable_error_types",
        ),
        (
            json!({"retry_policy": {"non_retryable_error_types": [" "]}}),
            "retry_policy.non_retryable_error_types",
        ),
        (json!({"queue": "q"}), "queue"),
        (json!({"connection": "c"}), "connection"),
        (json!({"worker_session": {}}), "worker_session"),
        (
            json!({"schedule_to_start_timeout": 1}),
            "schedule_to_start_timeout",
        ),
        (json!({"parallel_group_id": "g:1:1"}), "parallel_group_id"),
        (
            json!({"cancellation_policy": "abandon"}),
            "cancellation_policy",
        ),
        (json!({"attempts": null}), "attempts"),
        (json!({"attempts": []}), "attempts"),
        (json!({"attempts": {}}), "attempts"),
        (json!({"attempts": [7]}), "attempts.0"),
    ] {
        let command = reported(fields.clone());
        assert_eq!(faults(command).await, [path], "{fields}");
    }
    for (outcome, fields, path) in [
        ("failed", json!({"message": " \u{0}"}), "message"),
        ("failed", json!({"message": null}), "message"),
        (
            "timed_out",
            json!({"timeout_kind": "later", "attempts": [
            {"attempt_number": 1, "outcome": "timed_out", "message": "m", "timeout_kind": "heartbeat"}]}),
            "timeout_kind",
        ),
        (
            "timed_out",
            json!({"timeout_kind": null, "attempts": [
            {"attempt_number": 1, "outcome": "timed_out", "message": "m", "timeout_kind": "heartbeat"}]}),
            "timeout_kind",
        ),
        ("failed", json!({"non_retryable": "yes"}), "non_retryable"),
    ] {
        assert_eq!(
            faults(ended(outcome, fields.clone())).await,
            [path],
            "{outcome} {fields}"
        );
    }
}

#[tokio::test]
async fn each_mistake_in_an_attempt_is_named_where_it_is() {
    let only = |fields: Value| {
        let mut attempt = json!({"attempt_number": 1, "outcome": "completed"});
        merge(&mut attempt, fields);
        reported(json!({"attempts": [attempt]}))
    };
    for (fields, path) in [
        (json!({"attempt_number": 2}), "attempt_number"),
        (json!({"attempt_number": null}), "attempt_number"),
        (json!({"attempt_id": "x".repeat(256)}), "attempt_id"),
        (json!({"attempt_id": ""}), "attempt_id"),
        (json!({"attempt_id": 1}), "attempt_id"),
        (json!({"outcome": "failed", "message": "m"}), "outcome"),
        (json!({"outcome": "over"}), "outcome"),
        (json!({"duration_ms": -1}), "duration_ms"),
        (json!({"timeout_kind": "heartbeat"}), "timeout_kind"),
        (json!({"heartbeats": {}}), "heartbeats"),
        (
            json!({"heartbeats": [{"elapsed_ms": -1}]}),
            "heartbeats.0.elapsed_ms",
        ),
        (json!({"heartbeats": [{}]}), "heartbeats.0.elapsed_ms"),
        (
            json!({"heartbeats": [{"elapsed_ms": 5}, {"elapsed_ms": 4}]}),
            "heartbeats.1.elapsed_ms",
        ),
        (
            json!({"heartbeats": [{"elapsed_ms": 5, "details": [1]}]}),
            "heartbeats.0.details",
        ),
    ] {
        let path = format!("attempts.0.{path}");
        assert_eq!(faults(only(fields.clone())).await, [path], "{fields}");
    }
    for fields in [
        json!({"retry_reason": "failure"}),
        json!({"backoff_seconds": 1}),
    ] {
        assert_eq!(
            faults(only(fields.clone())).await,
            ["attempts.0"],
            "{fields}"
        );
    }
    let contradicting = json!({"attempts": [
        {"attempt_number": 1, "outcome": "failed", "message": "no", "non_retryable": true}]});
    assert_eq!(faults(ended("failed", contradicting)).await, ["attempts.0"]);
    for (fields, path) in [
        (json!({"outcome": "cancelled"}), "outcome"),
        (json!({"message": ""}), "message"),
        (json!({"retry_reason": null}), "retry_reason"),
        (json!({"retry_reason": "timeout"}), "retry_reason"),
        (
            json!({"outcome": "timed_out", "retry_reason": "timeout"}),
            "timeout_kind",
        ),
        (
            json!({"outcome": "timed_out", "timeout_kind": "heartbeat"}),
            "retry_reason",
        ),
        (json!({"timeout_kind": "heartbeat"}), "timeout_kind"),
        (json!({"backoff_seconds": null}), "backoff_seconds"),
        (json!({"backoff_seconds": 3}), "backoff_seconds"),
        (json!({"non_retryable": true}), "non_retryable"),
    ] {
        let found = faults(retried(fields.clone())).await;
        let path = format!("attempts.0.{path}");
        assert!(found.contains(&path), "{fields}: {found:?}");
    }
    let mut same = retried(json!({"attempt_id": "a"}));
    same["attempts"][1]["attempt_id"] = json!("a");
    assert_eq!(faults(same).await, ["attempts.1.attempt_id"]);
    let mut more = retried(json!({}));
    more["retry_policy"] = json!({"max_attempts": 1});
    assert_eq!(faults(more).await, ["attempts"]);
}

#[tokio::test]
async fn a_hundred_attempts_and_a_thousand_heartbeats_are_the_most() {
    let attempts = |count: u64| {
        let list: Vec<Value> = (1..=count)
            .map(|number| {
                let mut attempt =
                    json!({"attempt_number": number, "outcome": "failed", "message": "no"});
                if number < count {
                    merge(
                        &mut attempt,
                        json!({"retry_reason": "failure", "backoff_seconds": 0}),
                    );
                }
                attempt
            })
            .collect();
        ended(
            "failed",
            json!({"retry_policy": {"max_attempts": 100}, "attempts": list}),
        )
    };
    assert_eq!(events_of(attempts(100)).await.len(), 1 + 200);
    assert_eq!(faults(attempts(101)).await, ["attempts"]);
    let heartbeats = |count: u64| {
        let list: Vec<Value> = (0..count).map(|at| json!({"elapsed_ms": at})).collect();
        reported(
            json!({"attempts": [{"attempt_number": 1, "outcome": "completed", "heartbeats": list}]}),
        )
    };
    let (server, task) = leased_task().await;
    complete(&server, &task, json!([heartbeats(1000)]))
        .accepted(200)
        .await;
    assert_eq!(faults(heartbeats(1001)).await, ["attempts.0.heartbeats"]);
}

#[tokio::test]
async fn calls_mix_with_other_commands_and_may_share_attempt_names() {
    let (server, task) = leased_task().await;
    let commands = json!([
        {"type": "record_side_effect", "result": envelope("1")},
        reported(json!({})),
        reported(json!({})),
        {"type": "schedule_activity", "activity_type": "say"},
    ]);
    complete(&server, &task, commands).accepted(200).await;
    let events = history(&server, &task).await;
    let first_of: Vec<(&str, u64)> = events[2..]
        .iter()
        .filter(|event| {
            event["event_type"]
                .as_str()
                .is_some_and(|name| !name.ends_with("Started") && !name.ends_with("Completed"))
        })
        .map(|event| {
            (
                event["event_type"].as_str().unwrap_or_default(),
                event["payload"]["sequence"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    assert_eq!(
        first_of,
        [
            ("SideEffectRecorded", 1),
            ("ActivityScheduled", 2),
            ("ActivityScheduled", 3),
            ("ActivityScheduled", 4)
        ]
    );
    let queued = &events.last().expect("an event")["payload"];
    assert!(queued.get("local_activity").is_none() && queued.get("execution_mode").is_none());
    assert_eq!(queued["activity"]["local_activity"], false);
}

#[tokio::test]
async fn workers_of_every_protocol_version_may_report_one() {
    let server = Server::open().await;
    server.register("plain", every_type()).await;
    server.start("wf").await;
    let task = server.worker("plain").workflow_task().await;
    complete(
        &server,
        &task,
        json!([reported(json!({})), {"type": "complete_workflow"}]),
    )
    .protocol(Some("1.0"))
    .accepted(200)
    .await;
}

#[tokio::test]
async fn a_repeated_report_is_recorded_once() {
    let (server, task) = leased_task().await;
    let commands = json!([reported(json!({})), {"type": "start_timer", "delay_seconds": 1}]);
    let first = complete(&server, &task, commands.clone())
        .accepted(200)
        .await;
    let events = history(&server, &task).await;
    let second = complete(&server, &task, commands).accepted(200).await;
    assert_eq!(second["duplicate"], true);
    assert_eq!(second["created_task_ids"], first["created_task_ids"]);
    assert_eq!(history(&server, &task).await, events);
}

#[tokio::test]
async fn a_call_after_the_end_of_its_run_records_nothing() {
    let (server, task) = leased_task().await;
    stop(&server, "cancel").await;
    let answer = complete(&server, &task, json!([reported(json!({}))]))
        .refused(409, "run_closed")
        .await;
    assert_eq!(answer["can_continue"], false);
    assert_eq!(answer["cancel_requested"], true);
    let events = history(&server, &task).await;
    assert!(
        types(&events)
            .iter()
            .all(|name| !name.starts_with("Activity"))
    );
    let beat = report(&server, &task, "heartbeat", json!({}))
        .refused(409, "run_closed")
        .await;
    assert_eq!(beat["cancel_requested"], true);
    assert_eq!(beat["stop_reason"], "run_cancelled");
}

#[tokio::test]
async fn the_lease_is_checked_for_reported_local_activities() {
    let (server, task) = leased_task().await;
    let answer = report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer.get("reason"), Some(&Value::Null));
    assert_eq!(answer["renewed"], true);
    assert_eq!(answer["task_status"], "leased");
    assert_eq!(answer["run_status"], "running");
    assert_eq!(answer["task_id"], task["task_id"]);
    assert_eq!(answer["lease_owner"], "w");
    assert_eq!(answer["workflow_task_attempt"], 1);
    assert_eq!(answer["lease_expires_at"], "2026-01-01T00:05:00.000000Z");
    for (fields, reason) in [
        (json!({"lease_owner": "other"}), "lease_owner_mismatch"),
        (
            json!({"workflow_task_attempt": 2}),
            "workflow_task_attempt_mismatch",
        ),
    ] {
        report(&server, &task, "heartbeat", fields)
            .refused(409, reason)
            .await;
    }
    server.clock.advance_seconds(300);
    report(&server, &task, "heartbeat", json!({}))
        .refused(409, "lease_expired")
        .await;
}

#[tokio::test]
async fn a_call_with_too_many_events_fails_the_run() {
    let server = Server::configured(|config| {
        config.limits.events_per_transaction = 20;
    })
    .await;
    server.register("w", every_type()).await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let heartbeats: Vec<Value> = (0..30).map(|at| json!({"elapsed_ms": at})).collect();
    let long = reported(
        json!({"attempts": [{"attempt_number": 1, "outcome": "completed", "heartbeats": heartbeats}]}),
    );
    let answer = complete(&server, &task, json!([long])).accepted(200).await;
    assert_eq!(answer["limit_kind"], "history_transaction_size");
    let events = history(&server, &task).await;
    assert_eq!(types(&events[2..]), ["WorkflowFailed"]);
    let failed = payload_of(&events, "WorkflowFailed");
    assert_eq!(failed["failure_category"], "structural_limit");
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_the_run() {
    let server = Server::configured(|config| {
        config.limits.payload_bytes = 64;
    })
    .await;
    server.register("w", every_type()).await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let large = reported(json!({"result": envelope(&format!("\"{}\"", "x".repeat(100)))}));
    let answer = complete(&server, &task, json!([large])).accepted(200).await;
    assert_eq!(answer["limit_kind"], "payload_size");
    assert_eq!(
        types(&history(&server, &task).await[2..]),
        ["WorkflowFailed"]
    );
}

#[tokio::test]
async fn the_manifest_is_published_everywhere() {
    let (server, task) = leased_task().await;
    let info = server.get("/cluster/info").accepted(200).await;
    let manifest = &info["worker_protocol"]["server_capabilities"]["local_activities"];
    assert_eq!(
        local_activity_errors("localActivityRuntimeContract", manifest),
        Vec::<String>::new()
    );
    assert_eq!(manifest["command_type"], "record_local_activity");
    assert_eq!(manifest["supported"], true);
    let answer = report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    assert_eq!(&answer["server_capabilities"]["local_activities"], manifest);
    let offered = &answer["server_capabilities"]["supported_workflow_task_commands"];
    assert!(
        offered
            .as_array()
            .is_some_and(|list| list.contains(&json!("record_local_activity")))
    );
    let refused = report(&server, &task, "heartbeat", json!({"lease_owner": "x"}))
        .refused(409, "lease_owner_mismatch")
        .await;
    assert_eq!(
        &refused["server_capabilities"]["local_activities"],
        manifest
    );
}
