//! Activities that are tried again, and activities that ran out of time.

use serde_json::{Value, json};

use super::reports::{complete, fail};
use crate::support::{
    decided, expect_no_task, history, merge, payload_of, running_activity, staffed, types,
};

#[tokio::test]
async fn a_failed_activity_is_retried_by_its_policy() {
    let server = staffed().await;
    let first = running_activity(
        &server,
        json!({"retry_policy": {"max_attempts": 4, "backoff_seconds": [1, 5]}}),
    )
    .await;
    let mut task = first.clone();
    for (attempt, delay, at) in [(1, 1, "00:01"), (2, 5, "00:06"), (3, 5, "00:11")] {
        assert_eq!(task["attempt_number"], attempt);
        assert_eq!(
            task["activity_execution_id"], first["activity_execution_id"],
            "the key of idempotency stays"
        );
        let failure =
            json!({"message": "busy", "type": "Gateway", "class": "net.Gateway", "code": 503});
        let answer = fail(&server, &task, failure).accepted(200).await;
        assert_eq!(answer["retry_scheduled"], true);
        expect_no_task(&server, "workflow").await;
        let events = history(&server, &task).await;
        let mut scheduled = events.last().expect("an event")["payload"].clone();
        let policy = scheduled
            .as_object_mut()
            .and_then(|event| event.remove("retry_policy"));
        assert!(policy.is_none_or(|policy| policy["max_attempts"] == 4));
        assert_eq!(
            scheduled,
            json!({
                "activity_execution_id": first["activity_execution_id"],
                "activity_attempt_id": task["activity_attempt_id"],
                "activity_type": "say",
                "activity_class": "say",
                "sequence": 1,
                "retry_task_id": answer["next_task_id"],
                "retry_of_task_id": task["task_id"],
                "retry_available_at": format!("2026-01-01T00:{at}.000000Z"),
                "retry_backoff_seconds": delay,
                "retry_after_attempt_id": task["activity_attempt_id"],
                "retry_after_attempt": attempt,
                "retry_reason": "failure",
                "max_attempts": 4,
                "exception_type": "Gateway",
                "exception_class": "net.Gateway",
                "message": "busy",
                "code": 503,
            })
        );
        server.advance(delay - 1).await;
        expect_no_task(&server, "activity").await;
        server.advance(1).await;
        let next = server.worker("w").activity_task().await;
        assert_eq!(next["task_id"], answer["next_task_id"]);
        assert_ne!(next["activity_attempt_id"], task["activity_attempt_id"]);
        task = next;
    }
    let answer = fail(&server, &task, json!({"message": "busy"}))
        .accepted(200)
        .await;
    assert_eq!(answer["retry_scheduled"], false);
    let events = history(&server, &task).await;
    assert_eq!(payload_of(&events, "ActivityFailed")["attempt_number"], 4);
    assert_eq!(
        server.worker("w").workflow_task().await["activity_attempt_id"],
        task["activity_attempt_id"]
    );
}

#[tokio::test]
async fn an_unlimited_policy_retries_and_no_policy_means_one_attempt() {
    let server = staffed().await;
    let mut task = running_activity(&server, json!({"retry_policy": {"max_attempts": null}})).await;
    for attempt in 1..20 {
        assert_eq!(task["attempt_number"], attempt);
        fail(&server, &task, json!({"message": "no"}))
            .accepted(200)
            .await;
        task = server.worker("w").activity_task().await;
    }
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    assert_eq!(
        fail(&server, &task, json!({"message": "no"}))
            .accepted(200)
            .await["retry_scheduled"],
        false
    );
}

#[tokio::test]
async fn non_retryable_failures_are_not_retried() {
    for failure in [
        json!({"non_retryable": true}),
        json!({"retryable": false}),
        json!({"type": "Listed"}),
        json!({"class": "Listed"}),
    ] {
        let server = staffed().await;
        let policy = json!({"retry_policy": {"max_attempts": 5, "non_retryable_error_types": ["Other", "Listed"]}});
        let task = running_activity(&server, policy).await;
        let mut failure = failure;
        merge(&mut failure, json!({"message": "no"}));
        assert_eq!(
            fail(&server, &task, failure.clone()).accepted(200).await["retry_scheduled"],
            false,
            "{failure}"
        );
        let events = history(&server, &task).await;
        assert_eq!(
            payload_of(&events, "ActivityFailed")["non_retryable"],
            true,
            "{failure}"
        );
    }
}

/// Returns the payload of the last event and the reason of the late report, after `seconds`.
async fn timed_out(fields: Value, is_claimed: bool, seconds: u64) -> Value {
    let server = staffed().await;
    let mut command = json!({"type": "schedule_activity", "activity_type": "say"});
    merge(&mut command, fields);
    let task = decided(&server, json!([command])).await;
    let claimed = if is_claimed {
        Some(server.worker("w").activity_task().await)
    } else {
        None
    };
    server.advance(seconds - 1).await;
    assert_ne!(
        types(&history(&server, &task).await).last(),
        Some(&"ActivityTimedOut")
    );
    server.advance(1).await;
    let events = history(&server, &task).await;
    assert_eq!(types(&events).last(), Some(&"ActivityTimedOut"));
    expect_no_task(&server, "activity").await;
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_event_type"],
        "ActivityTimedOut"
    );
    if let Some(claimed) = claimed {
        let answer = complete(&server, &claimed, json!({})).send().await;
        let reason = answer.text("reason");
        assert!(
            answer.status == 409 && ["stale_attempt", "attempt_closed"].contains(&reason.as_str()),
            "{}",
            answer.body
        );
    }
    payload_of(&events, "ActivityTimedOut").clone()
}

#[tokio::test]
async fn the_four_timeouts_end_an_activity() {
    let policy = json!({"max_attempts": 3});
    for (fields, is_claimed, kind) in [
        (
            json!({"schedule_to_start_timeout": 10}),
            false,
            "schedule_to_start",
        ),
        (
            json!({"start_to_close_timeout": 10}),
            true,
            "start_to_close",
        ),
        (
            json!({"schedule_to_close_timeout": 10, "retry_policy": policy}),
            true,
            "schedule_to_close",
        ),
        (
            json!({"schedule_to_close_timeout": 10, "retry_policy": policy}),
            false,
            "schedule_to_close",
        ),
        (json!({"heartbeat_timeout": 10}), true, "heartbeat"),
    ] {
        let event = timed_out(fields, is_claimed, 10).await;
        assert_eq!(event["timeout_kind"], kind);
        assert_eq!(event["failure_category"], "timeout");
        assert!(
            event["message"].is_string() && event["failure_id"].is_string(),
            "{event}"
        );
        assert_eq!(
            (&event["sequence"], &event["activity_type"]),
            (&json!(1), &json!("say"))
        );
    }
}

#[tokio::test]
async fn a_timed_out_attempt_is_retried_if_the_policy_allows_it() {
    let server = staffed().await;
    let fields = json!({"start_to_close_timeout": 10, "retry_policy": {"max_attempts": 2, "backoff_seconds": [5]}});
    let task = running_activity(&server, fields).await;
    server.advance(10).await;
    let events = history(&server, &task).await;
    let scheduled = payload_of(&events, "ActivityRetryScheduled");
    assert_eq!(
        (&scheduled["timeout_kind"], &scheduled["retry_reason"]),
        (&json!("start_to_close"), &json!("timeout"))
    );
    assert_eq!(
        scheduled["retry_available_at"],
        "2026-01-01T00:00:15.000000Z"
    );
    complete(&server, &task, json!({}))
        .refused(409, "stale_attempt")
        .await;
    server.advance(5).await;
    let again = server.worker("w").activity_task().await;
    assert_eq!(again["attempt_number"], 2);
    complete(&server, &again, json!({})).accepted(200).await;
}

#[tokio::test]
async fn no_retry_begins_after_the_schedule_to_close_timeout() {
    let server = staffed().await;
    let fields = json!({"schedule_to_close_timeout": 10, "retry_policy": {"max_attempts": 5, "backoff_seconds": [10]}});
    let task = running_activity(&server, fields).await;
    let answer = fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    assert_eq!(answer["retry_scheduled"], false);
    payload_of(&history(&server, &task).await, "ActivityFailed");
}
