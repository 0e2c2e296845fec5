//! Local activities whose attempts are written down as they happen.

use std::sync::Arc;

use http::Method;
use longhaul_host::Config;
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use crate::support::contract::local_activity_errors;
use crate::support::{
    Call, Server, complete, envelope, every_type, expect_no_task, fail, history, id, leased, merge,
    payload_of, report, signal, stop, types,
};

const EVERY_TYPE: &str = "durable_local_activities";

async fn register(server: &Server, worker_id: &str) {
    let fields = json!({"supported_workflow_types": [], "supported_activity_types": [],
        "capabilities": [EVERY_TYPE]});
    server.register(worker_id, fields).await;
}

async fn durable_task() -> (Server, Value) {
    let server = Server::open().await;
    register(&server, "w").await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    (server, task)
}

fn descriptor(fields: Value) -> Value {
    let mut descriptor = json!({"type": "record_local_activity", "activity_type": "charge",
        "execution_mode": "local", "arguments": envelope("[1]"), "payload_codec": "avro"});
    merge(&mut descriptor, fields);
    descriptor
}

fn call<'a>(server: &'a Server, task: &Value, rest: &str, fields: Value) -> Call<'a> {
    report(server, task, &format!("local-activities/{rest}"), fields)
}

fn prepare<'a>(server: &'a Server, task: &Value, sequence: u64, fields: Value) -> Call<'a> {
    let name = format!("{}-{}-{sequence}", id(task), task["workflow_task_attempt"]);
    let body =
        json!({"sequence": sequence, "worker_attempt_id": name, "descriptor": descriptor(fields)});
    call(server, task, "prepare", body)
}

fn of_attempt<'a>(
    server: &'a Server,
    task: &Value,
    prepared: &Value,
    verb: &str,
    fields: Value,
) -> Call<'a> {
    let attempt = prepared["activity_attempt_id"]
        .as_str()
        .expect("an attempt");
    call(server, task, &format!("{attempt}/{verb}"), fields)
}

fn control<'a>(server: &'a Server, task: &Value, prepared: &Value) -> Call<'a> {
    of_attempt(
        server,
        task,
        prepared,
        "control",
        json!({"renew_lease": true}),
    )
}

fn completed<'a>(server: &'a Server, task: &Value, prepared: &Value) -> Call<'a> {
    let report = json!({"outcome": "completed", "result": envelope("7"), "payload_codec": "avro"});
    of_attempt(server, task, prepared, "outcome", json!({"report": report}))
}

fn failed<'a>(server: &'a Server, task: &Value, prepared: &Value, kind: &str) -> Call<'a> {
    let report = json!({"outcome": "failed", "message": "no", "exception_type": kind, "non_retryable": false});
    of_attempt(server, task, prepared, "outcome", json!({"report": report}))
}

fn recover<'a>(server: &'a Server, task: &Value, fields: Value) -> Call<'a> {
    call(
        server,
        task,
        "recover",
        json!({"sequence": 1, "descriptor": descriptor(fields)}),
    )
}

/// Returns the types of all events except the two of the start.
async fn written(server: &Server, task: &Value) -> Vec<String> {
    let events = history(server, task).await;
    types(&events[2..]).into_iter().map(str::to_owned).collect()
}

async fn last_payload(server: &Server, task: &Value) -> Value {
    let events = history(server, task).await;
    events.last().expect("an event")["payload"].clone()
}

fn retried(attempts: u64, backoff: Value) -> Value {
    json!({"retry_policy": {"max_attempts": attempts, "backoff_seconds": backoff}})
}

/// A worker that sends `history_after` gets the newer events with every response; others do not.
#[tokio::test]
async fn new_events_are_returned_on_request() {
    let (server, task) = durable_task().await;
    let begin = |after: Value| {
        let mut body =
            json!({"sequence": 1, "worker_attempt_id": "a", "descriptor": descriptor(json!({}))});
        merge(&mut body, after);
        call(&server, &task, "prepare", body)
    };
    let prepared = begin(json!({"history_after": 2})).accepted(200).await;
    let new = prepared["history_events"].as_array().expect("events");
    assert_eq!(types(new), ["ActivityScheduled", "ActivityStarted"]);
    assert_eq!(prepared["next_history_page_token"], Value::Null);
    let recorded = history(&server, &task).await;
    for (new, recorded) in new.iter().zip(&recorded[2..]) {
        assert_eq!(
            (&new["id"], &new["payload"]),
            (&recorded["id"], &recorded["payload"])
        );
    }
    let plain = begin(json!({})).accepted(200).await;
    assert_eq!(plain.get("history_events"), None);
    begin(json!({"history_after": -1}))
        .refused(422, "validation_failed")
        .await;
    let report = json!({"outcome": "completed", "result": envelope("7"), "payload_codec": "avro"});
    let fields = json!({"report": report, "history_after": 4});
    let ended = of_attempt(&server, &task, &prepared, "outcome", fields)
        .accepted(200)
        .await;
    let new = ended["history_events"].as_array().expect("events");
    assert_eq!(types(new), ["ActivityCompleted"]);
}

#[tokio::test]
async fn an_attempt_is_in_history_before_it_runs_and_its_result_after() {
    let (server, task) = durable_task().await;
    let first = prepare(&server, &task, 1, json!({})).accepted(200).await;
    assert_eq!(
        written(&server, &task).await,
        ["ActivityScheduled", "ActivityStarted"]
    );
    for (key, value) in [
        ("prepared", json!(true)),
        ("duplicate", json!(false)),
        ("reason", Value::Null),
        ("workflow_task_id", task["task_id"].clone()),
        ("workflow_task_attempt", json!(1)),
        ("lease_owner", json!("w")),
        ("attempt_number", json!(1)),
        ("server_time", json!("2026-01-01T00:00:00.000000Z")),
        ("lease_expires_at", json!("2026-01-01T00:05:00.000000Z")),
        ("start_to_close_deadline_at", Value::Null),
        ("schedule_to_close_deadline_at", Value::Null),
        ("heartbeat_deadline_at", Value::Null),
        ("cancellation_cleanup", Value::Null),
        ("history_refresh_page_token", json!("MA==")),
    ] {
        assert_eq!(first.get(key), Some(&value), "{key}");
    }
    let again = prepare(&server, &task, 1, json!({})).accepted(200).await;
    assert_eq!(again["duplicate"], true);
    assert_eq!(again["activity_attempt_id"], first["activity_attempt_id"]);
    assert_eq!(
        again["activity_execution_id"],
        first["activity_execution_id"]
    );
    assert_eq!(written(&server, &task).await.len(), 2);

    let ended = completed(&server, &task, &first).accepted(200).await;
    assert_eq!(ended["event_type"], "ActivityCompleted");
    assert_eq!(ended["claim_released"], false);
    assert_eq!(ended["created_task_ids"], json!([]));
    assert_eq!(ended["recorded"], true);
    assert_eq!(ended["workflow_run_id"], task["run_id"]);
    let events = history(&server, &task).await;
    let event = events.last().expect("an event");
    assert_eq!(event["id"], ended["event_id"]);
    assert_eq!(event["payload"]["result"], envelope("7"));
    for event in &events[2..] {
        let payload = &event["payload"];
        for marked in [payload, &payload["activity"]] {
            assert_eq!(
                local_activity_errors("localActivityHistoryMarker", marked),
                Vec::<String>::new()
            );
        }
    }
    let repeat = completed(&server, &task, &first).accepted(200).await;
    assert_eq!(repeat["duplicate"], true);
    assert_eq!(repeat["event_id"], ended["event_id"]);

    // The worker reads what was written under its claim, and goes on.
    let page = report(
        &server,
        &task,
        "history",
        json!({"next_history_page_token": "MA=="}),
    )
    .accepted(200)
    .await;
    assert_eq!(page["history_events"].as_array().map(Vec::len), Some(5));
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    expect_no_task(&server, "activity").await;
}

#[tokio::test]
async fn commands_before_the_call_are_recorded_first() {
    let (server, task) = durable_task().await;
    prepare(&server, &task, 2, json!({}))
        .refused(409, "local_activity_command_prefix_not_recorded")
        .await;
    let commands = json!([{"type": "record_side_effect", "result": envelope("1")}]);
    let body = json!({"checkpoint_id": "c1", "start_sequence": 1, "commands": commands});
    let first = call(&server, &task, "checkpoint", body.clone())
        .accepted(200)
        .await;
    for (key, value) in [
        ("checkpointed", json!(true)),
        ("duplicate", json!(false)),
        ("reason", Value::Null),
        ("checkpoint_id", json!("c1")),
        ("task_id", task["task_id"].clone()),
        ("workflow_run_id", task["run_id"].clone()),
        ("workflow_task_attempt", json!(1)),
        ("lease_owner", json!("w")),
        ("start_sequence", json!(1)),
        ("next_sequence", json!(2)),
    ] {
        assert_eq!(first.get(key), Some(&value), "{key}");
    }
    let again = call(&server, &task, "checkpoint", body).accepted(200).await;
    assert_eq!(again["duplicate"], true);
    assert_eq!(written(&server, &task).await, ["SideEffectRecorded"]);
    prepare(&server, &task, 2, json!({})).accepted(200).await;
    let other = json!({"checkpoint_id": "c2", "start_sequence": 1, "commands": [{"type": "start_timer", "delay_seconds": 1}]});
    call(&server, &task, "checkpoint", other)
        .refused(409, "local_activity_preparation_mismatch")
        .await;
    let early = json!({"checkpoint_id": "c3", "start_sequence": 9, "commands": [{"type": "start_timer", "delay_seconds": 1}]});
    call(&server, &task, "checkpoint", early)
        .refused(409, "local_activity_command_prefix_not_recorded")
        .await;
    let closing = json!({"checkpoint_id": "c4", "start_sequence": 3, "commands": [{"type": "complete_workflow"}]});
    assert_eq!(
        call(&server, &task, "checkpoint", closing).invalid().await,
        ["commands.0.type"]
    );
}

#[tokio::test]
async fn a_recorded_call_is_not_prepared_as_another() {
    let (server, task) = durable_task().await;
    let commands = json!([{"type": "schedule_activity", "activity_type": "charge"}]);
    let body = json!({"checkpoint_id": "c", "start_sequence": 1, "commands": commands});
    call(&server, &task, "checkpoint", body).accepted(200).await;
    prepare(&server, &task, 1, json!({}))
        .refused(409, "local_activity_preparation_mismatch")
        .await;
    let first = prepare(&server, &task, 2, json!({})).accepted(200).await;
    for changed in [
        json!({"activity_type": "refund"}),
        json!({"arguments": envelope("[2]")}),
        json!({"start_to_close_timeout": 5}),
        json!({"retry_policy": {"max_attempts": 3}}),
    ] {
        prepare(&server, &task, 2, changed)
            .refused(409, "local_activity_preparation_mismatch")
            .await;
    }
    let other_name =
        json!({"sequence": 2, "worker_attempt_id": "x", "descriptor": descriptor(json!({}))});
    call(&server, &task, "prepare", other_name)
        .refused(409, "local_activity_previous_attempt_unresolved")
        .await;
    control(&server, &task, &first).accepted(200).await;
}

#[tokio::test]
async fn a_failure_releases_the_task_and_its_retry_is_a_task_that_is_due_later() {
    let (server, task) = durable_task().await;
    let options = retried(4, json!([5, 2]));
    let mut task_now = task.clone();
    for (number, delay) in [(1, 5), (2, 2), (3, 2)] {
        let attempt = prepare(&server, &task_now, 1, options.clone())
            .accepted(200)
            .await;
        assert_eq!(attempt["attempt_number"], number);
        let ended = failed(&server, &task_now, &attempt, "Busy")
            .accepted(200)
            .await;
        assert_eq!(ended["event_type"], "ActivityRetryScheduled");
        assert_eq!(ended["claim_released"], true);
        let created = ended["created_task_ids"].as_array().expect("a list");
        assert_eq!(created.len(), 1);
        let again = failed(&server, &task_now, &attempt, "Busy")
            .accepted(200)
            .await;
        assert_eq!(
            (&again["duplicate"], &again["event_id"]),
            (&json!(true), &ended["event_id"])
        );
        let retry = last_payload(&server, &task).await;
        assert_eq!(retry["retry_backoff_seconds"], delay);
        assert_eq!(retry["retry_reason"], "failure");
        assert_eq!(retry["retry_task_id"], created[0]);
        assert_eq!(retry["retry_of_task_id"], task_now["task_id"]);
        assert_eq!(retry["exception_type"], "Busy");
        assert_eq!(retry["max_attempts"], 4);
        assert_eq!(retry["activity_attempt"]["status"], "failed");
        complete(&server, &task_now, json!([{"type": "complete_workflow"}]))
            .refused(409, "task_not_leased")
            .await;
        server.advance(delay - 1).await;
        expect_no_task(&server, "workflow").await;
        server.advance(1).await;
        task_now = server.worker("w").workflow_task().await;
        assert_eq!(task_now["task_id"], created[0]);
        assert_eq!(
            local_activity_errors("localActivityWorkflowTaskPayload", &task_now),
            Vec::<String>::new()
        );
        assert_eq!(task_now["workflow_wait_kind"], "local_activity");
        let execution = attempt["activity_execution_id"].as_str().expect("an id");
        assert_eq!(
            task_now["open_wait_id"],
            format!("local-activity:{execution}")
        );
        assert_eq!(task_now["resume_source_id"], execution);
        assert_eq!(task_now["activity_type"], "charge");
        assert_eq!(task_now["workflow_sequence"], 1);
        expect_no_task(&server, "workflow").await;
    }
    let last = prepare(&server, &task_now, 1, options).accepted(200).await;
    assert_eq!(last["attempt_number"], 4);
    let ended = failed(&server, &task_now, &last, "Busy")
        .accepted(200)
        .await;
    assert_eq!(ended["event_type"], "ActivityFailed");
    assert_eq!(ended["claim_released"], false);
    let failure = last_payload(&server, &task).await;
    assert_eq!(failure["failure_category"], "application");
    assert_eq!(failure["non_retryable"], false);
    complete(&server, &task_now, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_waiting_poll_is_woken_when_a_retry_is_due() {
    let (server, task) = durable_task().await;
    let attempt = prepare(&server, &task, 1, retried(2, json!([3])))
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    let waiting = server
        .worker("w")
        .poll("workflow", json!({"timeout_seconds": 30}))
        .send();
    let moved = async {
        server.advance(2).await;
        server.advance(1).await;
    };
    let (answer, ()) = tokio::join!(waiting, moved);
    assert_eq!(leased(answer)["workflow_wait_kind"], "local_activity");
}

#[tokio::test]
async fn a_failure_without_a_retry_ends_the_call() {
    let policy =
        json!({"retry_policy": {"max_attempts": 3, "non_retryable_error_types": ["Declined"]}});
    let (server, task) = durable_task().await;
    let attempt = prepare(&server, &task, 1, policy).accepted(200).await;
    let ended = failed(&server, &task, &attempt, "Declined")
        .accepted(200)
        .await;
    assert_eq!(ended["event_type"], "ActivityFailed");
    assert_eq!(last_payload(&server, &task).await["non_retryable"], true);
}

#[tokio::test]
async fn a_late_result_is_a_timeout() {
    let (server, task) = durable_task().await;
    let mut options = retried(2, json!([0]));
    merge(&mut options, json!({"start_to_close_timeout": 10}));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    assert_eq!(
        attempt["start_to_close_deadline_at"],
        "2026-01-01T00:00:10.000000Z"
    );
    server.clock.advance_seconds(10);
    let ended = completed(&server, &task, &attempt).accepted(200).await;
    assert_eq!(ended["event_type"], "ActivityRetryScheduled");
    let retry = last_payload(&server, &task).await;
    assert_eq!(
        (&retry["retry_reason"], &retry["timeout_kind"]),
        (&json!("timeout"), &json!("start_to_close"))
    );
    let second = server.worker("w").workflow_task().await;
    let attempt = prepare(&server, &second, 1, options).accepted(200).await;
    server.clock.advance_seconds(10);
    let ended = failed(&server, &second, &attempt, "Late")
        .accepted(200)
        .await;
    assert_eq!(ended["event_type"], "ActivityTimedOut");
    let timed_out = last_payload(&server, &task).await;
    assert_eq!(timed_out["timeout_kind"], "start_to_close");
    assert_eq!(
        timed_out["close_deadline_at"],
        "2026-01-01T00:00:20.000000Z"
    );
}

#[tokio::test]
async fn no_retry_goes_past_the_end_of_the_whole_call() {
    let (server, task) = durable_task().await;
    let mut options = retried(3, json!([5, 30]));
    merge(&mut options, json!({"schedule_to_close_timeout": 20}));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    server.advance(5).await;
    let second = server.worker("w").workflow_task().await;
    let attempt = prepare(&server, &second, 1, options.clone())
        .accepted(200)
        .await;
    // Thirty seconds would end after the twenty.
    let ended = failed(&server, &second, &attempt, "Busy")
        .accepted(200)
        .await;
    assert_eq!(ended["event_type"], "ActivityFailed");

    let (server, task) = durable_task().await;
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    // No worker takes the retry before the schedule-to-close timeout.
    server.advance(20).await;
    let events = history(&server, &task).await;
    assert_eq!(
        payload_of(&events, "ActivityTimedOut")["timeout_kind"],
        "schedule_to_close"
    );
    let next = server.worker("w").workflow_task().await;
    assert_eq!(next["workflow_event_type"], "ActivityTimedOut");
    assert_eq!(next["workflow_wait_kind"], "local_activity");
    expect_no_task(&server, "workflow").await;
    complete(&server, &next, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn heartbeats_move_one_deadline_and_control_moves_none() {
    let (server, task) = durable_task().await;
    let options = json!({"heartbeat_timeout": 10, "start_to_close_timeout": 60, "schedule_to_close_timeout": 90});
    let attempt = prepare(&server, &task, 1, options).accepted(200).await;
    assert_eq!(
        attempt["heartbeat_deadline_at"],
        "2026-01-01T00:00:10.000000Z"
    );
    server.advance(5).await;
    let pulse = control(&server, &task, &attempt).accepted(200).await;
    for (key, value) in [
        ("active", json!(true)),
        ("renewed", json!(true)),
        ("stop_required", json!(false)),
        ("reason", Value::Null),
        ("lease_owner", json!("w")),
        (
            "activity_attempt_id",
            attempt["activity_attempt_id"].clone(),
        ),
        ("lease_expires_at", json!("2026-01-01T00:05:05.000000Z")),
        (
            "workflow_lease_expires_at",
            json!("2026-01-01T00:05:05.000000Z"),
        ),
        (
            "heartbeat_deadline_at",
            json!("2026-01-01T00:00:10.000000Z"),
        ),
        (
            "start_to_close_deadline_at",
            json!("2026-01-01T00:01:00.000000Z"),
        ),
        (
            "schedule_to_close_deadline_at",
            json!("2026-01-01T00:01:30.000000Z"),
        ),
        ("heartbeat_recorded", json!(false)),
        ("heartbeat_history_event_id", Value::Null),
        ("run_status", json!("running")),
        ("task_status", json!("leased")),
        ("server_time", json!("2026-01-01T00:00:05.000000Z")),
    ] {
        assert_eq!(pulse.get(key), Some(&value), "{key}");
    }
    assert_eq!(
        written(&server, &task).await.len(),
        2,
        "control is no history"
    );
    let progress = json!({"progress": {"details": {"phase": "auth"}}});
    let pulse = of_attempt(&server, &task, &attempt, "heartbeat", progress)
        .accepted(200)
        .await;
    assert_eq!(pulse["heartbeat_recorded"], true);
    assert_eq!(pulse["renewed"], false);
    assert_eq!(
        pulse["heartbeat_deadline_at"],
        "2026-01-01T00:00:15.000000Z"
    );
    assert_eq!(
        pulse["start_to_close_deadline_at"],
        "2026-01-01T00:01:00.000000Z"
    );
    let events = history(&server, &task).await;
    let event = events.last().expect("an event");
    assert_eq!(event["id"], pulse["heartbeat_history_event_id"]);
    assert_eq!(
        event["payload"]["progress"],
        json!({"details": {"phase": "auth"}})
    );
    assert_eq!(
        event["payload"]["lease_expires_at"],
        "2026-01-01T00:05:05.000000Z"
    );
}

#[tokio::test]
async fn missing_heartbeats_time_out() {
    let (server, task) = durable_task().await;
    let mut options = retried(2, json!([0]));
    merge(&mut options, json!({"heartbeat_timeout": 10}));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    server.advance(10).await;
    let retry = last_payload(&server, &task).await;
    assert_eq!(
        (&retry["retry_reason"], &retry["timeout_kind"]),
        (&json!("timeout"), &json!("heartbeat"))
    );
    of_attempt(&server, &task, &attempt, "heartbeat", json!({}))
        .refused(409, "stale_activity_attempt")
        .await;
    completed(&server, &task, &attempt)
        .refused(409, "stale_activity_attempt")
        .await;
    let second = server.worker("w").workflow_task().await;
    let attempt = prepare(&server, &second, 1, options).accepted(200).await;
    assert_eq!(attempt["attempt_number"], 2);
    server.advance(10).await;
    assert_eq!(
        last_payload(&server, &task).await["timeout_kind"],
        "heartbeat"
    );
    let next = server.worker("w").workflow_task().await;
    assert_eq!(next["workflow_event_type"], "ActivityTimedOut");
    complete(&server, &next, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_lost_worker_leaves_an_attempt_that_another_finds() {
    for (attempts, event_type) in [(2, "ActivityRetryScheduled"), (1, "ActivityFailed")] {
        let (server, task) = durable_task().await;
        let options = retried(attempts, json!([]));
        let attempt = prepare(&server, &task, 1, options.clone())
            .accepted(200)
            .await;
        recover(&server, &task, options.clone())
            .refused(409, "local_activity_previous_attempt_live")
            .await;
        server.advance(300).await;
        register(&server, "v").await;
        let taken = server.worker("v").workflow_task().await;
        assert_eq!(
            (&taken["task_id"], &taken["workflow_task_attempt"]),
            (&task["task_id"], &json!(2))
        );
        prepare(&server, &taken, 1, options.clone())
            .refused(409, "local_activity_previous_attempt_unresolved")
            .await;
        let recovered = recover(&server, &taken, options.clone())
            .accepted(200)
            .await;
        for (key, value) in [
            ("recovered", json!(true)),
            ("duplicate", json!(false)),
            ("reason", Value::Null),
            ("workflow_task_id", taken["task_id"].clone()),
            (
                "activity_execution_id",
                attempt["activity_execution_id"].clone(),
            ),
            (
                "activity_attempt_id",
                attempt["activity_attempt_id"].clone(),
            ),
            ("callback_stop_state", json!("unknown")),
            ("event_type", json!(event_type)),
            ("claim_released", json!(attempts == 2)),
        ] {
            assert_eq!(recovered.get(key), Some(&value), "{key}");
        }
        let again = recover(&server, &taken, options.clone())
            .accepted(200)
            .await;
        assert_eq!(again["duplicate"], true);
        let payload = last_payload(&server, &task).await;
        assert_eq!(
            payload["local_recovery"],
            json!({"version": 1, "workflow_task_id": taken["task_id"], "workflow_task_attempt": 2, "lease_owner": "v",
                "original_workflow_task_id": task["task_id"], "original_workflow_task_attempt": 1,
                "original_lease_owner": "w", "original_lease_expires_at": "2026-01-01T00:05:00.000000Z",
                "callback_stop_state": "unknown"})
        );
        assert_eq!(payload["activity_attempt"]["status"], "expired");
        let before = history(&server, &task).await;
        let late = completed(&server, &task, &attempt).send().await;
        assert_eq!(late.status.as_u16(), 409, "{}", late.body);
        assert_eq!(history(&server, &task).await, before);
        if attempts == 2 {
            assert_eq!(payload["retry_reason"], "cold_replay");
            let next = server.worker("v").workflow_task().await;
            let second = prepare(&server, &next, 1, options).accepted(200).await;
            assert_eq!(second["attempt_number"], 2);
            completed(&server, &next, &second).accepted(200).await;
        } else {
            complete(&server, &taken, json!([{"type": "complete_workflow"}]))
                .accepted(200)
                .await;
        }
    }
}

#[tokio::test]
async fn an_attempt_ends_at_once_if_its_worker_leaves_or_fails_the_task() {
    let (server, task) = durable_task().await;
    let options = retried(3, json!([]));
    prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    fail(&server, &task, json!({"message": "sorry"}))
        .accepted(200)
        .await;
    server.advance(1).await;
    let again = server.worker("w").workflow_task().await;
    recover(&server, &again, options.clone())
        .accepted(200)
        .await;
    let next = server.worker("w").workflow_task().await;
    prepare(&server, &next, 1, options.clone())
        .accepted(200)
        .await;
    register(&server, "v").await;
    server
        .worker_call(Method::DELETE, "/registrations/w")
        .accepted(200)
        .await;
    let taken = server.worker("v").workflow_task().await;
    let recovered = recover(&server, &taken, options.clone())
        .accepted(200)
        .await;
    assert_eq!(recovered["event_type"], "ActivityRetryScheduled");
    let fields = json!({"lease_owner": "w"});
    let last = server.worker("v").workflow_task().await;
    let mut body =
        json!({"sequence": 1, "worker_attempt_id": "n", "descriptor": descriptor(options)});
    merge(&mut body, fields);
    call(&server, &last, "prepare", body)
        .refused(409, "stale_worker_registration")
        .await;
}

#[tokio::test]
async fn a_task_of_something_else_does_not_begin_a_retry_early() {
    let (server, task) = durable_task().await;
    let options = retried(2, json!([60]));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    signal(&server, "go", json!([])).await;
    let ordinary = server.worker("w").workflow_task().await;
    assert_eq!(ordinary["workflow_wait_kind"], "signal");
    // A worker may complete the task without a command.
    fail(
        &server,
        &ordinary,
        json!({"message": "waits", "type": "WorkflowTaskWaitingForHistory"}),
    )
    .accepted(200)
    .await;
    expect_no_task(&server, "workflow").await;
    signal(&server, "go", json!([])).await;
    let ordinary = server.worker("w").workflow_task().await;
    let refused = prepare(&server, &ordinary, 1, options.clone())
        .refused(409, "local_activity_retry_not_due")
        .await;
    assert_eq!(refused["claim_released"], true);
    expect_no_task(&server, "workflow").await;
    assert_eq!(
        written(&server, &task)
            .await
            .iter()
            .filter(|name| *name == "ActivityStarted")
            .count(),
        1
    );
    server.advance(60).await;
    let due = server.worker("w").workflow_task().await;
    assert_eq!(due["workflow_wait_kind"], "local_activity");
    let reused = json!({"sequence": 1, "worker_attempt_id": attempt["worker_attempt_id"], "descriptor": descriptor(options.clone())});
    call(&server, &due, "prepare", reused)
        .refused(409, "local_activity_retry_worker_attempt_reused")
        .await;
    let second = prepare(&server, &due, 1, options).accepted(200).await;
    completed(&server, &due, &second).accepted(200).await;
}

#[tokio::test]
async fn a_due_retry_waits_for_the_leased_task_and_replaces_a_ready_one() {
    let (server, task) = durable_task().await;
    let options = retried(2, json!([10]));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    signal(&server, "go", json!([])).await;
    let ordinary = server.worker("w").workflow_task().await;
    server.advance(10).await;
    expect_no_task(&server, "workflow").await;
    fail(
        &server,
        &ordinary,
        json!({"message": "waits", "type": "WorkflowTaskWaitingForHistory"}),
    )
    .accepted(200)
    .await;
    let due = server.worker("w").workflow_task().await;
    assert_eq!(due["workflow_wait_kind"], "local_activity");
    let second = prepare(&server, &due, 1, options.clone())
        .accepted(200)
        .await;
    completed(&server, &due, &second).accepted(200).await;
    complete(&server, &due, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;

    let (server, task) = durable_task().await;
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    signal(&server, "go", json!([])).await;
    server.advance(10).await;
    // Both are ready; whichever is leased sees everything, and the other is not handed out beside it.
    let first = server.worker("w").workflow_task().await;
    expect_no_task(&server, "workflow").await;
    let second = prepare(&server, &first, 1, options).accepted(200).await;
    assert_eq!(second["attempt_number"], 2);
    completed(&server, &first, &second).accepted(200).await;
    complete(&server, &first, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    expect_no_task(&server, "workflow").await;
}

#[tokio::test]
async fn a_stopped_run_cancels_its_local_activity_once() {
    for verb in ["cancel", "terminate"] {
        for in_backoff in [false, true] {
            let (server, task) = durable_task().await;
            let attempt = prepare(&server, &task, 1, retried(2, json!([60])))
                .accepted(200)
                .await;
            if in_backoff {
                failed(&server, &task, &attempt, "Busy").accepted(200).await;
            }
            stop(&server, verb).await;
            let events = history(&server, &task).await;
            let cancelled = payload_of(&events, "ActivityCancelled");
            assert_eq!(cancelled["execution_mode"], "local");
            assert_eq!(cancelled["activity"]["status"], "cancelled");
            assert!(cancelled["workflow_command_id"].is_string());
            assert_eq!(cancelled.get("activity_attempt_id").is_some(), !in_backoff);
            let refused = control(&server, &task, &attempt)
                .refused(409, "run_closed")
                .await;
            assert_eq!(refused["cancel_requested"], true);
            completed(&server, &task, &attempt)
                .refused(409, "run_closed")
                .await;
            server.advance(60).await;
            expect_no_task(&server, "workflow").await;
            assert_eq!(history(&server, &task).await, events);
        }
    }
}

#[tokio::test]
async fn a_run_that_ends_by_itself_closes_its_local_activity_silently() {
    let (server, task) = durable_task().await;
    let attempt = prepare(&server, &task, 1, json!({})).accepted(200).await;
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    assert_eq!(
        written(&server, &task).await,
        ["ActivityScheduled", "ActivityStarted", "WorkflowCompleted"]
    );
    let refused = control(&server, &task, &attempt)
        .refused(409, "run_closed")
        .await;
    assert_eq!(refused["cancel_requested"], false);
}

#[tokio::test]
async fn two_workers_cannot_begin_one_attempt() {
    let (server, task) = durable_task().await;
    let (one, two) = tokio::join!(
        prepare(&server, &task, 1, json!({})).send(),
        prepare(&server, &task, 1, json!({})).send()
    );
    let duplicates = [&one, &two]
        .iter()
        .filter(|answer| answer.body["duplicate"] == true)
        .count();
    assert_eq!(duplicates, 1);
    assert_eq!(
        one.body["activity_attempt_id"],
        two.body["activity_attempt_id"]
    );
    assert_eq!(
        written(&server, &task).await,
        ["ActivityScheduled", "ActivityStarted"]
    );
}

#[tokio::test]
async fn payload_size_and_pending_activities_are_limited() {
    let server = Server::configured(|config| {
        config.limits.payload_bytes = 64;
        config.limits.pending_activities = 1;
    })
    .await;
    register(&server, "w").await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let large = envelope(&format!("\"{}\"", "x".repeat(100)));
    let refused = prepare(&server, &task, 1, json!({"arguments": large}))
        .refused(422, "structural_limit_exceeded")
        .await;
    assert_eq!(refused["limit_kind"], "payload_size");
    let attempt = prepare(&server, &task, 1, retried(3, json!([])))
        .accepted(200)
        .await;
    let refused = prepare(&server, &task, 2, json!({}))
        .refused(422, "structural_limit_exceeded")
        .await;
    assert_eq!(refused["limit_kind"], "pending_activity_count");
    let report = json!({"outcome": "completed", "result": large});
    let ended = of_attempt(
        &server,
        &task,
        &attempt,
        "outcome",
        json!({"report": report}),
    )
    .accepted(200)
    .await;
    assert_eq!(ended["event_type"], "ActivityFailed");
    let failure = last_payload(&server, &task).await;
    assert_eq!(failure["failure_category"], "structural_limit");
    assert_eq!(failure["non_retryable"], true);
    assert_eq!(failure["structural_limit_kind"], "payload_size");
}

#[tokio::test]
async fn only_a_capable_worker_gets_the_retry() {
    let (server, task) = durable_task().await;
    server.register("inline", every_type()).await;
    let fields = json!({"supported_workflow_types": [], "supported_activity_types": [],
        "capabilities": ["cooperative_cancellation", "prepared_local_activities"]});
    server.register("python", fields).await;
    let options = retried(2, json!([5]));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    server.advance(5).await;
    let answer = server
        .worker("inline")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "empty");
    let taken = server.worker("python").workflow_task().await;
    let second = prepare(&server, &taken, 1, options).accepted(200).await;
    // The unfinished attempt keeps others away, also when its worker is lost.
    server.advance(300).await;
    let answer = server
        .worker("inline")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "empty");
    let found = server.worker("w").workflow_task().await;
    recover(&server, &found, retried(2, json!([5])))
        .accepted(200)
        .await;
    completed(&server, &taken, &second)
        .refused(409, "workflow_claim_mismatch")
        .await;
    // Finished, the run is anybody's again.
    signal(&server, "go", json!([])).await;
    complete(
        &server,
        &found,
        json!([{"type": "start_timer", "delay_seconds": 1}]),
    )
    .accepted(200)
    .await;
    server.worker("inline").workflow_task().await;
}

#[tokio::test]
async fn claims_are_checked_before_anything_else() {
    let (server, task) = durable_task().await;
    for (fields, reason) in [
        (json!({"lease_owner": "x"}), "stale_worker_registration"),
        (
            json!({"workflow_task_attempt": 2}),
            "workflow_claim_mismatch",
        ),
    ] {
        let mut body =
            json!({"sequence": 1, "worker_attempt_id": "n", "descriptor": descriptor(json!({}))});
        merge(&mut body, fields);
        call(&server, &task, "prepare", body)
            .refused(409, reason)
            .await;
    }
    register(&server, "v").await;
    let mut body =
        json!({"sequence": 1, "worker_attempt_id": "n", "descriptor": descriptor(json!({}))});
    merge(&mut body, json!({"lease_owner": "v"}));
    call(&server, &task, "prepare", body)
        .refused(409, "workflow_claim_mismatch")
        .await;
    let attempt = prepare(&server, &task, 1, json!({})).accepted(200).await;
    let unknown = json!({"activity_attempt_id": "unknown"});
    control(&server, &task, &unknown)
        .refused(404, "activity_attempt_not_found")
        .await;
    let body = json!({"lease_owner": "w", "workflow_task_attempt": 1, "renew_lease": true});
    server
        .worker_post("/workflow-tasks/nothing/local-activities/a/control", &body)
        .refused(404, "task_not_found")
        .await;
    server.clock.advance_seconds(300);
    control(&server, &task, &attempt)
        .refused(409, "workflow_claim_expired")
        .await;
    server.advance(0).await;
    control(&server, &task, &attempt)
        .refused(409, "workflow_claim_expired")
        .await;

    let server = Server::open().await;
    register(&server, "w").await;
    let body = json!({"workflow_id": "wf", "workflow_type": "greet", "task_queue": "default", "run_timeout_seconds": 60});
    server.post("/workflows", &body).accepted(201).await;
    let task = server.worker("w").workflow_task().await;
    server.clock.advance_seconds(60);
    prepare(&server, &task, 1, json!({}))
        .refused(409, "run_deadline_expired")
        .await;
}

#[tokio::test]
async fn malformed_calls_name_their_fields() {
    let (server, task) = durable_task().await;
    for (fields, path) in [
        (json!({"sequence": 0}), "sequence"),
        (json!({"worker_attempt_id": null}), "worker_attempt_id"),
        (
            json!({"worker_attempt_id": "x".repeat(256)}),
            "worker_attempt_id",
        ),
        (json!({"descriptor": null}), "descriptor"),
        (
            json!({"descriptor": descriptor(json!({"outcome": "completed"}))}),
            "descriptor.outcome",
        ),
        (
            json!({"descriptor": descriptor(json!({"execution_mode": "remote"}))}),
            "descriptor.execution_mode",
        ),
        (
            json!({"descriptor": descriptor(json!({"queue": "q"}))}),
            "descriptor.queue",
        ),
        (
            json!({"descriptor": descriptor(json!({"heartbeat_timeout": 0}))}),
            "descriptor.heartbeat_timeout",
        ),
        (json!({"lease_owner": null}), "lease_owner"),
    ] {
        let mut body =
            json!({"sequence": 1, "worker_attempt_id": "n", "descriptor": descriptor(json!({}))});
        merge(&mut body, fields);
        let faults = call(&server, &task, "prepare", body).invalid().await;
        assert!(
            faults.iter().any(|fault| fault == path),
            "{path}: {faults:?}"
        );
    }
    let attempt = prepare(&server, &task, 1, json!({})).accepted(200).await;
    for (report, path) in [
        (Value::Null, "report"),
        (json!({}), "report.outcome"),
        (json!({"outcome": "cancelled"}), "report.outcome"),
        (json!({"outcome": "failed"}), "report.message"),
        (json!({"outcome": "completed"}), "report.result"),
    ] {
        let faults = of_attempt(
            &server,
            &task,
            &attempt,
            "outcome",
            json!({"report": report}),
        )
        .invalid()
        .await;
        assert_eq!(faults, [path]);
    }
    assert_eq!(
        of_attempt(&server, &task, &attempt, "control", json!({}))
            .invalid()
            .await,
        ["renew_lease"]
    );
    assert_eq!(written(&server, &task).await.len(), 2);
}

#[tokio::test]
async fn a_back_off_survives_a_restart() {
    let store = Arc::new(Memory::new());
    let config = Config::default;
    let first = Server::on(store.clone(), config(), Auth::open(), Options::default()).await;
    register(&first, "w").await;
    first.start("wf").await;
    let task = first.worker("w").workflow_task().await;
    let attempt = prepare(&first, &task, 1, retried(2, json!([10])))
        .accepted(200)
        .await;
    failed(&first, &task, &attempt, "Busy").accepted(200).await;
    first.host.stop().await;
    let second = Server::on(store, config(), Auth::open(), Options::default()).await;
    second.advance(9).await;
    expect_no_task(&second, "workflow").await;
    second.advance(1).await;
    let due = second.worker("w").workflow_task().await;
    let retry = prepare(&second, &due, 1, retried(2, json!([10])))
        .accepted(200)
        .await;
    assert_eq!(retry["attempt_number"], 2);
}

#[tokio::test]
async fn a_deadline_is_kept_at_every_boundary() {
    let options = json!({"start_to_close_timeout": 5});
    // At a heartbeat, whether of the code or of the lease. The clock moves without the sweep that would notice it too.
    for verb in ["control", "heartbeat"] {
        let (server, task) = durable_task().await;
        let attempt = prepare(&server, &task, 1, options.clone())
            .accepted(200)
            .await;
        server.clock.advance_seconds(5);
        let fields = json!({"renew_lease": true});
        let refused = of_attempt(&server, &task, &attempt, verb, fields)
            .refused(409, "local_activity_deadline_expired")
            .await;
        assert_eq!(refused["claim_released"], true);
        let next = server.worker("w").workflow_task().await;
        assert_eq!(next["workflow_event_type"], "ActivityTimedOut");
    }
    // At the start of an attempt.
    let (server, task) = durable_task().await;
    let mut options = retried(3, json!([5]));
    merge(&mut options, json!({"schedule_to_close_timeout": 8}));
    let attempt = prepare(&server, &task, 1, options.clone())
        .accepted(200)
        .await;
    failed(&server, &task, &attempt, "Busy").accepted(200).await;
    server.advance(5).await;
    let retry = server.worker("w").workflow_task().await;
    server.clock.advance_seconds(3);
    prepare(&server, &retry, 1, options)
        .refused(409, "local_activity_deadline_expired")
        .await;
    let events = history(&server, &task).await;
    assert_eq!(
        payload_of(&events, "ActivityTimedOut")["timeout_kind"],
        "schedule_to_close"
    );
}
