//! Reading and writing the models: rules of members here, recorded answers of a real server in `recorded`.

mod recorded;

use serde_json::{Value, json};

use super::member::{Member, NODES_MAX, WRONG_MEMBERS_MAX};
use super::*;

fn read_ok<T: Member>(value: Value) -> T {
    read(value).unwrap()
}

#[track_caller]
fn wrong<T: Member + std::fmt::Debug>(value: Value) -> Vec<(String, String)> {
    read::<T>(value)
        .unwrap_err()
        .into_iter()
        .map(|member| (member.path, member.message))
        .collect()
}

#[test]
fn a_null_member_is_absent_and_has_its_default() {
    let definition: TaskDef = read_ok(json!({
        "name": "a", "retryCount": null, "retryLogic": null, "inputTemplate": null,
        "responseTimeoutSeconds": null, "unknown": null,
    }));
    assert_eq!(definition.retry_count, 3);
    assert_eq!(definition.retry_delay_seconds, 60);
    assert_eq!(definition.retry_logic, RetryLogic::Fixed);
    assert_eq!(definition.timeout_policy, TimeoutPolicy::TimeOutWorkflow);
    assert_eq!(definition.response_timeout_seconds, 3600);
    assert!(definition.other.is_empty());
}

#[test]
fn a_missing_response_timeout_is_at_most_the_timeout() {
    for (timeout, response) in [(0, 3600), (30, 30), (7200, 3600)] {
        let definition: TaskDef = read_ok(json!({"name": "a", "timeoutSeconds": timeout}));
        assert_eq!(definition.response_timeout_seconds, response);
    }
    let given: TaskDef =
        read_ok(json!({"name": "a", "timeoutSeconds": 30, "responseTimeoutSeconds": 40}));
    assert_eq!(given.response_timeout_seconds, 40);
}

#[test]
fn integers_may_arrive_as_floats_or_text() {
    let definition: TaskDef = read_ok(
        json!({"name": 7, "retryCount": 5.0, "timeoutSeconds": "12", "enforceSchema": "True"}),
    );
    assert_eq!(definition.name, "7");
    assert_eq!(definition.retry_count, 5);
    assert_eq!(definition.timeout_seconds, 12);
    assert!(definition.enforce_schema);
}

#[test]
fn every_wrong_member_is_named_with_its_path() {
    let found = wrong::<WorkflowDef>(json!({
        "name": "w",
        "timeoutPolicy": "RETRY",
        "tasks": [
            {"name": "a", "taskReferenceName": "a", "retryCount": 1.5},
            {"name": "s", "taskReferenceName": "s", "type": "SWITCH",
             "decisionCases": {"FR": [{"name": "b", "taskReferenceName": {}}, null]}},
            7,
        ],
    }));
    let expected = [
        ("tasks[0].retryCount", "must be an integer of 32 bits"),
        (
            "tasks[1].decisionCases.FR[0].taskReferenceName",
            "must be text",
        ),
        ("tasks[1].decisionCases.FR[1]", "must not be null"),
        ("tasks[2]", "must be an object"),
        ("timeoutPolicy", "must be one of TIME_OUT_WF, ALERT_ONLY"),
    ];
    assert_eq!(
        found,
        expected.map(|(path, message)| (path.to_owned(), message.to_owned()))
    );
}

#[test]
fn an_unknown_word_is_shown_with_the_known_ones() {
    let error = read::<TaskResult>(json!({"taskId": "t", "status": "DONE"})).unwrap_err();
    assert_eq!(error[0].path, "status");
    assert_eq!(error[0].invalid_value.as_deref(), Some("DONE"));
    assert!(error[0].message.contains("IN_PROGRESS, COMPLETED, FAILED"));
    let error = "done".parse::<WorkflowStatus>().unwrap_err();
    assert!(error.to_string().contains("RUNNING, PAUSED"));
}

#[test]
fn a_body_must_be_json_of_the_right_kind() {
    assert!(matches!(parse::<TaskDef>(b"{"), Err(ParseError::Syntax(_))));
    assert_eq!(
        wrong::<TaskDef>(json!([])),
        [(String::new(), "must be an object".to_owned())]
    );
    assert_eq!(
        wrong::<Vec<TaskDef>>(json!(null)),
        [(String::new(), "must not be null".to_owned())]
    );
    let deep = format!("{}1{}", "{\"input\":".repeat(10_000), "}".repeat(10_000));
    assert!(matches!(
        parse::<StartWorkflowRequest>(deep.as_bytes()),
        Err(ParseError::Syntax(_))
    ));
}

#[test]
fn deeply_nested_definitions_are_read_or_refused() {
    let nested = |depth: usize| {
        let open = r#"{"name":"l","taskReferenceName":"l","type":"DO_WHILE","loopOver":["#;
        let text = format!(
            r#"{{"name":"w","tasks":[{}{}]}}"#,
            open.repeat(depth),
            "]}".repeat(depth)
        );
        parse::<WorkflowDef>(text.as_bytes())
    };
    assert!(nested(60).is_ok());
    assert!(matches!(nested(1000), Err(ParseError::Syntax(_))));
}

#[test]
fn a_definition_with_too_many_nodes_is_refused() {
    let node = json!({"name": "a", "taskReferenceName": "a"});
    let branches = vec![json!([node]); NODES_MAX + 5];
    let found = wrong::<WorkflowDef>(json!({"name": "w", "tasks": [
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": branches},
    ]}));
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("at most 20000 tasks"), "{found:?}");
}

#[test]
fn the_number_of_reported_members_is_bounded() {
    let wrong = wrong::<Vec<String>>(Value::Array(vec![json!({}); 1_000_000]));
    assert_eq!(wrong.len(), WRONG_MEMBERS_MAX);
}

#[test]
fn unknown_members_of_definitions_are_kept_and_others_are_dropped() {
    let given = json!({
        "name": "w", "colour": {"a": null}, "tasks": [
            {"name": "a", "taskReferenceName": "a", "shape": [1, null],
             "subWorkflowParam": {"name": "x", "extra": 1}},
        ],
    });
    let written = serde_json::to_value(read_ok::<WorkflowDef>(given)).unwrap();
    assert_eq!(written["colour"], json!({"a": null}));
    assert_eq!(written["tasks"][0]["shape"], json!([1, null]));
    assert_eq!(
        written["tasks"][0]["subWorkflowParam"],
        json!({"name": "x", "extra": 1})
    );
    assert_eq!(written["tasks"][0].get("taskDefinition"), None);

    let result: TaskResult = read_ok(json!({"taskId": "t", "colour": 1}));
    assert_eq!(serde_json::to_value(result).unwrap().get("colour"), None);
}

#[test]
fn nulls_inside_free_maps_are_kept() {
    let given = json!({"taskId": "t", "outputData": {"a": null, "b": [null, {"c": null}]}});
    let written = serde_json::to_value(read_ok::<TaskResult>(given.clone())).unwrap();
    assert_eq!(written["outputData"], given["outputData"]);
    assert_eq!(written.get("workerId"), None);
}

#[test]
fn the_type_of_a_node_has_an_older_name_and_a_default() {
    let node = |value: Value| read_ok::<WorkflowTask>(value).task_type;
    assert_eq!(node(json!({"name": "a"})), "SIMPLE");
    assert_eq!(node(json!({"workflowTaskType": "WAIT"})), "WAIT");
    assert_eq!(
        node(json!({"type": "HUMAN", "workflowTaskType": "WAIT"})),
        "HUMAN"
    );
    assert_eq!(
        node(json!({"type": null, "workflowTaskType": "WAIT"})),
        "WAIT"
    );
}

#[test]
fn an_inline_definition_takes_the_name_of_its_node() {
    let node: WorkflowTask = read_ok(json!({"name": "a", "taskDefinition": {"retryCount": 1}}));
    assert_eq!(node.task_definition.unwrap().name, "a");
}

#[test]
fn versions_of_sub_workflows_are_numbers_or_expressions() {
    let version = |value: Value| {
        let params: SubWorkflowParams = read_ok(json!({"name": "x", "version": value}));
        (
            params.fixed_version(),
            serde_json::to_value(params).unwrap()["version"].clone(),
        )
    };
    assert_eq!(version(json!(3.0)), (Some(3), json!(3)));
    assert_eq!(version(json!(0)), (None, json!(0)));
    assert_eq!(version(json!("${a.b}")), (None, json!("${a.b}")));
    assert_eq!(
        wrong::<SubWorkflowParams>(json!({"version": []}))[0].0,
        "version"
    );
}

#[test]
fn log_entries_have_two_names_for_their_text_and_two_units_of_time() {
    let log = |value: Value| {
        let log: TaskExecLog = read_ok(value);
        (log.log, log.created_time)
    };
    assert_eq!(
        log(json!({"message": "m", "createdTime": 1_700_000_000})),
        ("m".to_owned(), 1_700_000_000_000)
    );
    assert_eq!(
        log(json!({"log": "l", "createdTime": 1_700_000_000.25})),
        ("l".to_owned(), 1_700_000_000_250)
    );
    assert_eq!(
        log(json!({"log": "l", "message": "m", "createdTime": 1_700_000_000_123_i64})),
        ("l".to_owned(), 1_700_000_000_123)
    );
}

#[test]
fn states_know_whether_they_are_final() {
    let of = |status: TaskStatus| {
        (
            status.is_terminal(),
            status.is_successful(),
            status.is_retriable(),
        )
    };
    assert_eq!(of(TaskStatus::Scheduled), (false, true, false));
    assert_eq!(of(TaskStatus::InProgress), (false, true, false));
    assert_eq!(of(TaskStatus::Completed), (true, true, false));
    assert_eq!(of(TaskStatus::CompletedWithErrors), (true, true, false));
    assert_eq!(of(TaskStatus::Skipped), (true, true, false));
    assert_eq!(of(TaskStatus::Failed), (true, false, true));
    assert_eq!(of(TaskStatus::TimedOut), (true, false, true));
    assert_eq!(
        of(TaskStatus::FailedWithTerminalError),
        (true, false, false)
    );
    assert_eq!(of(TaskStatus::Canceled), (true, false, false));
    assert!(
        WorkflowStatus::Terminated.is_terminal() && !WorkflowStatus::Terminated.is_successful()
    );
    assert!(!WorkflowStatus::Paused.is_terminal());
}

#[test]
fn summaries_show_times_with_milliseconds() {
    assert_eq!(summary_time(1_794_773_341_808), "2026-11-15T20:09:01.808Z");
    assert_eq!(summary_time(0), "1970-01-01T00:00:00.000Z");
    assert!(!summary_time(i64::MAX).is_empty() && !summary_time(i64::MIN).is_empty());
}
