//! The JSON of each node.

use std::time::Duration;

use super::*;

#[test]
fn a_simple_task_has_its_own_name() {
    let node = simple("work", "r")
        .input("id", workflow_input("order.id"))
        .input("text", "no ${workflow.input.order.id}")
        .input("list", [1, 2]);
    check(
        node,
        "SIMPLE",
        json!({"name": "work", "inputParameters": {
            "id": "${workflow.input.order.id}", "text": "no ${workflow.input.order.id}", "list": [1, 2],
        }}),
    );
}

#[test]
fn members_of_all_nodes() {
    let definition = TaskDefBuilder::new("work").retries(1).build().unwrap();
    let node = noop("r")
        .task_name("work")
        .description("text")
        .optional()
        .permissive()
        .async_complete()
        .start_delay(Duration::from_secs(5))
        .retry_count(7)
        .cache("${a}", Duration::from_secs(60))
        .task_definition(definition.clone());
    assert_eq!(node.reference(), "r");
    assert_eq!(node.output("a").to_string(), "${r.output.a}");
    assert_eq!(node.input_value("a").to_string(), "${r.input.a}");
    check(
        node,
        "NOOP",
        json!({
            "name": "work", "description": "text", "optional": true, "permissive": true, "asyncComplete": true, "startDelay": 5,
            "retryCount": 7, "cacheConfig": {"key": "${a}", "ttlInSecond": 60},
            "taskDefinition": serde_json::to_value(definition).unwrap(),
        }),
    );
}

#[test]
fn a_dynamic_task_takes_its_name_from_its_input() {
    check(
        dynamic("r", workflow_input("task")),
        "DYNAMIC",
        json!({"dynamicTaskNameParam": "taskToExecute", "inputParameters": {"taskToExecute": "${workflow.input.task}"}}),
    );
}

#[test]
fn a_switch_compares_a_value() {
    let node = switch("r", variable("v"))
        .case("a", task("one").then(task("two")))
        .case(1, Steps::new())
        .default_case(task("other"));
    check(
        node,
        "SWITCH",
        json!({
            "evaluatorType": "value-param", "expression": "switchCaseValue",
            "inputParameters": {"switchCaseValue": "${workflow.variables.v}"},
            "decisionCases": {"a": [task_json("one"), task_json("two")], "1": []},
            "defaultCase": [task_json("other")],
        }),
    );
}

#[test]
fn a_switch_runs_a_script() {
    let node = switch_script("r", "$.n > 1 ? 'many' : 'few'")
        .input("n", 3)
        .case("many", task("one"));
    check(
        node,
        "SWITCH",
        json!({
            "evaluatorType": "javascript", "expression": "$.n > 1 ? 'many' : 'few'", "inputParameters": {"n": 3},
            "decisionCases": {"many": [task_json("one")]},
        }),
    );
}

#[test]
fn a_fork_is_followed_by_a_join_on_the_ends_of_its_branches() {
    let inner = fork("inner").branch(task("x"));
    let node = fork("r")
        .branch(task("a").then(task("b")))
        .branch([task("c"), task("d")])
        .branch(inner)
        .branch(switch("s", 1).case(1, task("e")));
    assert_eq!(node.join_output("b.x").to_string(), "${r_join.output.b.x}");
    let noop = json!({"name": "s_end", "taskReferenceName": "s_end", "type": "NOOP"});
    let list = written(node);
    assert_eq!(list[0]["type"], "FORK_JOIN");
    let branches = &list[0]["forkTasks"];
    assert_eq!(branches[0], json!([task_json("a"), task_json("b")]));
    assert_eq!(branches[1], json!([task_json("c"), task_json("d")]));
    assert_eq!(branches[2][1]["taskReferenceName"], "inner_join");
    assert_eq!(branches[3][1], noop);
    assert_eq!(
        list[1],
        json!({"name": "r_join", "taskReferenceName": "r_join", "type": "JOIN", "joinOn": ["b", "d", "inner_join", "s_end"]})
    );
}

#[test]
fn the_join_of_a_fork_can_be_changed() {
    let node = fork("r")
        .branch(task("a"))
        .branch(task("b"))
        .join_reference("both")
        .join_on(["a"]);
    assert_eq!(
        written(node)[1],
        json!({"name": "both", "taskReferenceName": "both", "type": "JOIN", "joinOn": ["a"]})
    );
}

#[test]
fn a_dynamic_fork_takes_its_branches_from_its_input() {
    let node = dynamic_fork("r", output_of("p", "tasks"), output_of("p", "inputs"));
    assert_eq!(node.join_output("").to_string(), "${r_join.output}");
    assert_eq!(
        written(node),
        json!([
            {
                "name": "r", "taskReferenceName": "r", "type": "FORK_JOIN_DYNAMIC",
                "dynamicForkTasksParam": "dynamicTasks", "dynamicForkTasksInputParamName": "dynamicTasksInputs",
                "inputParameters": {"dynamicTasks": "${p.output.tasks}", "dynamicTasksInputs": "${p.output.inputs}"},
            },
            {"name": "r_join", "taskReferenceName": "r_join", "type": "JOIN"},
        ])
    );
    let each = fork_each("r", "work", workflow_input("list")).join_reference("all");
    assert_eq!(
        written(each),
        json!([
            {
                "name": "r", "taskReferenceName": "r", "type": "FORK_JOIN_DYNAMIC",
                "inputParameters": {"forkTaskName": "work", "forkTaskInputs": "${workflow.input.list}"},
            },
            {"name": "all", "taskReferenceName": "all", "type": "JOIN"},
        ])
    );
}

#[test]
fn loops_have_a_condition_a_count_or_a_list() {
    check(
        do_while("r", "$.body.more", task("body")).keep_last(2),
        "DO_WHILE",
        json!({"loopCondition": "$.body.more", "loopOver": [task_json("body")], "inputParameters": {"keepLastN": 2}}),
    );
    check(
        do_times("r", 3, task("body")),
        "DO_WHILE",
        json!({
            "loopCondition": "if ( $[\"r\"]['iteration'] < $.value ) { true; } else { false; }",
            "loopOver": [task_json("body")], "inputParameters": {"value": 3},
        }),
    );
    check(
        for_each("r", workflow_input("list"), task("body")),
        "DO_WHILE",
        json!({"loopCondition": "", "items": "${workflow.input.list}", "loopOver": [task_json("body")]}),
    );
}

#[test]
fn a_sub_workflow_has_a_name_or_a_definition() {
    let node = sub_workflow("r", "child")
        .version(3)
        .task_to_domain("*", "blue")
        .priority(5)
        .idempotency("k", IdempotencyStrategy::ReturnExisting)
        .input("a", 1);
    check(
        node,
        "SUB_WORKFLOW",
        json!({"inputParameters": {"a": 1}, "subWorkflowParam": {
            "name": "child", "version": 3, "taskToDomain": {"*": "blue"}, "priority": 5, "idempotencyKey": "k",
            "idempotencyStrategy": "RETURN_EXISTING",
        }}),
    );
    check(
        sub_workflow("r", workflow_input("child").to_string())
            .version_from(workflow_input("version")),
        "SUB_WORKFLOW",
        json!({"subWorkflowParam": {"name": "${workflow.input.child}", "version": "${workflow.input.version}"}}),
    );
    let child = WorkflowDefBuilder::new("child")
        .version(2)
        .then(task("a"))
        .build()
        .unwrap();
    let list = written(sub_workflow_inline("r", child));
    let params = &list[0]["subWorkflowParam"];
    assert_eq!(params["name"], "child");
    assert_eq!(params["version"], 2);
    assert_eq!(
        params["workflowDefinition"]["tasks"],
        json!([task_json("a")])
    );
}

#[test]
fn the_input_of_a_start_is_the_input_of_the_other_workflow() {
    let node = start_workflow("r", "other")
        .version(2)
        .correlation_id(workflow_member("correlationId"))
        .idempotency("k", IdempotencyStrategy::Fail)
        .input("a", 1);
    check(
        node,
        "START_WORKFLOW",
        json!({"inputParameters": {"startWorkflow": {
            "name": "other", "version": 2, "correlationId": "${workflow.correlationId}", "idempotencyKey": "k",
            "idempotencyStrategy": "FAIL", "input": {"a": 1},
        }}}),
    );
}

#[test]
fn an_end_has_a_status() {
    let node = terminate("r", TerminationStatus::Failed)
        .reason("sold out")
        .workflow_output(json!({"a": variable("v")}));
    check(
        node,
        "TERMINATE",
        json!({"inputParameters": {
            "terminationStatus": "FAILED", "terminationReason": "sold out", "workflowOutput": {"a": "${workflow.variables.v}"},
        }}),
    );
}

#[test]
fn waits_have_a_duration_a_time_or_neither() {
    check(wait("r"), "WAIT", json!({}));
    check(
        wait_for("r", Duration::from_secs(90)),
        "WAIT",
        json!({"inputParameters": {"duration": "90s"}}),
    );
    check(
        wait_until("r", "2030-01-01 10:00 UTC"),
        "WAIT",
        json!({"inputParameters": {"until": "2030-01-01 10:00 UTC"}}),
    );
}

#[test]
fn small_operators() {
    check(human("r"), "HUMAN", json!({}));
    check(noop("r"), "NOOP", json!({}));
    check(
        set_variable("r").input("v", 1),
        "SET_VARIABLE",
        json!({"inputParameters": {"v": 1}}),
    );
    check(
        inline("r", "$.a + 1").input("a", 1),
        "INLINE",
        json!({"inputParameters": {"evaluatorType": "javascript", "expression": "$.a + 1", "a": 1}}),
    );
    check(
        jq("r", ".a | length").input("a", [1]),
        "JSON_JQ_TRANSFORM",
        json!({"inputParameters": {"queryExpression": ".a | length", "a": [1]}}),
    );
    check(
        event("r", "conductor:done").input("a", 1),
        "EVENT",
        json!({"sink": "conductor:done", "inputParameters": {"a": 1}}),
    );
    check(
        raw("MY_TYPE", "work", "r").input("a", 1),
        "MY_TYPE",
        json!({"name": "work", "inputParameters": {"a": 1}}),
    );
    let own: WorkflowTask =
        serde_json::from_value(json!({"name": "r", "taskReferenceName": "r", "type": "YIELD"}))
            .unwrap();
    check(Node::from(own), "YIELD", json!({}));
}

#[test]
fn an_http_request_is_one_input() {
    let node = http("r", "POST", format!("https://{}/x", environment("host")))
        .header("Authorization", secret("token"))
        .body(json!({"id": workflow_input("id")}))
        .content_type("application/json")
        .accept("text/plain")
        .connect_timeout(Duration::from_millis(500))
        .read_timeout(Duration::from_secs(2));
    check(
        node,
        "HTTP",
        json!({"inputParameters": {"http_request": {
            "method": "POST", "uri": "https://${workflow.env.host}/x", "headers": {"Authorization": "${workflow.secrets.token}"},
            "body": {"id": "${workflow.input.id}"}, "contentType": "application/json", "accept": "text/plain",
            "connectionTimeOut": 500, "readTimeOut": 2000,
        }}}),
    );
}
