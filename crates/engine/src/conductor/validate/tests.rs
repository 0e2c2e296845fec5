mod builders;
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::read;
use serde_json::{Value, json};

use super::*;

fn definition(tasks: Value) -> WorkflowDef {
    read(json!({"name": "w", "tasks": tasks})).unwrap()
}

fn checked(definition: &WorkflowDef) -> Vec<(String, String)> {
    check_workflow_def(definition, &Rules::default())
        .violations
        .into_iter()
        .map(|violation| (violation.path, violation.message))
        .collect()
}

/// Checks that a definition of one node has exactly one violation, at the node or inside it.
#[track_caller]
fn one_violation(node: Value, expected: &str) {
    let mut node = node;
    node["name"] = "n".into();
    node["taskReferenceName"] = "r".into();
    let found = checked(&definition(json!([node])));
    assert_eq!(found.len(), 1, "{node}: {found:?}");
    assert!(found[0].0.starts_with("tasks[0]"), "{found:?}");
    assert!(found[0].1.contains(expected), "{found:?}");
}

#[track_caller]
fn valid(node: Value) {
    let mut node = node;
    node["name"] = "n".into();
    node["taskReferenceName"] = "r".into();
    assert_eq!(checked(&definition(json!([node]))), []);
}

fn inner(reference: &str) -> Value {
    json!({"name": "a", "taskReferenceName": reference})
}

#[test]
fn the_definition_itself() {
    let check = |value: Value| checked(&read(value).unwrap());
    assert_eq!(
        check(json!({"name": " ", "tasks": [inner("a")]}))[0].0,
        "name"
    );
    assert_eq!(check(json!({"name": "w"}))[0].0, "tasks");
    assert_eq!(
        check(json!({"name": "w", "schemaVersion": 1, "tasks": [inner("a")]}))[0].0,
        "schemaVersion"
    );
    let large = "x".repeat(300_000);
    assert_eq!(
        check(json!({"name": "w", "variables": {"a": large}, "tasks": [inner("a")]}))[0].0,
        "variables"
    );
    assert_eq!(
        check(json!({"name": "w", "tasks": [{"startDelay": -1}]}))
            .into_iter()
            .map(|(path, _)| path)
            .collect::<Vec<_>>(),
        [
            "tasks[0].name",
            "tasks[0].taskReferenceName",
            "tasks[0].startDelay"
        ]
    );
    let rules = Rules {
        plain_names: true,
        owner_email: true,
        ..Rules::default()
    };
    let found = check_workflow_def(
        &read(json!({"name": "a/b", "tasks": [inner("a")]})).unwrap(),
        &rules,
    );
    assert_eq!(found.violations.len(), 2);
}

#[test]
fn references_are_unique_in_the_whole_tree() {
    let found = checked(&definition(json!([
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[inner("a")], [inner("a")]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN"},
        inner("f"),
    ])));
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "tasks[0].forkTasks[1][0].taskReferenceName",
            "tasks[2].taskReferenceName"
        ]
    );
}

#[test]
fn branching_nodes_need_their_members() {
    one_violation(
        json!({"type": "SWITCH", "expression": "e", "decisionCases": {"a": []}}),
        "evaluatorType",
    );
    one_violation(
        json!({"type": "SWITCH", "evaluatorType": "value-param", "decisionCases": {"a": []}}),
        "expression",
    );
    one_violation(
        json!({"type": "SWITCH", "evaluatorType": "value-param", "expression": "e"}),
        "decisionCases",
    );
    one_violation(
        json!({"type": "DECISION", "decisionCases": {"a": []}}),
        "caseValueParam",
    );
    one_violation(
        json!({"type": "DECISION", "caseValueParam": "a"}),
        "decisionCases",
    );
    one_violation(json!({"type": "FORK_JOIN"}), "forkTasks");
    one_violation(json!({"type": "FORK_JOIN_DYNAMIC"}), "forkTaskInputs");
    one_violation(
        json!({"type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "a"}),
        "forkTaskInputs",
    );
    one_violation(
        json!({"type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "a", "dynamicForkJoinTasksParam": "b"}),
        "not both",
    );
    valid(json!({"type": "FORK_JOIN_DYNAMIC", "dynamicForkJoinTasksParam": "b"}));
    valid(json!({"type": "FORK_JOIN_DYNAMIC", "inputParameters": {"forkTaskInputs": []}}));
}

#[test]
fn loops_need_a_body_and_a_condition_or_a_list() {
    let body = json!([inner("a")]);
    one_violation(
        json!({"type": "DO_WHILE", "loopOver": body}),
        "loopCondition",
    );
    one_violation(
        json!({"type": "DO_WHILE", "loopCondition": "true"}),
        "loopOver",
    );
    valid(json!({"type": "DO_WHILE", "loopOver": body, "items": "${workflow.input.x}"}));
    valid(json!({"type": "DO_WHILE", "loopOver": body, "inputParameters": {"_items": [1]}}));
    valid(json!({"type": "DO_WHILE", "loopOver": body, "inputParameters": {"items": [1]}}));
    let looping = |reference: &str, body: Value| json!({"name": "l", "taskReferenceName": reference, "type": "DO_WHILE", "loopCondition": "true", "loopOver": body});
    let switch = |body: Value| {
        json!({"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "value-param", "expression": "e",
               "decisionCases": {"x": body}})
    };
    let direct = checked(&definition(json!([looping(
        "outer",
        json!([looping("inner", body.clone())])
    )])));
    assert_eq!(direct.len(), 1);
    assert!(
        direct[0]
            .1
            .contains("DO_WHILE cannot be inside of DO_WHILE outer"),
        "{direct:?}"
    );
    let indirect = definition(json!([looping(
        "outer",
        json!([switch(json!([looping("inner", body.clone())]))])
    )]));
    assert_eq!(checked(&indirect).len(), 1);
    let after = definition(json!([
        looping("one", body),
        looping("two", json!([inner("b")]))
    ]));
    assert_eq!(checked(&after), []);
}

#[test]
fn system_nodes_need_their_members() {
    one_violation(json!({"type": "DYNAMIC"}), "dynamicTaskNameParam");
    one_violation(json!({"type": "EVENT"}), "sink");
    one_violation(json!({"type": "HTTP"}), "http_request");
    one_violation(json!({"type": "JSON_JQ_TRANSFORM"}), "queryExpression");
    one_violation(json!({"type": "SUB_WORKFLOW"}), "subWorkflowParam");
    one_violation(
        json!({"type": "SUB_WORKFLOW", "subWorkflowParam": {}}),
        "name",
    );
    one_violation(
        json!({"type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "c", "workflowDefinition": "a ${b}"}}),
        "one expression",
    );
    one_violation(
        json!({"type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "c", "workflowDefinition": 5}}),
        "must be an object",
    );
    one_violation(
        json!({"type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "c", "idempotencyStrategy": "X"}}),
        "RETURN_EXISTING",
    );
    one_violation(
        json!({"type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "c", "workflowDefinition": {"name": "i", "tasks": [{"name": "a", "taskReferenceName": "a", "type": "EVENT"}]}}}),
        "sink",
    );
    valid(
        json!({"type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "c", "workflowDefinition": "${workflow.input.d}"}}),
    );
    valid(json!({"type": "HTTP", "inputParameters": {"uri": "x"}}));
    valid(json!({"type": "HTTP", "taskDefinition": {"inputTemplate": {"http_request": {}}}}));
    valid(json!({"type": "ANYTHING"}));
    one_violation(json!({"taskDefinition": {"retryCount": -1}}), "retryCount");
    valid(json!({"taskDefinition": {"responseTimeoutSeconds": 0}}));
}

#[test]
fn a_registered_template_gives_what_a_node_needs() {
    let registered: TaskDef =
        read(json!({"name": "n", "inputTemplate": {"queryExpression": "."}})).unwrap();
    let task_defs = BTreeMap::from([("n".to_owned(), Arc::new(registered))]);
    let rules = Rules {
        task_defs: Some(&task_defs),
        ..Rules::default()
    };
    let definition =
        definition(json!([{"name": "n", "taskReferenceName": "r", "type": "JSON_JQ_TRANSFORM"}]));
    assert_eq!(check_workflow_def(&definition, &rules), Checked::default());
}

#[test]
fn terminate_and_wait_have_literals_that_are_checked() {
    let terminate = |status: Value| json!({"type": "TERMINATE", "inputParameters": {"terminationStatus": status}});
    for status in ["COMPLETED", "FAILED", "TERMINATED", "${workflow.input.s}"] {
        valid(terminate(json!(status)));
    }
    one_violation(terminate(json!("PAUSED")), "COMPLETED, FAILED, TERMINATED");
    one_violation(terminate(json!(null)), "terminationStatus");
    one_violation(
        json!({"type": "TERMINATE", "optional": true, "inputParameters": {"terminationStatus": "FAILED"}}),
        "optional",
    );
    let wait = |input: Value| json!({"type": "WAIT", "inputParameters": input});
    valid(wait(json!({})));
    valid(wait(json!({"duration": "5 minutes"})));
    valid(wait(json!({"duration": "${workflow.input.d}"})));
    one_violation(wait(json!({"duration": "zz"})), "not a valid duration");
    one_violation(wait(json!({"until": "zz"})), "not a valid time");
    one_violation(
        wait(json!({"duration": "${workflow.input.d}", "until": "2026-01-01"})),
        "not both",
    );
}

#[test]
fn expressions_of_top_level_nodes_refer_to_something() {
    let input = |value: Value| json!({"inputParameters": {"a": {"b": [value]}}});
    for text in [
        "${workflow.input.x}",
        "${r.output.y}",
        "${CPEWF_TASK_ID}",
        "${workflow.secrets.K}",
        "${}",
        "$${unknown.x}",
        "${unclosed",
        "${workflow.input.${r.output.k}}",
    ] {
        valid(input(json!(text)));
    }
    one_violation(input(json!("${unknown.output.x}")), "refers to unknown");
    one_violation(input(json!("t ${unknown}")), "refers to unknown");
    one_violation(input(json!("${workflow.input[}")), "not a valid path");
    one_violation(
        input(json!("${workflow.input.${unknown.x}}")),
        "refers to unknown",
    );
    let rules = Rules {
        named_values: &["unknown"],
        ..Rules::default()
    };
    let named = definition(
        json!([{"name": "n", "taskReferenceName": "r", "inputParameters": {"a": "${unknown}"}}]),
    );
    assert_eq!(check_workflow_def(&named, &rules).violations, []);
    let nested = definition(
        json!([{"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[
        {"name": "n", "taskReferenceName": "r", "inputParameters": {"a": "${unknown}"}}]]}]),
    );
    assert_eq!(checked(&nested), []);
}

#[test]
fn scripts_are_listed_for_a_check_of_their_syntax() {
    let found = check_workflow_def(
        &definition(json!([
            {"name": "a", "taskReferenceName": "a", "type": "SWITCH", "evaluatorType": "javascript", "expression": "$.x", "decisionCases": {
                "x": [{"name": "b", "taskReferenceName": "b", "type": "DECISION", "caseExpression": "1 +", "decisionCases": {"y": []}}]}},
            {"name": "c", "taskReferenceName": "c", "type": "SWITCH", "evaluatorType": "value-param", "expression": "x", "decisionCases": {"x": []}},
        ])),
        &Rules::default(),
    );
    assert_eq!(found.violations, []);
    let scripts: Vec<_> = found
        .scripts
        .iter()
        .map(|script| (script.path.as_str(), script.source.as_str()))
        .collect();
    assert_eq!(
        scripts,
        [
            ("tasks[0].expression", "$.x"),
            ("tasks[0].decisionCases.x[0].caseExpression", "1 +")
        ]
    );
}

#[test]
fn task_definitions_have_numbers_that_fit_together() {
    let check = |value: Value| {
        let definition: TaskDef = read(value).unwrap();
        check_task_def(&definition, &Rules::default())
            .into_iter()
            .map(|found| (found.path, found.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(check(json!({"name": "a"})), []);
    assert_eq!(check(json!({"name": "a", "timeoutSeconds": 30})), []);
    for (member, value) in [
        ("retryCount", -1),
        ("responseTimeoutSeconds", 0),
        ("pollTimeoutSeconds", -1),
        ("maxRetryDelaySeconds", -1),
        ("backoffJitterMs", -1),
        ("totalTimeoutSeconds", -1),
        ("backoffScaleFactor", 0),
    ] {
        let found = check(json!({"name": "a", member: value}));
        assert_eq!(found.len(), 1, "{member}");
        assert_eq!(found[0].0, member);
    }
    assert_eq!(
        check(json!({"name": ""}))[0].1,
        "TaskDef name cannot be null or empty"
    );
    assert_eq!(
        check(json!({"name": "b", "timeoutSeconds": 30, "responseTimeoutSeconds": 3600})),
        [(
            String::new(),
            "TaskDef: b responseTimeoutSeconds: 3600 must be less than timeoutSeconds: 30"
                .to_owned()
        )]
    );
    assert!(
        check(json!({"name": "b", "timeoutSeconds": 30, "totalTimeoutSeconds": 20}))[0]
            .1
            .contains("totalTimeoutSeconds: 20")
    );
}

#[test]
fn schemas_have_a_name_and_a_version() {
    let check = |value: Value| check_schema_def(&read(value).unwrap()).len();
    assert_eq!(check(json!({"name": "a_input"})), 0);
    assert_eq!(check(json!({"name": "", "version": 0})), 2);
}

#[test]
fn the_recorded_violations_of_task_definitions_are_found() {
    let recorded: Value = serde_json::from_str(include_str!(
        "../../../../protocol/contract/conductor/error-400-taskdef.json"
    ))
    .unwrap();
    let definitions: Vec<TaskDef> = read(recorded["request"]["body"].clone()).unwrap();
    let paths = |definition: &TaskDef| {
        let found = check_task_def(definition, &Rules::default());
        found
            .into_iter()
            .map(|found| (found.path, found.invalid_value))
            .collect::<Vec<_>>()
    };
    let pair = |path: &str, value: &str| (path.to_owned(), Some(value.to_owned()));
    assert_eq!(
        paths(&definitions[0]),
        [pair("name", ""), pair("retryCount", "-1")]
    );
    // The recorded server refuses this one, because it does not lower the response time-out that was not given.
    assert_eq!(paths(&definitions[1]), []);
}

#[test]
fn the_recorded_violations_are_found() {
    let recorded: Value = serde_json::from_str(include_str!(
        "../../../../protocol/contract/conductor/error-400-workflow.json"
    ))
    .unwrap();
    let found = checked(&read(recorded["request"]["body"].clone()).unwrap());
    for expected in recorded["body"]["validationErrors"].as_array().unwrap() {
        let message = expected["message"].as_str().unwrap();
        assert!(
            found.iter().any(|(_, found)| found == message),
            "{message}: {found:?}"
        );
    }
}

#[test]
fn the_number_of_violations_is_bounded() {
    let nodes: Vec<_> = (0..5000).map(|_| json!({"type": "SWITCH"})).collect();
    assert_eq!(checked(&definition(json!(nodes))).len(), VIOLATIONS_MAX);
}

#[test]
fn a_definition_that_is_nested_too_deeply_is_refused() {
    let mut input = json!(1);
    for _ in 0..DEFINITION_DEPTH_MAX {
        input = json!([input]);
    }
    let found = checked(&definition(
        json!([{"name": "n", "taskReferenceName": "r", "inputParameters": {"a": input}}]),
    ));
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("nested deeper than 100 levels"));
}
