//! What every command writes: keys and values of the events. Activity reports are in `activities`, the ends of runs in `closes`.

use serde_json::{Value, json};

use crate::support::{
    Server, activity_report, complete, decided, envelope, fail, history, merge, payload_of, signal,
    staffed, types,
};

/// Returns every event of the run, checked against the published schema and the rules for all events.
pub(in crate::worker) async fn checked_events(server: &Server, task: &Value) -> Vec<Value> {
    let schema: Value = serde_json::from_str(include_str!(
        "../../../contract/history-event-payloads.schema.json"
    ))
    .expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let events = history(server, task).await;
    let mut newest_call = 0;
    for (index, event) in events.iter().enumerate() {
        let errors: Vec<String> = schema
            .iter_errors(event)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}: {event}");
        assert_eq!(event["sequence"], index + 1);
        assert!(event.get("type").is_none(), "{event}");
        let payload = event["payload"].as_object().expect("an object");
        assert!(
            payload
                .get("payload_codec")
                .is_none_or(|codec| codec == "avro"),
            "{event}"
        );
        for (key, value) in payload {
            assert!(!value.is_null(), "{key} should be left out of {event}");
        }
        let is_scheduling = event["event_type"].as_str().is_some_and(|kind| {
            kind.ends_with("Opened")
                || kind.ends_with("Scheduled")
                    && !payload.contains_key("timer_kind")
                    && kind != "ActivityRetryScheduled"
        });
        if is_scheduling {
            let call = payload["sequence"].as_u64().expect("a number");
            assert!(
                call > newest_call,
                "calls appear in ascending order: {event}"
            );
            newest_call = call;
        }
    }
    events
}

/// Removes an id and checks that it is one.
pub(in crate::worker) fn take_id(payload: &mut Value, key: &str) -> String {
    let id = payload
        .as_object_mut()
        .and_then(|payload| payload.remove(key));
    let id = id.and_then(|id| id.as_str().map(str::to_owned));
    let id = id.unwrap_or_else(|| panic!("no {key} in {payload}"));
    assert_eq!(id.len(), 26, "{key}");
    id
}

/// Completes the first task with these commands and returns the payload of the only event of this type.
pub(in crate::worker) async fn recorded(commands: Value, event_type: &str) -> Value {
    let server = staffed().await;
    let task = decided(&server, commands).await;
    payload_of(&checked_events(&server, &task).await, event_type).clone()
}

#[tokio::test]
async fn a_start_writes_two_events() {
    let server = staffed().await;
    let run_id = server
        .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "run_timeout_seconds": 600, "execution_timeout_seconds": 3600}))
        .await;
    let task = server.worker("w").workflow_task().await;
    let events = checked_events(&server, &task).await;
    assert_eq!(types(&events), ["StartAccepted", "WorkflowStarted"]);
    let mut accepted = events[0]["payload"].clone();
    let command = take_id(&mut accepted, "workflow_command_id");
    assert_eq!(
        accepted,
        json!({"workflow_instance_id": "wf", "workflow_run_id": run_id, "workflow_type": "greet", "outcome": "started_new"})
    );
    let started = &events[1]["payload"];
    for (key, value) in [
        ("workflow_type", json!("greet")),
        ("workflow_instance_id", json!("wf")),
        ("workflow_run_id", json!(run_id)),
        ("workflow_command_id", json!(command)),
        ("execution_timeout_seconds", json!(3600)),
        ("run_timeout_seconds", json!(600)),
        (
            "execution_deadline_at",
            json!("2026-01-01T01:00:00.000000Z"),
        ),
        ("run_deadline_at", json!("2026-01-01T00:10:00.000000Z")),
    ] {
        assert_eq!(started[key], value, "{key}");
    }
    assert!(started.get("timestamp").is_none());
}

#[tokio::test]
async fn a_scheduled_activity_is_recorded_with_its_options() {
    let command = json!({
        "type": "schedule_activity", "activity_type": "charge", "queue": "payments", "arguments": envelope("[1]"),
        "retry_policy": {"max_attempts": 3, "backoff_seconds": [1, 2], "non_retryable_error_types": []},
        "start_to_close_timeout": 30, "schedule_to_close_timeout": 90,
    });
    let mut payload = recorded(json!([command]), "ActivityScheduled").await;
    let execution = take_id(&mut payload, "activity_execution_id");
    let snapshot = payload["activity"].as_object_mut().expect("a snapshot");
    for informative in ["created_at", "arguments"] {
        snapshot.remove(informative);
    }
    assert_eq!(
        payload,
        json!({
            "activity_type": "charge", "activity_class": "charge", "sequence": 1,
            "activity": {
                "id": execution, "idempotency_key": execution, "sequence": 1, "type": "charge", "class": "charge",
                "local_activity": false, "status": "pending", "attempt_count": 0, "payload_codec": "avro", "queue": "payments",
                "retry_policy": {
                    "snapshot_version": 1, "max_attempts": 3, "backoff_seconds": [1, 2], "start_to_close_timeout": 30,
                    "schedule_to_start_timeout": null, "schedule_to_close_timeout": 90, "heartbeat_timeout": null,
                    "non_retryable_error_types": [],
                },
            },
        })
    );
}

#[tokio::test]
async fn no_default_is_put_into_the_policy_of_an_activity() {
    let scheduled = |fields: Value| async {
        let mut command = json!({"type": "schedule_activity", "activity_type": "say"});
        merge(&mut command, fields);
        recorded(json!([command]), "ActivityScheduled").await["activity"].clone()
    };
    let plain = scheduled(json!({})).await;
    assert!(
        plain.get("retry_policy").is_none() && plain.get("worker_session").is_none(),
        "{plain}"
    );
    let unlimited = scheduled(json!({"retry_policy": {"max_attempts": null}})).await;
    assert_eq!(
        unlimited["retry_policy"].get("max_attempts"),
        Some(&Value::Null)
    );
    assert_eq!(unlimited["retry_policy"]["backoff_seconds"], json!([]));
    let timeout_only = scheduled(json!({"start_to_close_timeout": 5})).await;
    assert_eq!(timeout_only["retry_policy"]["max_attempts"], 1);
    assert_eq!(timeout_only["retry_policy"]["start_to_close_timeout"], 5);
}

#[tokio::test]
async fn a_claimed_attempt_is_recorded() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    let activity = server.worker("w").activity_task().await;
    let events = checked_events(&server, &activity).await;
    let mut started = payload_of(&events, "ActivityStarted").clone();
    started
        .as_object_mut()
        .expect("a payload")
        .remove("lease_expires_at");
    assert_eq!(
        started,
        json!({
            "activity_execution_id": activity["activity_execution_id"], "activity_attempt_id": activity["activity_attempt_id"],
            "activity_type": "say", "activity_class": "say", "sequence": 1, "attempt_number": 1,
        })
    );
}

#[tokio::test]
async fn a_timer_is_recorded_from_start_to_end() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "start_timer", "delay_seconds": 30}]),
    )
    .await;
    server.advance(29).await;
    assert_eq!(
        types(&history(&server, &task).await)[2..],
        ["TimerScheduled"]
    );
    server.advance(1).await;
    let events = checked_events(&server, &task).await;
    let mut scheduled = payload_of(&events, "TimerScheduled").clone();
    let timer = take_id(&mut scheduled, "timer_id");
    assert_eq!(
        scheduled,
        json!({"sequence": 1, "delay_seconds": 30, "fire_at": "2026-01-01T00:00:30.000000Z"})
    );
    assert_eq!(
        payload_of(&events, "TimerFired"),
        &json!({"timer_id": timer, "sequence": 1, "delay_seconds": 30, "fire_at": "2026-01-01T00:00:30.000000Z", "fired_at": "2026-01-01T00:00:30.000000Z"})
    );
}

#[tokio::test]
async fn a_timer_without_delay_fires_at_once() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "start_timer", "delay_seconds": 0}]),
    )
    .await;
    assert_eq!(
        types(&checked_events(&server, &task).await)[2..],
        ["TimerScheduled", "TimerFired"]
    );
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_wait_kind"],
        "timer"
    );
}

#[tokio::test]
async fn a_satisfied_condition_wait_is_recorded() {
    let server = staffed().await;
    let wait = json!({
        "type": "open_condition_wait", "condition_key": "ready", "condition_definition_fingerprint": "sha256:1",
        "condition_wait_occurrence_id": "rust:condition-wait:0", "timeout_seconds": 60,
    });
    let task = decided(&server, json!([wait])).await;
    signal(&server, "go", json!([])).await;
    let woken = server.worker("w").workflow_task().await;
    complete(
        &server,
        &woken,
        json!([{"type": "start_timer", "delay_seconds": 5}]),
    )
    .accepted(200)
    .await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        types(&events)[2..],
        [
            "ConditionWaitOpened",
            "TimerScheduled",
            "SignalReceived",
            "ConditionWaitSatisfied",
            "TimerCancelled",
            "TimerScheduled"
        ]
    );
    let mut opened = events[2]["payload"].clone();
    let wait_id = take_id(&mut opened, "condition_wait_id");
    let common = json!({
        "condition_wait_occurrence_id": "rust:condition-wait:0", "condition_key": "ready",
        "condition_definition_fingerprint": "sha256:1", "sequence": 1, "timeout_seconds": 60,
    });
    assert_eq!(opened, common);
    let timer = &events[3]["payload"];
    assert_eq!(
        (&timer["timer_kind"], &timer["condition_wait_id"]),
        (&json!("condition_timeout"), &json!(wait_id))
    );
    assert_eq!(
        (&timer["sequence"], &timer["delay_seconds"]),
        (&json!(1), &json!(60))
    );
    let satisfied = &events[5]["payload"];
    for (key, value) in common.as_object().expect("fields") {
        assert_eq!(&satisfied[key], value, "{key}");
    }
    assert_eq!(
        (&satisfied["condition_wait_id"], &satisfied["timer_id"]),
        (&json!(wait_id), &timer["timer_id"])
    );
    let cancelled = &events[6]["payload"];
    assert_eq!(
        (&cancelled["timer_id"], &cancelled["timer_kind"]),
        (&timer["timer_id"], &json!("condition_timeout"))
    );
    assert_eq!(
        (
            &cancelled["condition_wait_id"],
            &cancelled["sequence"],
            &cancelled["delay_seconds"]
        ),
        (&json!(wait_id), &json!(1), &json!(60))
    );
    assert_eq!(cancelled["cancelled_at"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(events[7]["payload"]["sequence"], 2);
}

#[tokio::test]
async fn a_condition_timeout_is_only_a_fired_timer() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "open_condition_wait", "timeout_seconds": 10}]),
    )
    .await;
    server.advance(10).await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        types(&events)[2..],
        ["ConditionWaitOpened", "TimerScheduled", "TimerFired"]
    );
    let fired = &events[4]["payload"];
    assert_eq!(
        (&fired["timer_kind"], &fired["sequence"]),
        (&json!("condition_timeout"), &json!(1))
    );
    assert_eq!(
        fired["condition_wait_id"],
        events[2]["payload"]["condition_wait_id"]
    );
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "open_condition_wait", "timeout_seconds": 0}]),
    )
    .await;
    assert_eq!(
        types(&checked_events(&server, &task).await)[2..],
        ["ConditionWaitOpened", "TimerScheduled", "TimerFired"]
    );
}

#[tokio::test]
async fn a_timeout_does_not_come_while_a_task_is_being_decided() {
    let server = staffed().await;
    let wait = json!([{"type": "open_condition_wait", "timeout_seconds": 10}]);
    let task = decided(&server, wait.clone()).await;
    signal(&server, "go", json!([])).await;
    let woken = server.worker("w").workflow_task().await;
    server.advance(10).await;
    assert_eq!(
        types(&history(&server, &task).await)[4..],
        ["SignalReceived"]
    );
    complete(&server, &woken, wait).accepted(200).await;
    assert_eq!(
        types(&checked_events(&server, &task).await)[4..],
        ["SignalReceived", "TimerFired"]
    );
}

#[tokio::test]
async fn a_satisfied_signal_wait_is_recorded() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([{"type": "open_signal_wait", "signal_name": "go", "timeout_seconds": 60}]),
    )
    .await;
    let accepted = signal(&server, "go", json!(["alice"])).await;
    let woken = server.worker("w").workflow_task().await;
    complete(&server, &woken, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        types(&events)[2..],
        [
            "SignalWaitOpened",
            "TimerScheduled",
            "SignalReceived",
            "TimerCancelled",
            "SignalApplied",
            "WorkflowCompleted"
        ]
    );
    let mut opened = events[2]["payload"].clone();
    let wait = take_id(&mut opened, "signal_wait_id");
    assert_eq!(
        opened,
        json!({"signal_name": "go", "sequence": 1, "timeout_seconds": 60})
    );
    let timer = &events[3]["payload"];
    assert_eq!(
        (
            &timer["timer_kind"],
            &timer["signal_wait_id"],
            &timer["signal_name"]
        ),
        (&json!("signal_timeout"), &json!(wait), &json!("go"))
    );
    let mut received = events[4]["payload"].clone();
    let signal_id = take_id(&mut received, "signal_id");
    let arguments = envelope(r#"["alice"]"#);
    assert_eq!(
        received,
        json!({
            "workflow_command_id": accepted["command_id"], "workflow_instance_id": "wf", "workflow_run_id": task["run_id"],
            "signal_name": "go", "signal_wait_id": wait, "arguments": arguments, "payload_codec": "avro", "workflow_sequence": 1,
        })
    );
    assert_eq!(
        &events[6]["payload"],
        &json!({
            "workflow_command_id": accepted["command_id"], "signal_id": signal_id, "signal_name": "go", "signal_wait_id": wait,
            "sequence": 1, "value": arguments, "payload_codec": "avro",
        })
    );
}

#[tokio::test]
async fn a_signal_without_a_wait_is_recorded() {
    let server = staffed().await;
    server.start("wf").await;
    let accepted = signal(&server, "go", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    let events = checked_events(&server, &task).await;
    let received = payload_of(&events, "SignalReceived");
    let command = accepted["command_id"].as_str().expect("an id");
    assert_eq!(
        received["signal_wait_id"],
        format!("signal-command:{command}")
    );
    assert!(
        received.get("workflow_sequence").is_none() && received.get("sequence").is_none(),
        "{received}"
    );
    assert!(
        received.get("value").is_none() && received.get("input").is_none(),
        "{received}"
    );
}

#[tokio::test]
async fn values_that_workflow_code_records_are_in_history() {
    let marker = json!({"type": "record_version_marker", "change_id": "c", "version": 1, "min_supported": -1, "max_supported": 1});
    assert_eq!(
        recorded(
            json!([{"type": "record_side_effect", "result": envelope("5")}]),
            "SideEffectRecorded"
        )
        .await,
        json!({"sequence": 1, "result": envelope("5"), "payload_codec": "avro"})
    );
    assert_eq!(
        recorded(json!([marker]), "VersionMarkerRecorded").await,
        json!({"sequence": 1, "change_id": "c", "version": 1, "min_supported": -1, "max_supported": 1})
    );
}

#[tokio::test]
async fn search_attributes_are_merged_and_change_what_lists_show() {
    let server = staffed().await;
    let start = json!({"workflow_id": "wf", "workflow_type": "greet"});
    server.start_with(start).await;
    let task = server.worker("w").workflow_task().await;
    let first =
        json!({"type": "upsert_search_attributes", "attributes": {"Region": "eu", "Old": "x"}});
    let second = json!({"type": "upsert_search_attributes", "attributes": {"Tier": "gold", "Old": null}, "attribute_types": {"Tier": "keyword"}});
    complete(&server, &task, json!([first, second]))
        .accepted(200)
        .await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        events[2]["payload"],
        json!({"sequence": 1, "attributes": {"Region": "eu", "Old": "x"}, "merged": {"Old": "x", "Region": "eu"}})
    );
    assert_eq!(
        events[3]["payload"],
        json!({"sequence": 2, "attributes": {"Tier": "gold", "Old": null}, "merged": {"Region": "eu", "Tier": "gold"}, "attribute_types": {"Tier": "keyword"}})
    );
    let shown = server.get("/workflows/wf").accepted(200).await;
    assert_eq!(
        shown["search_attributes"],
        json!({"Region": "eu", "Tier": "gold"})
    );
}

#[tokio::test]
async fn memos_are_merged() {
    let server = staffed().await;
    let task = decided(
        &server,
        json!([
            {"type": "upsert_memo", "entries": envelope(r#"{"b":1,"a":2}"#)},
            {"type": "upsert_memo", "entries": envelope(r#"{"b":null,"c":3}"#)},
        ]),
    )
    .await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        events[2]["payload"],
        json!({"sequence": 1, "entries": envelope(r#"{"b":1,"a":2}"#), "merged": envelope(r#"{"a":2,"b":1}"#)})
    );
    assert_eq!(
        events[3]["payload"],
        json!({"sequence": 2, "entries": envelope(r#"{"b":null,"c":3}"#), "merged": envelope(r#"{"a":2,"c":3}"#)})
    );
}

#[tokio::test]
async fn a_grouped_call_keeps_its_group_on_every_event() {
    let group = |kind: &str, index: u64| {
        let entry = json!({
            "parallel_group_id": "parallel-calls:1:2", "parallel_group_kind": kind, "parallel_group_base_sequence": 1,
            "parallel_group_size": 2, "parallel_group_index": index,
        });
        let mut fields = entry.clone();
        fields["parallel_group_path"] = json!([entry]);
        fields
    };
    let mut activity = json!({"type": "schedule_activity", "activity_type": "say", "retry_policy": {"max_attempts": 2}});
    merge(&mut activity, group("mixed", 0));
    let mut timer = json!({"type": "start_timer", "delay_seconds": 30});
    merge(&mut timer, group("mixed", 1));
    let server = staffed().await;
    let task = decided(&server, json!([activity, timer])).await;
    let first = server.worker("w").activity_task().await;
    activity_report(&server, &first, "heartbeat", json!({"details": 1}))
        .accepted(200)
        .await;
    activity_report(
        &server,
        &first,
        "fail",
        json!({"failure": {"message": "no"}}),
    )
    .accepted(200)
    .await;
    let second = server.worker("w").activity_task().await;
    activity_report(&server, &second, "complete", json!({}))
        .accepted(200)
        .await;
    crate::support::expect_no_task(&server, "workflow").await;
    server.advance(30).await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        types(&events)[2..],
        [
            "ActivityScheduled",
            "TimerScheduled",
            "ActivityStarted",
            "ActivityHeartbeatRecorded",
            "ActivityRetryScheduled",
            "ActivityStarted",
            "ActivityCompleted",
            "TimerFired",
        ]
    );
    for event in &events[2..] {
        let index = event["payload"]["sequence"].as_u64().expect("a number") - 1;
        for (key, value) in group("mixed", index).as_object().expect("fields") {
            assert_eq!(&event["payload"][key], value, "{key} of {event}");
        }
    }
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_event_type"],
        "TimerFired",
        "all members are done"
    );
}

#[tokio::test]
async fn a_failed_task_writes_nothing() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    assert_eq!(checked_events(&server, &task).await.len(), 2);
}
