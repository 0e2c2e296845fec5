//! Why a workflow task exists: every field of the resume context, by its source.

use serde_json::{Value, json};

use crate::support::{
    RESUME_FIELDS, Server, activity_report, complete, decided, envelope, fail, history, payload_of,
    report, signal, staffed,
};

/// Checks that exactly these fields are set; all others are present and null.
pub(in crate::worker) fn expect_context(task: &Value, expected: &Value) {
    for field in RESUME_FIELDS {
        let found = task
            .get(field)
            .unwrap_or_else(|| panic!("{field} is missing"));
        let wanted = expected.get(field).unwrap_or(&Value::Null);
        assert_eq!(found, wanted, "{field}");
    }
    for field in expected.as_object().expect("fields").keys() {
        assert!(RESUME_FIELDS.contains(&field.as_str()), "{field}");
    }
}

/// Checks the context of the next task, and that it is the same when the task is delivered again.
pub(in crate::worker) async fn expect_context_also_after_redelivery(
    server: &Server,
    expected: &Value,
) {
    let task = server.worker("w").workflow_task().await;
    expect_context(&task, expected);
    fail(server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    server.advance(1).await;
    let again = server.worker("w").workflow_task().await;
    assert_eq!(again["task_id"], task["task_id"]);
    expect_context(&again, expected);
}

#[tokio::test]
async fn a_first_task_has_no_resume_context() {
    let server = staffed().await;
    server.start("wf").await;
    expect_context_also_after_redelivery(&server, &json!({})).await;
}

#[tokio::test]
async fn a_continued_run_has_no_resume_context() {
    let server = staffed().await;
    decided(&server, json!([{"type": "continue_as_new"}])).await;
    expect_context_also_after_redelivery(&server, &json!({})).await;
}

#[tokio::test]
async fn a_task_without_a_wait_has_no_resume_context() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "record_side_effect", "result": envelope("1")}]),
    )
    .await;
    expect_context_also_after_redelivery(&server, &json!({})).await;
}

#[tokio::test]
async fn an_activity_names_execution_attempt_and_event() {
    for (verb, fields, event_type) in [
        ("complete", json!({"result": 1}), "ActivityCompleted"),
        (
            "fail",
            json!({"failure": {"message": "no"}}),
            "ActivityFailed",
        ),
    ] {
        let server = staffed().await;
        decided(&server, json!([{"type": "start_timer", "delay_seconds": 900}, {"type": "schedule_activity", "activity_type": "say"}])).await;
        let activity = server.worker("w").activity_task().await;
        activity_report(&server, &activity, verb, fields)
            .accepted(200)
            .await;
        let execution = &activity["activity_execution_id"];
        let expected = json!({
            "workflow_wait_kind": "activity",
            "open_wait_id": format!("activity:{}", execution.as_str().expect("an id")),
            "resume_source_kind": "activity_execution",
            "resume_source_id": execution,
            "activity_execution_id": execution,
            "activity_attempt_id": activity["activity_attempt_id"],
            "activity_type": "say",
            "workflow_sequence": 2,
            "workflow_event_type": event_type,
        });
        expect_context_also_after_redelivery(&server, &expected).await;
    }
}

#[tokio::test]
async fn a_timed_out_activity_is_named_too() {
    let server = staffed().await;
    decided(&server, json!([{"type": "schedule_activity", "activity_type": "say", "schedule_to_start_timeout": 5}])).await;
    server.advance(5).await;
    let task = server.worker("w").workflow_task().await;
    let execution =
        payload_of(&history(&server, &task).await, "ActivityScheduled")["activity_execution_id"]
            .clone();
    let expected = json!({
        "workflow_wait_kind": "activity",
        "open_wait_id": format!("activity:{}", execution.as_str().expect("an id")),
        "resume_source_kind": "activity_execution",
        "resume_source_id": execution,
        "activity_execution_id": execution,
        "activity_type": "say",
        "workflow_sequence": 1,
        "workflow_event_type": "ActivityTimedOut",
    });
    expect_context(&task, &expected);
}

#[tokio::test]
async fn a_timer_names_itself() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "start_timer", "delay_seconds": 30}]),
    )
    .await;
    let timer = payload_of(&history(&server, &task).await, "TimerScheduled")["timer_id"].clone();
    server.advance(30).await;
    let expected = json!({
        "workflow_wait_kind": "timer",
        "open_wait_id": format!("timer:{}", timer.as_str().expect("an id")),
        "resume_source_kind": "timer",
        "resume_source_id": timer,
        "timer_id": timer,
        "workflow_sequence": 1,
        "workflow_event_type": "TimerFired",
    });
    expect_context_also_after_redelivery(&server, &expected).await;
}

#[tokio::test]
async fn a_condition_timeout_names_the_wait_and_what_it_waited_for() {
    for keyed in [true, false] {
        let server = staffed().await;
        let mut command = json!({"type": "open_condition_wait", "timeout_seconds": 30});
        if keyed {
            command["condition_key"] = json!("ready");
            command["condition_definition_fingerprint"] = json!("sha256:1");
        }
        let task = decided(&server, json!([command])).await;
        let events = history(&server, &task).await;
        let timer = payload_of(&events, "TimerScheduled")["timer_id"].clone();
        let wait = payload_of(&events, "ConditionWaitOpened")["condition_wait_id"].clone();
        server.advance(30).await;
        let mut expected = json!({
            "workflow_wait_kind": "condition",
            "open_wait_id": wait,
            "resume_source_kind": "timer",
            "resume_source_id": timer,
            "timer_id": timer,
            "condition_wait_id": wait,
            "workflow_sequence": 1,
            "workflow_event_type": "TimerFired",
        });
        if keyed {
            expected["condition_key"] = json!("ready");
            expected["condition_definition_fingerprint"] = json!("sha256:1");
        }
        expect_context_also_after_redelivery(&server, &expected).await;
    }
}

#[tokio::test]
async fn a_signal_wait_that_timed_out_names_wait_and_timer() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "open_signal_wait", "signal_name": "go", "timeout_seconds": 30}]),
    )
    .await;
    let events = history(&server, &task).await;
    let timer = payload_of(&events, "TimerScheduled")["timer_id"].clone();
    let wait = payload_of(&events, "SignalWaitOpened")["signal_wait_id"].clone();
    server.advance(30).await;
    let expected = json!({
        "workflow_wait_kind": "signal",
        "open_wait_id": wait,
        "resume_source_kind": "timer",
        "resume_source_id": timer,
        "timer_id": timer,
        "signal_wait_id": wait,
        "signal_name": "go",
        "workflow_sequence": 1,
        "workflow_event_type": "TimerFired",
    });
    expect_context_also_after_redelivery(&server, &expected).await;
}

/// The published Rust SDK treats a name without arguments as a received signal.
#[tokio::test]
async fn a_signal_wait_that_timed_out_gives_rust_no_name() {
    let server = with_rust_worker().await;
    let wait = json!([{"type": "open_signal_wait", "signal_name": "go", "timeout_seconds": 30}]);
    decided(&server, wait).await;
    server.advance(30).await;
    let task = server.worker("r").workflow_task().await;
    assert_eq!(task["workflow_wait_kind"], "signal");
    assert_eq!(
        (&task["signal_name"], &task["signal_arguments"]),
        (&Value::Null, &Value::Null)
    );
}

/// Worker `r` of the published Rust SDK.
async fn with_rust_worker() -> Server {
    let server = staffed().await;
    let every_type =
        json!({"runtime": "rust", "supported_workflow_types": [], "supported_activity_types": []});
    server.register("r", every_type).await;
    server
}

fn signal_context(accepted: &Value, signal_id: &Value) -> Value {
    json!({
        "workflow_wait_kind": "signal",
        "open_wait_id": format!("signal-application:{}", signal_id.as_str().expect("an id")),
        "resume_source_kind": "workflow_signal",
        "resume_source_id": signal_id,
        "workflow_signal_id": signal_id,
        "workflow_command_id": accepted["command_id"],
    })
}

#[tokio::test]
async fn a_signal_for_a_recorded_wait_is_handed_over_to_every_runtime() {
    for worker in ["w", "r"] {
        let server = with_rust_worker().await;
        let task = decided(
            &server,
            json!([{"type": "open_signal_wait", "signal_name": "go"}]),
        )
        .await;
        let accepted = signal(&server, "go", json!(["alice"])).await;
        let events = history(&server, &task).await;
        let wait = payload_of(&events, "SignalWaitOpened")["signal_wait_id"].clone();
        let received = payload_of(&events, "SignalReceived").clone();
        assert_eq!(received["signal_wait_id"], wait);
        let mut expected = signal_context(&accepted, &received["signal_id"]);
        expected["signal_name"] = json!("go");
        expected["signal_wait_id"] = wait.clone();
        expected["signal_arguments"] = envelope(r#"["alice"]"#);
        let woken = server.worker(worker).workflow_task().await;
        expect_context(&woken, &expected);
        // Lost, it is delivered again; completed, it is applied once.
        server.advance(300).await;
        let woken = server.worker(worker).workflow_task().await;
        expect_context(&woken, &expected);
        complete(
            &server,
            &woken,
            json!([{"type": "start_timer", "delay_seconds": 5}]),
        )
        .accepted(200)
        .await;
        let events = history(&server, &task).await;
        let applied = payload_of(&events, "SignalApplied");
        assert_eq!(
            (&applied["signal_wait_id"], &applied["sequence"]),
            (&wait, &json!(1))
        );
    }
}

#[tokio::test]
async fn a_signal_without_a_recorded_wait_has_its_name_only_for_other_runtimes_than_rust() {
    for (worker, named) in [("w", true), ("r", false)] {
        let server = with_rust_worker().await;
        let task = decided(&server, json!([{"type": "open_condition_wait"}])).await;
        let accepted = signal(&server, "go", json!([7])).await;
        let events = history(&server, &task).await;
        let received = payload_of(&events, "SignalReceived");
        let woken = server.worker(worker).workflow_task().await;
        let mut expected = signal_context(&accepted, &received["signal_id"]);
        if named {
            expected["signal_name"] = json!("go");
            expected["signal_arguments"] = envelope("[7]");
        }
        // The wait a signal names without being bound to one is that of its own command.
        expected["signal_wait_id"] = woken["signal_wait_id"].clone();
        expect_context(&woken, &expected);
    }
}

#[tokio::test]
async fn the_first_task_never_carries_a_signal_for_rust() {
    let server = with_rust_worker().await;
    server.start("wf").await;
    signal(&server, "go", json!([1])).await;
    let task = server.worker("r").workflow_task().await;
    expect_context(&task, &json!({}));
    assert_eq!(task["total_history_events"], 3);
    // The wait binds the buffered signal, and the next task delivers it.
    complete(
        &server,
        &task,
        json!([{"type": "open_signal_wait", "signal_name": "go"}]),
    )
    .accepted(200)
    .await;
    let next = server.worker("r").workflow_task().await;
    assert_eq!(
        (&next["signal_name"], &next["signal_arguments"]),
        (&json!("go"), &envelope("[1]"))
    );
    let events = history(&server, &task).await;
    assert_eq!(
        next["signal_wait_id"],
        payload_of(&events, "SignalWaitOpened")["signal_wait_id"]
    );
    assert!(
        next["signal_wait_id"]
            .as_str()
            .is_some_and(|id| id.starts_with("signal-command:"))
    );
}

#[tokio::test]
async fn one_signal_is_delivered_per_task_in_order() {
    let server = with_rust_worker().await;
    server.start("wf").await;
    for number in [1, 2] {
        signal(&server, "go", json!([number])).await;
    }
    let task = server.worker("r").workflow_task().await;
    let wait = json!([{"type": "open_signal_wait", "signal_name": "go"}]);
    complete(&server, &task, wait.clone()).accepted(200).await;
    let first = server.worker("r").workflow_task().await;
    assert_eq!(first["signal_arguments"], envelope("[1]"));
    complete(&server, &first, wait).accepted(200).await;
    let second = server.worker("r").workflow_task().await;
    assert_eq!(second["signal_arguments"], envelope("[2]"));
}

#[tokio::test]
async fn the_first_of_several_reasons_is_the_one_named() {
    let server = staffed().await;
    decided(&server, json!([{"type": "start_timer", "delay_seconds": 10}, {"type": "schedule_activity", "activity_type": "say"}])).await;
    let activity = server.worker("w").activity_task().await;
    server.advance(10).await;
    activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    signal(&server, "go", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["workflow_wait_kind"], "timer");
    report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    let answer = server
        .worker("w")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "empty");
}

#[tokio::test]
async fn an_update_names_itself_and_its_command() {
    let server = staffed().await;
    decided(&server, json!([{"type": "open_condition_wait"}])).await;
    let accepted = server
        .post("/workflows/wf/update/set", &json!({}))
        .accepted(202)
        .await;
    let update_id = accepted["update_id"].as_str().expect("an id");
    let expected = json!({
        "workflow_wait_kind": "update",
        "open_wait_id": format!("update:{update_id}"),
        "resume_source_kind": "workflow_update",
        "resume_source_id": update_id,
        "workflow_update_id": update_id,
        "update_name": "set",
        "workflow_command_id": accepted["command_id"],
    });
    expect_context_also_after_redelivery(&server, &expected).await;
}

#[tokio::test]
async fn a_child_names_its_call_its_run_and_its_event() {
    let server = staffed().await;
    let parent = decided(
        &server,
        json!([{"type": "start_child_workflow", "workflow_type": "child"}]),
    )
    .await;
    let child = server.worker("w").workflow_task().await;
    complete(&server, &child, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    server.advance(1).await;
    let events = history(&server, &parent).await;
    let call = payload_of(&events, "ChildRunStarted")["child_call_id"]
        .as_str()
        .expect("a call id");
    let expected = json!({
        "workflow_wait_kind": "child",
        "open_wait_id": format!("child:{call}"),
        "resume_source_kind": "child_workflow_run",
        "resume_source_id": child["run_id"],
        "child_call_id": call,
        "child_workflow_run_id": child["run_id"],
        "workflow_sequence": 1,
        "workflow_event_type": "ChildRunCompleted",
    });
    expect_context_also_after_redelivery(&server, &expected).await;
}
