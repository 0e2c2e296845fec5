//! Which commands a completion accepts, and how others are refused. What they write is in `events`.

use serde_json::{Value, json};

use crate::support::{
    Server, complete, envelope, expect_no_task, history, leased_task, merge, signal, types,
};

/// Returns one valid command of every type that the server advertises.
fn valid_commands() -> Vec<Value> {
    vec![
        json!({"type": "schedule_activity", "activity_type": "say"}),
        json!({"type": "start_timer", "delay_seconds": 5}),
        json!({"type": "record_local_activity", "activity_type": "say", "execution_mode": "local",
            "outcome": "completed", "result": envelope("1"),
            "attempts": [{"attempt_number": 1, "outcome": "completed"}]}),
        json!({"type": "record_side_effect", "result": envelope("1")}),
        json!({"type": "record_version_marker", "change_id": "c", "version": 1, "min_supported": -1, "max_supported": 1}),
        json!({"type": "upsert_search_attributes", "attributes": {"Tier": "gold"}}),
        json!({"type": "upsert_memo", "entries": envelope(r#"{"k":1}"#)}),
        json!({"type": "open_condition_wait"}),
        json!({"type": "open_signal_wait", "signal_name": "go"}),
        json!({"type": "start_child_workflow", "workflow_type": "child"}),
        json!({"type": "complete_workflow"}),
        json!({"type": "fail_workflow", "message": "no"}),
        json!({"type": "continue_as_new"}),
    ]
}

/// Returns a timer that is member `index` of a group of `size`.
pub(in crate::worker) fn grouped_timer(base: u64, size: u64, index: u64) -> Value {
    let mut command = json!({"type": "start_timer", "delay_seconds": 10 + index});
    merge(
        &mut command,
        group("parallel-timers", "timer", base, size, index),
    );
    command
}

fn group(prefix: &str, kind: &str, base: u64, size: u64, index: u64) -> Value {
    let entry = json!({
        "parallel_group_id": format!("{prefix}:{base}:{size}"),
        "parallel_group_kind": kind,
        "parallel_group_base_sequence": base,
        "parallel_group_size": size,
        "parallel_group_index": index,
    });
    let mut fields = entry.clone();
    fields["parallel_group_path"] = json!([entry]);
    fields
}

/// Returns the wrong fields of these commands, and checks that nothing was applied and the task is still leased.
async fn wrong_fields(commands: Value) -> Vec<String> {
    let (server, task) = leased_task().await;
    let fields = complete(&server, &task, commands).invalid().await;
    assert_eq!(history(&server, &task).await.len(), 2);
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    fields
}

#[tokio::test]
async fn only_advertised_commands_are_accepted() {
    let (server, task) = leased_task().await;
    let mut offered: Vec<Value> = task_commands(&server).await;
    // These speak about something that is recorded: they are wrong here, but known.
    for remark in [
        "complete_update",
        "fail_update",
        "cancel_selection_operation",
    ] {
        let place = offered.iter().position(|name| name == remark);
        offered.remove(place.unwrap_or_else(|| panic!("{remark} is offered")));
        let mut command = json!({"type": remark, "selection_group_id": "select-calls:1:2", "member_key": "a",
            "member_index": 0, "member_base_sequence": 1, "member_size": 1, "operation_kind": "timer",
            "operation_identity": "t", "update_id": "u"});
        if remark == "fail_update" {
            command["message"] = json!("no");
        }
        let (server, task) = leased_task().await;
        complete(&server, &task, json!([command]))
            .refused(422, "invalid_commands")
            .await;
    }
    let mut valid: Vec<Value> = valid_commands()
        .iter()
        .map(|command| command["type"].clone())
        .collect();
    offered.sort_by_key(Value::to_string);
    valid.sort_by_key(Value::to_string);
    assert_eq!(offered, valid, "one example per offered command");
    drop(task);
    for command in valid_commands() {
        let (server, task) = leased_task().await;
        complete(&server, &task, json!([command]))
            .accepted(200)
            .await;
    }
    for unknown in [
        "start_service_operation",
        "prepare_local_activity",
        "acknowledge_cancellation",
        "explode",
        "",
        "Start_Timer",
    ] {
        assert_eq!(
            wrong_fields(json!([{"type": unknown}])).await,
            ["commands.0.type"],
            "{unknown}"
        );
    }
}

async fn task_commands(server: &Server) -> Vec<Value> {
    let info = server.get("/cluster/info").accepted(200).await;
    let listed =
        &info["worker_protocol"]["server_capabilities"]["supported_workflow_task_commands"];
    listed.as_array().expect("a list").clone()
}

#[tokio::test]
async fn commands_must_be_a_list_of_at_least_one_object() {
    for commands in [json!([]), json!(null), json!({}), json!("x"), json!(1)] {
        assert_eq!(
            wrong_fields(commands.clone()).await,
            ["commands"],
            "{commands}"
        );
    }
    for entry in [json!(1), json!("start_timer"), json!(null), json!([])] {
        let wrong = wrong_fields(json!([entry])).await;
        assert!(wrong[0].starts_with("commands.0"), "{wrong:?}");
    }
    for command in [
        json!({}),
        json!({"type": 7}),
        json!({"type": null}),
        json!({"type": ["start_timer"]}),
    ] {
        assert_eq!(wrong_fields(json!([command])).await, ["commands.0.type"]);
    }
}

#[tokio::test]
async fn one_terminal_command_and_it_comes_last() {
    let timer = json!({"type": "start_timer", "delay_seconds": 5});
    let done = json!({"type": "complete_workflow"});
    let no = json!({"type": "fail_workflow", "message": "no"});
    let again = json!({"type": "continue_as_new"});
    for commands in [
        json!([done, timer]),
        json!([done, no]),
        json!([timer, done, again]),
        json!([again, again]),
        json!([no, timer, timer]),
    ] {
        let wrong = wrong_fields(commands.clone()).await;
        assert!(wrong[0].starts_with("commands"), "{commands}: {wrong:?}");
    }
}

#[tokio::test]
async fn required_fields_are_named_when_they_are_missing_or_wrong() {
    let marker = |fields: Value| {
        let mut command = json!({"type": "record_version_marker", "change_id": "c", "version": 0, "min_supported": -1, "max_supported": 1});
        merge(&mut command, fields);
        command
    };
    let cases = [
        (json!({"type": "schedule_activity"}), "activity_type"),
        (
            json!({"type": "schedule_activity", "activity_type": ""}),
            "activity_type",
        ),
        (
            json!({"type": "schedule_activity", "activity_type": 7}),
            "activity_type",
        ),
        (
            json!({"type": "schedule_activity", "activity_type": "x".repeat(256)}),
            "activity_type",
        ),
        (json!({"type": "start_timer"}), "delay_seconds"),
        (
            json!({"type": "start_timer", "delay_seconds": -1}),
            "delay_seconds",
        ),
        (
            json!({"type": "start_timer", "delay_seconds": 1.5}),
            "delay_seconds",
        ),
        (
            json!({"type": "start_timer", "delay_seconds": "5"}),
            "delay_seconds",
        ),
        (
            json!({"type": "start_timer", "delay_seconds": true}),
            "delay_seconds",
        ),
        (json!({"type": "record_side_effect"}), "result"),
        (
            json!({"type": "record_side_effect", "result": null}),
            "result",
        ),
        (marker(json!({"change_id": null})), "change_id"),
        (marker(json!({"change_id": ""})), "change_id"),
        (marker(json!({"version": null})), "version"),
        (marker(json!({"version": 2})), "version"),
        (marker(json!({"version": -2})), "version"),
        (
            marker(json!({"version": 3_000_000_000_i64, "max_supported": 3_000_000_001_i64})),
            "version",
        ),
        (marker(json!({"min_supported": null})), "min_supported"),
        (marker(json!({"max_supported": null})), "max_supported"),
        (json!({"type": "upsert_search_attributes"}), "attributes"),
        (
            json!({"type": "upsert_search_attributes", "attributes": {}}),
            "attributes",
        ),
        (
            json!({"type": "upsert_search_attributes", "attributes": []}),
            "attributes",
        ),
        (json!({"type": "upsert_memo"}), "entries"),
        (json!({"type": "open_signal_wait"}), "signal_name"),
        (
            json!({"type": "open_signal_wait", "signal_name": ""}),
            "signal_name",
        ),
        (
            json!({"type": "open_signal_wait", "signal_name": "go", "timeout_seconds": -1}),
            "timeout_seconds",
        ),
        (
            json!({"type": "open_condition_wait", "timeout_seconds": 1.5}),
            "timeout_seconds",
        ),
        (
            json!({"type": "open_condition_wait", "condition_key": 7}),
            "condition_key",
        ),
        (json!({"type": "fail_workflow"}), "message"),
        (json!({"type": "fail_workflow", "message": 7}), "message"),
        (
            json!({"type": "fail_workflow", "message": "no", "non_retryable": "yes"}),
            "non_retryable",
        ),
        (
            json!({"type": "fail_workflow", "message": "no", "exception": "text"}),
            "exception",
        ),
        (
            json!({"type": "continue_as_new", "workflow_type": 7}),
            "workflow_type",
        ),
    ];
    for (command, field) in cases {
        let wrong = wrong_fields(json!([command])).await;
        assert!(
            wrong
                .iter()
                .any(|wrong| wrong == &format!("commands.0.{field}")),
            "{command}: {wrong:?}"
        );
    }
}

#[tokio::test]
async fn policies_and_timeouts_of_activities_have_rules() {
    let cases = [
        (json!({"retry_policy": {"max_attempts": 0}}), "retry_policy"),
        (
            json!({"retry_policy": {"max_attempts": "3"}}),
            "retry_policy",
        ),
        (
            json!({"retry_policy": {"backoff_seconds": [-1]}}),
            "retry_policy",
        ),
        (
            json!({"retry_policy": {"backoff_seconds": "5"}}),
            "retry_policy",
        ),
        (
            json!({"retry_policy": {"non_retryable_error_types": [1]}}),
            "retry_policy",
        ),
        (json!({"retry_policy": []}), "retry_policy"),
        (
            json!({"start_to_close_timeout": 0}),
            "start_to_close_timeout",
        ),
        (
            json!({"schedule_to_start_timeout": 0}),
            "schedule_to_start_timeout",
        ),
        (
            json!({"schedule_to_close_timeout": -1}),
            "schedule_to_close_timeout",
        ),
        (json!({"heartbeat_timeout": 1.5}), "heartbeat_timeout"),
        (
            json!({"heartbeat_timeout": 10, "start_to_close_timeout": 5}),
            "heartbeat_timeout",
        ),
        (
            json!({"start_to_close_timeout": 10, "schedule_to_close_timeout": 5}),
            "start_to_close_timeout",
        ),
        (
            json!({"schedule_to_start_timeout": 10, "schedule_to_close_timeout": 5}),
            "schedule_to_start_timeout",
        ),
    ];
    for (fields, field) in cases {
        let mut command = json!({"type": "schedule_activity", "activity_type": "say"});
        merge(&mut command, fields);
        let wrong = wrong_fields(json!([command])).await;
        assert!(
            wrong[0].starts_with(&format!("commands.0.{field}")),
            "{command}: {wrong:?}"
        );
    }
}

#[tokio::test]
async fn a_field_that_belongs_to_another_command_is_refused_unless_it_is_null() {
    let timer = json!({"type": "start_timer", "delay_seconds": 5});
    let activity = json!({"type": "schedule_activity", "activity_type": "say"});
    let cases = [
        (&timer, "retry_policy", json!({"max_attempts": 2})),
        (&timer, "start_to_close_timeout", json!(5)),
        (&timer, "heartbeat_timeout", json!(5)),
        (&timer, "schedule_to_start_timeout", json!(5)),
        (&timer, "schedule_to_close_timeout", json!(5)),
        (&timer, "worker_session", json!({"session_id": "s"})),
        (&timer, "parent_close_policy", json!("abandon")),
        (&timer, "execution_timeout_seconds", json!(5)),
        (&timer, "run_timeout_seconds", json!(5)),
        (&timer, "non_retryable", json!(true)),
        (&timer, "timeout_seconds", json!(5)),
        (&timer, "arguments", envelope("[]")),
        (&timer, "result", envelope("1")),
        (&activity, "delay_seconds", json!(5)),
        (&activity, "timeout_seconds", json!(5)),
        (&activity, "parent_close_policy", json!("abandon")),
        (&activity, "run_timeout_seconds", json!(5)),
        (&activity, "non_retryable", json!(true)),
        (&activity, "result", envelope("1")),
    ];
    for (command, field, value) in cases {
        let with = |value: Value| {
            let mut command = command.clone();
            command[field] = value;
            json!([command])
        };
        assert_eq!(
            wrong_fields(with(value)).await,
            [format!("commands.0.{field}")]
        );
        let (server, task) = leased_task().await;
        complete(&server, &task, with(Value::Null))
            .accepted(200)
            .await;
    }
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let (server, task) = leased_task().await;
    let command = json!({"type": "start_timer", "delay_seconds": 5, "newer": {"than": "this"}, "observability_context": {}, "cancellation_scope_id": "root"});
    complete(&server, &task, json!([command]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn all_mistakes_are_reported_together() {
    let commands = json!([
        {"type": "start_timer", "delay_seconds": -1},
        {"type": "schedule_activity"},
        {"type": "complete_workflow", "result": {"codec": "json", "blob": "1"}},
    ]);
    assert_eq!(
        wrong_fields(commands).await,
        [
            "commands.0.delay_seconds",
            "commands.1.activity_type",
            "commands.2.result.codec"
        ]
    );
}

#[tokio::test]
async fn output_streams_are_refused() {
    let command = json!({"type": "record_side_effect", "result": envelope("1"), "workflow_stream": {"operation": "append"}});
    assert_eq!(
        wrong_fields(json!([command])).await,
        ["commands.0.workflow_stream"]
    );
}

#[tokio::test]
async fn a_repeated_condition_wait_opens_no_second_one() {
    let (server, task) = leased_task().await;
    let wait =
        json!([{"type": "open_condition_wait", "condition_key": "ready", "timeout_seconds": 60}]);
    complete(&server, &task, wait.clone()).accepted(200).await;
    let opened = history(&server, &task).await;
    assert_eq!(
        types(&opened)[2..],
        ["ConditionWaitOpened", "TimerScheduled"]
    );
    signal(&server, "go", json!([])).await;
    let woken = server.worker("w").workflow_task().await;
    let answer = complete(&server, &woken, wait).accepted(200).await;
    assert_eq!(
        (&answer["run_status"], &answer["reason"]),
        (&json!("waiting"), &Value::Null)
    );
    assert_eq!(
        types(&history(&server, &task).await)[4..],
        ["SignalReceived"]
    );
    expect_no_task(&server, "workflow").await;
}

#[tokio::test]
async fn a_repeated_group_is_no_new_one_and_a_different_one_is_refused() {
    let (server, task) = leased_task().await;
    let both = json!([grouped_timer(1, 2, 0), grouped_timer(1, 2, 1)]);
    complete(&server, &task, both.clone()).accepted(200).await;
    let recorded = history(&server, &task).await.len();
    signal(&server, "go", json!([])).await;
    let woken = server.worker("w").workflow_task().await;

    let mut other_kind = both.clone();
    other_kind[0] = json!({"type": "schedule_activity", "activity_type": "say"});
    merge(
        &mut other_kind[0],
        group("parallel-timers", "timer", 1, 2, 0),
    );
    let mut other_path = both.clone();
    for member in 0..2_u64 {
        let mut regrouped = group("parallel-calls", "mixed", 1, 2, member);
        regrouped["type"] = json!("start_timer");
        regrouped["delay_seconds"] = json!(10 + member);
        other_path[usize::try_from(member).expect("small")] = regrouped;
    }
    for different in [other_kind, other_path] {
        let refusal = complete(&server, &woken, different)
            .refused(422, "invalid_commands")
            .await;
        assert!(refusal["errors"].is_object(), "{refusal}");
        assert_eq!(refusal["recorded"], false);
    }
    assert_eq!(history(&server, &task).await.len(), recorded + 1);
    complete(&server, &woken, both).accepted(200).await;
    assert_eq!(history(&server, &task).await.len(), recorded + 1);
}

#[tokio::test]
async fn a_group_is_complete_and_numbered_like_its_members() {
    let member = grouped_timer;
    let mut unlike_its_path = member(1, 2, 0);
    unlike_its_path["parallel_group_size"] = json!(3);
    let mut wrong_id = member(1, 2, 0);
    wrong_id["parallel_group_id"] = json!("parallel-timers:1:9");
    wrong_id["parallel_group_path"][0]["parallel_group_id"] = json!("parallel-timers:1:9");
    for commands in [
        json!([member(1, 2, 0)]),
        json!([member(2, 2, 0), member(2, 2, 1)]),
        json!([member(1, 2, 1), member(1, 2, 0)]),
        json!([member(1, 2, 0), member(1, 2, 0)]),
        json!([unlike_its_path, member(1, 2, 1)]),
        json!([wrong_id, member(1, 2, 1)]),
    ] {
        let (server, task) = leased_task().await;
        let answer = complete(&server, &task, commands.clone()).send().await;
        assert_eq!(answer.status, 422, "{commands}");
        let reason = answer.text("reason");
        assert!(
            ["invalid_commands", "validation_failed"].contains(&reason.as_str()),
            "{reason}"
        );
        assert_eq!(history(&server, &task).await.len(), 2, "{commands}");
    }
    let (server, task) = leased_task().await;
    let refusal = complete(&server, &task, json!([member(2, 2, 0), member(2, 2, 1)]))
        .refused(422, "invalid_commands")
        .await;
    assert_eq!(refusal["outcome"], "rejected");
    complete(&server, &task, json!([member(1, 2, 0), member(1, 2, 1)]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_group_of_more_than_a_thousand_is_refused() {
    let commands: Vec<Value> = (0..1001)
        .map(|index| grouped_timer(1, 1001, index))
        .collect();
    let wrong = wrong_fields(json!(commands)).await;
    assert!(
        wrong[0].starts_with("commands.0.parallel_group"),
        "{:?}",
        &wrong[..1]
    );
}

#[tokio::test]
async fn a_change_keeps_its_first_version() {
    let marker = |version: i64| json!([{"type": "record_version_marker", "change_id": "c", "version": version, "min_supported": -1, "max_supported": 2}]);
    let (server, task) = leased_task().await;
    complete(&server, &task, marker(1)).accepted(200).await;
    let task = server.worker("w").workflow_task().await;
    let before = history(&server, &task).await.len();
    let refusal = complete(&server, &task, marker(2))
        .refused(422, "version_marker_conflict")
        .await;
    assert!(refusal["errors"].is_object(), "{refusal}");
    assert_eq!(refusal["recorded"], false);
    assert_eq!(history(&server, &task).await.len(), before);
    complete(&server, &task, marker(1)).accepted(200).await;
    assert_eq!(
        history(&server, &task).await.len(),
        before + 1,
        "the same version is recorded again"
    );
}

#[tokio::test]
async fn commands_are_applied_in_order_with_ascending_numbers() {
    let (server, task) = leased_task().await;
    let mut commands = valid_commands();
    commands.truncate(9);
    complete(&server, &task, json!(commands))
        .accepted(200)
        .await;
    let events = history(&server, &task).await;
    let recorded: Vec<(&str, u64)> = events[2..]
        .iter()
        .map(|event| {
            (
                event["event_type"].as_str().expect("a type"),
                event["payload"]["sequence"].as_u64().expect("a number"),
            )
        })
        .collect();
    assert_eq!(
        recorded,
        [
            ("ActivityScheduled", 1),
            ("TimerScheduled", 2),
            ("ActivityScheduled", 3),
            ("ActivityStarted", 3),
            ("ActivityCompleted", 3),
            ("SideEffectRecorded", 4),
            ("VersionMarkerRecorded", 5),
            ("SearchAttributesUpserted", 6),
            ("MemoUpserted", 7),
            ("ConditionWaitOpened", 8),
            ("SignalWaitOpened", 9),
        ]
    );
}
