//! Activity heartbeats and the status call.

use serde_json::{Value, json};

use crate::support::{
    Server, activity_report, history, payload_of, running_activity, staffed, types,
};

fn beat<'a>(server: &'a Server, task: &Value, fields: Value) -> crate::support::Call<'a> {
    activity_report(server, task, "heartbeat", fields)
}

#[tokio::test]
async fn a_heartbeat_extends_the_lease_and_is_answered_in_full() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    server.advance(100).await;
    let answer = beat(&server, &task, json!({"details": {"page": 3}}))
        .send()
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.bare(),
        json!({
            "task_id": task["task_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "lease_owner": "w",
            "can_continue": true,
            "cancel_requested": false,
            "heartbeat_recorded": true,
            "reason": null,
            "lease_expires_at": "2026-01-01T00:06:40.000000Z",
            "last_heartbeat_at": "2026-01-01T00:01:40.000000Z",
            "run_closed_reason": null,
            "run_closed_at": null,
            "worker_session": null,
            "task_status": "leased",
            "attempt_status": "running",
            "activity_status": "running",
            "run_status": "waiting",
        })
    );
    assert_eq!(
        payload_of(&history(&server, &task).await, "ActivityHeartbeatRecorded"),
        &json!({
            "activity_execution_id": task["activity_execution_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "activity_type": "say",
            "activity_class": "say",
            "sequence": 1,
            "attempt_number": 1,
            "heartbeat_at": "2026-01-01T00:01:40.000000Z",
            "lease_expires_at": "2026-01-01T00:06:40.000000Z",
            "progress": {"details": {"page": 3}},
        })
    );
    server.advance(250).await;
    crate::support::expect_no_task(&server, "activity").await;
}

#[tokio::test]
async fn a_status_returns_the_same_fields_and_changes_nothing() {
    let server = staffed().await;
    let task = running_activity(&server, json!({"start_to_close_timeout": 600})).await;
    server.advance(100).await;
    let before = history(&server, &task).await;
    let answer = activity_report(&server, &task, "status", json!({}))
        .send()
        .await;
    assert_eq!(answer.status, 200);
    let mut bare = answer.bare();
    let body = bare.as_object_mut().expect("a body");
    for informative in [
        "last_heartbeat_at",
        "run_closed_reason",
        "run_closed_at",
        "run_status",
    ] {
        body.remove(informative);
    }
    assert_eq!(
        bare,
        json!({
            "task_id": task["task_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "lease_owner": "w",
            "can_continue": true,
            "cancel_requested": false,
            "heartbeat_recorded": false,
            "reason": null,
            "task_status": "leased",
            "attempt_status": "running",
            "activity_status": "running",
            "lease_expires_at": "2026-01-01T00:05:00.000000Z",
            "deadlines": {
                "schedule_to_start": null, "start_to_close": "2026-01-01T00:10:00.000000Z", "schedule_to_close": null,
                "heartbeat": null, "run": null, "execution": null,
            },
            "worker_session": null,
            "cancellation_acknowledgement": null,
        })
    );
    assert_eq!(history(&server, &task).await, before);
    server.advance(200).await;
    assert_eq!(
        server.worker("w").activity_task().await["attempt_number"],
        2,
        "the lease was not renewed"
    );
}

#[tokio::test]
async fn details_are_any_json_up_to_sixty_four_kibibytes() {
    for details in [
        json!("text"),
        json!(7),
        json!(1.5),
        json!(true),
        json!([1, [2]]),
        json!({"a": {"b": null}}),
        json!({"codec": "json", "blob": "x"}),
    ] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        beat(&server, &task, json!({"details": details}))
            .accepted(200)
            .await;
        let events = history(&server, &task).await;
        assert_eq!(
            payload_of(&events, "ActivityHeartbeatRecorded")["progress"],
            json!({"details": details})
        );
    }
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    let of = |bytes: usize| json!({"details": "x".repeat(bytes - 2)});
    beat(&server, &task, of(64 * 1024)).accepted(200).await;
    assert_eq!(
        beat(&server, &task, of(64 * 1024 + 1)).invalid().await,
        ["details"]
    );
    assert_eq!(
        types(&history(&server, &task).await)
            .iter()
            .filter(|kind| **kind == "ActivityHeartbeatRecorded")
            .count(),
        1
    );
}

#[tokio::test]
async fn progress_has_named_fields_and_an_alias() {
    let named =
        json!({"message": "half", "current": 1, "total": 2.5, "unit": "pages", "details": [1]});
    for (fields, progress) in [
        (named.clone(), named.clone()),
        (json!({"progress": named}), named.clone()),
        (
            json!({"progress": {"message": "half"}}),
            json!({"message": "half"}),
        ),
        (
            json!({"progress": {"message": "half", "other": 1}}),
            json!({"details": {"message": "half", "other": 1}}),
        ),
        (json!({"progress": 7}), json!({"details": 7})),
        (json!({"progress": [1, 2]}), json!({"details": [1, 2]})),
        (
            json!({"message": "x".repeat(280), "unit": "u".repeat(64)}),
            json!({"message": "x".repeat(280), "unit": "u".repeat(64)}),
        ),
    ] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        beat(&server, &task, fields.clone()).accepted(200).await;
        let events = history(&server, &task).await;
        assert_eq!(
            payload_of(&events, "ActivityHeartbeatRecorded")["progress"],
            progress,
            "{fields}"
        );
    }
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    for (fields, field) in [
        (json!({"message": "x".repeat(281)}), "message"),
        (json!({"message": 7}), "message"),
        (json!({"unit": "u".repeat(65)}), "unit"),
        (json!({"current": -1}), "current"),
        (json!({"current": "1"}), "current"),
        (json!({"total": -0.5}), "total"),
    ] {
        assert_eq!(beat(&server, &task, fields).invalid().await, [field]);
    }
    assert_eq!(
        types(&history(&server, &task).await).last(),
        Some(&"ActivityStarted")
    );
}

#[tokio::test]
async fn heartbeats_are_recorded_once_in_ten_seconds_with_the_newest_progress() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    let count = || async {
        let events = history(&server, &task).await;
        types(&events)
            .iter()
            .filter(|kind| **kind == "ActivityHeartbeatRecorded")
            .count()
    };
    for (seconds, details, expected) in [
        (0, 1, 1),
        (5, 1, 1),
        (0, 2, 1),
        (4, 3, 1),
        (1, 4, 2),
        (0, 5, 2),
    ] {
        server.advance(seconds).await;
        let answer = beat(&server, &task, json!({"details": details}))
            .accepted(200)
            .await;
        assert_eq!(answer["heartbeat_recorded"], true);
        assert_eq!(
            count().await,
            expected,
            "after {seconds} more seconds with {details}"
        );
    }
    server.advance(10).await;
    beat(&server, &task, json!({})).accepted(200).await;
    let events = history(&server, &task).await;
    let last = &events.last().expect("events")["payload"]["progress"];
    assert_eq!(*last, json!({"details": 5}), "what was said in between");
}

#[tokio::test]
async fn a_heartbeat_moves_the_deadline_of_silence() {
    let server = staffed().await;
    let task = running_activity(&server, json!({"heartbeat_timeout": 10})).await;
    for _ in 0..5 {
        server.advance(9).await;
        assert_eq!(
            beat(&server, &task, json!({})).accepted(200).await["can_continue"],
            true
        );
    }
    server.advance(10).await;
    let events = history(&server, &task).await;
    assert_eq!(
        payload_of(&events, "ActivityTimedOut")["timeout_kind"],
        "heartbeat"
    );
    let answer = beat(&server, &task, json!({})).accepted(200).await;
    assert_eq!(
        (&answer["can_continue"], &answer["heartbeat_recorded"]),
        (&json!(false), &json!(false))
    );
    let reason = answer["reason"].as_str().expect("a reason");
    assert!(
        ["stale_attempt", "attempt_closed"].contains(&reason),
        "{reason}"
    );
}

#[tokio::test]
async fn a_late_heartbeat_takes_the_task_back() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    server.advance(300).await;
    let answer = beat(&server, &task, json!({})).accepted(200).await;
    assert_eq!(
        (&answer["can_continue"], &answer["lease_expires_at"]),
        (&json!(true), &json!("2026-01-01T00:10:00.000000Z"))
    );
    crate::support::expect_no_task(&server, "activity").await;
    activity_report(&server, &task, "complete", json!({}))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_closed_attempt_must_not_continue() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    activity_report(&server, &task, "complete", json!({}))
        .accepted(200)
        .await;
    for verb in ["heartbeat", "status"] {
        let answer = activity_report(&server, &task, verb, json!({}))
            .accepted(200)
            .await;
        assert_eq!(
            (&answer["can_continue"], &answer["cancel_requested"]),
            (&json!(false), &json!(false)),
            "{verb}"
        );
        assert_eq!(
            (&answer["reason"], &answer["heartbeat_recorded"]),
            (&json!("attempt_closed"), &json!(false))
        );
    }
}

#[tokio::test]
async fn heartbeat_and_status_check_the_lease() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    for verb in ["heartbeat", "status"] {
        let mut unknown = task.clone();
        unknown["task_id"] = json!("01aaaaaaaaaaaaaaaaaaaaaaaa");
        activity_report(&server, &unknown, verb, json!({}))
            .refused(404, "task_not_found")
            .await;
        let nobodys = json!({"activity_attempt_id": "01aaaaaaaaaaaaaaaaaaaaaaaa"});
        activity_report(&server, &task, verb, nobodys)
            .refused(404, "attempt_not_found")
            .await;
        let refusal = activity_report(&server, &task, verb, json!({"lease_owner": "v"}))
            .refused(409, "lease_owner_mismatch")
            .await;
        assert_eq!(refusal["lease_owner"], "w");
        let alias = json!({"lease_owner": null, "worker_id": "w", "event": "heartbeat"});
        activity_report(&server, &task, verb, alias)
            .accepted(200)
            .await;
        for missing in ["activity_attempt_id", "lease_owner"] {
            assert_eq!(
                activity_report(&server, &task, verb, json!({missing: null}))
                    .invalid()
                    .await,
                [missing]
            );
        }
    }
}
