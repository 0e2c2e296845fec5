//! What each operator makes of a run, step by step, and the records that clients see.

use serde_json::{Value, json};

use super::world::{World, simple, with};

fn fork_then_z(b1: Value) -> World {
    World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a1"), simple("a2")], [b1]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a2", "b1"]},
        simple("z"),
    ]))
}

#[test]
fn a_fork_joins_and_goes_on() {
    let mut world = fork_then_z(simple("b1"));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "fork C, a1 S, b1 S, join P");
    world.complete(&run, "a1", json!({}));
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 S, join P, a2 S");
    world.complete(&run, "b1", json!({"n": 3}));
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 C, join P, a2 S");
    assert_eq!(
        world.record(&run, "join")["outputData"],
        json!({"b1": {"n": 3}})
    );
    world.complete(&run, "a2", json!({"n": 2}));
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 C, join C, a2 C, z S");
    let join = world.record(&run, "join");
    assert_eq!(join["inputData"], json!({"joinOn": ["a2", "b1"]}));
    assert_eq!(join["outputData"], json!({"a2": {"n": 2}, "b1": {"n": 3}}));
    assert_eq!(
        (join["seq"].clone(), join["pollCount"].clone()),
        (json!(4), json!(0))
    );
    world.complete(&run, "z", json!({"done": true}));
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.output(&run), json!({"done": true}));
}

#[test]
fn a_failed_branch_is_retried_or_ends_the_run() {
    let mut world = fork_then_z(with(simple("b1"), json!({"retryCount": 1})));
    let run = world.start("w", json!({}));
    world.complete(&run, "a1", json!({}));
    world.fail(&run, "b1", "broken");
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 Fr, join P, a2 S, b1 S");
    assert_eq!(world.task(&run, "b1").retry_count, 1);
    world.wait_seconds(60);
    world.fail(&run, "b1", "broken again");
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 Fr, join X, a2 X, b1 F");
    assert_eq!(world.status(&run), "FAILED");
    let id = world.task(&run, "b1").id.clone();
    assert_eq!(
        world.reason(&run),
        format!("Task {id} failed with status: FAILED and reason: 'broken again'")
    );
    let view = world.view(&run);
    assert_eq!(view["failedReferenceTaskNames"], json!(["b1"]));
}

#[test]
fn an_optional_branch_may_fail() {
    let mut world = fork_then_z(with(
        simple("b1"),
        json!({"retryCount": 0, "optional": true}),
    ));
    let run = world.start("w", json!({}));
    world.fail(&run, "b1", "broken");
    world.complete(&run, "a1", json!({}));
    world.complete(&run, "a2", json!({}));
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 E, join E, a2 C, z S");
    let id = world.task(&run, "b1").id.clone();
    let reason = world.task(&run, "join").reason.clone().unwrap();
    assert_eq!(reason, format!("b1/{id} completed with errors"));
    world.complete(&run, "z", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_permissive_branch_fails_the_join_at_the_end() {
    let mut world = fork_then_z(with(
        simple("b1"),
        json!({"retryCount": 0, "permissive": true}),
    ));
    let run = world.start("w", json!({}));
    world.fail(&run, "b1", "broken");
    assert_eq!(world.trace(&run), "fork C, a1 S, b1 F, join P");
    world.complete(&run, "a1", json!({}));
    world.complete(&run, "a2", json!({}));
    assert_eq!(world.trace(&run), "fork C, a1 C, b1 F, join F, a2 C");
    assert_eq!(world.status(&run), "FAILED");
    assert_eq!(world.task(&run, "join").reason.as_deref(), Some("broken"));
}

#[test]
fn a_permissive_task_fails_the_run_when_it_would_complete() {
    let permissive = json!({"retryCount": 0, "permissive": true});
    let mut world = World::with_tasks(json!([
        with(simple("a"), permissive.clone()),
        with(simple("b"), permissive),
        simple("c"),
    ]));
    let run = world.start("w", json!({}));
    world.fail(&run, "a", "one");
    world.fail(&run, "b", "two");
    assert_eq!(world.trace(&run), "a F, b F, c S");
    world.complete(&run, "c", json!({}));
    assert_eq!(world.status(&run), "FAILED");
    let id = |reference: &str| world.task(&run, reference).id.clone();
    assert_eq!(
        world.reason(&run),
        format!(
            "Task {} failed with status: FAILED and reason: 'one'. Task {} failed with status: FAILED and reason: 'two'",
            id("a"),
            id("b")
        )
    );
    let view = world.view(&run);
    assert_eq!(view["failedReferenceTaskNames"], json!(["a", "b"]));
}

#[test]
fn optional_wins_over_permissive() {
    let both = json!({"retryCount": 0, "permissive": true, "optional": true});
    let mut world = World::with_tasks(json!([with(simple("a"), both), simple("b")]));
    let run = world.start("w", json!({}));
    world.fail(&run, "a", "one");
    world.complete(&run, "b", json!({}));
    assert_eq!(world.trace(&run), "a E, b C");
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_switch_sees_the_outcome_of_an_optional_task() {
    let optional = json!({"retryCount": 0, "optional": true});
    let mut world = World::with_tasks(json!([
        with(simple("a"), optional),
        {"name": "pick", "taskReferenceName": "pick", "type": "SWITCH", "evaluatorType": "value-param", "expression": "outcome",
         "inputParameters": {"outcome": "${a.status}"},
         "decisionCases": {"COMPLETED": [simple("ship")]}, "defaultCase": [simple("refund")]},
    ]));
    let failed = world.start("w", json!({}));
    world.fail(&failed, "a", "no stock");
    assert_eq!(world.trace(&failed), "a E, pick C, refund S");
    let completed = world.start("w", json!({}));
    world.complete(&completed, "a", json!({}));
    assert_eq!(world.trace(&completed), "a C, pick C, ship S");
}

fn switch() -> World {
    World::with_tasks(json!([
        {"name": "pick", "taskReferenceName": "pick", "type": "SWITCH", "evaluatorType": "value-param", "expression": "sel",
         "inputParameters": {"sel": "${workflow.input.lang}"},
         "decisionCases": {"FR": [simple("fr"), simple("fr2")], "empty": [], "5": [simple("five")]},
         "defaultCase": [simple("other")]},
        simple("after"),
    ]))
}

#[test]
fn a_switch_takes_one_branch() {
    let mut world = switch();
    let run = world.start("w", json!({"lang": "FR"}));
    assert_eq!(world.trace(&run), "pick C, fr S");
    let record = world.record(&run, "pick");
    assert_eq!(
        record["inputData"],
        json!({"sel": "FR", "case": "FR", "hasChildren": "true"})
    );
    assert_eq!(
        record["outputData"],
        json!({"evaluationResult": ["FR"], "selectedCase": "FR"})
    );
    world.complete(&run, "fr", json!({}));
    world.complete(&run, "fr2", json!({}));
    assert_eq!(world.trace(&run), "pick C, fr C, fr2 C, after S");
    world.complete(&run, "after", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");

    let run = world.start("w", json!({"lang": "empty"}));
    assert_eq!(world.trace(&run), "pick C, after S");
    assert_eq!(
        world.record(&run, "pick")["inputData"],
        json!({"sel": "empty", "case": "empty"})
    );
    let run = world.start("w", json!({"lang": 5}));
    assert_eq!(world.trace(&run), "pick C, five S");
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "pick C, other S");
    assert_eq!(world.record(&run, "pick")["inputData"]["case"], "null");
}

#[test]
fn a_switch_with_a_large_input_or_a_name_of_its_own_goes_on() {
    let mut world = World::with_tasks(json!([
        {"name": "pick", "taskReferenceName": "pick", "type": "SWITCH", "evaluatorType": "value-param", "expression": "sel",
         "inputParameters": {"sel": "none", "big": "${workflow.input.big}", "hasChildren": "mine"},
         "decisionCases": {"x": [simple("x")]}},
        simple("after"),
    ]));
    let run = world.start("w", json!({"big": "b".repeat(5000)}));
    assert_eq!(world.trace(&run), "pick C, after S");
}

#[test]
fn the_script_of_a_switch_may_fail() {
    let tasks = |optional: bool| {
        json!([
            {"name": "pick", "taskReferenceName": "pick", "type": "SWITCH", "evaluatorType": "javascript", "expression": "bad",
             "optional": optional, "decisionCases": {"x": [simple("x")]}},
            simple("after"),
        ])
    };
    let mut world = World::with_tasks(tasks(false));
    world.failing_script("bad", "TypeError", false);
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("pick F".to_owned(), "FAILED")
    );
    let mut world = World::with_tasks(tasks(true));
    world.failing_script("bad", "TypeError", false);
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "pick E, after S");
    let mut world = World::with_tasks(json!([
        {"name": "pick", "taskReferenceName": "pick", "type": "SWITCH", "evaluatorType": "lua", "expression": "x",
         "decisionCases": {"x": [simple("x")]}},
    ]));
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        (String::new(), "FAILED")
    );
    assert_eq!(world.reason(&run), "No evaluator registered for type: lua");
}

#[test]
fn a_decision_falls_back_from_an_empty_case() {
    let mut world = World::with_tasks(json!([
        {"name": "pick", "taskReferenceName": "pick", "type": "DECISION", "caseValueParam": "sel",
         "inputParameters": {"sel": "${workflow.input.sel}"},
         "decisionCases": {"a": [simple("a")], "empty": []}, "defaultCase": [simple("other")]},
        simple("after"),
    ]));
    let run = world.start("w", json!({"sel": "a"}));
    assert_eq!(world.trace(&run), "pick C, a S");
    let record = world.record(&run, "pick");
    assert_eq!(
        record["inputData"],
        json!({"case": "a", "hasChildren": "true"})
    );
    assert_eq!(record["outputData"], json!({"caseOutput": ["a"]}));
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "pick C, a C, after S");
    let run = world.start("w", json!({"sel": "empty"}));
    assert_eq!(world.trace(&run), "pick C, other S");
}

#[test]
fn operators_that_end_at_once_run_in_one_pass() {
    let mut world = World::with_tasks(json!([
        {"name": "n", "taskReferenceName": "n", "type": "NOOP", "inputParameters": {"x": 1}},
        {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"attempts": 2, "who": "${workflow.input.who}"}},
        {"name": "i", "taskReferenceName": "i", "type": "INLINE",
         "inputParameters": {"evaluatorType": "graaljs", "expression": "$.a + 1", "a": "${workflow.variables.attempts}"}},
        {"name": "past", "taskReferenceName": "past", "type": "WAIT", "inputParameters": {"until": "2020-01-01"}},
        {"name": "t", "taskReferenceName": "t", "type": "TERMINATE",
         "inputParameters": {"terminationStatus": "COMPLETED", "terminationReason": "enough", "workflowOutput": {"r": "${i.output.result}"}}},
        simple("never"),
    ]));
    world.script("$.a + 1", |input| json!(input["a"].as_i64().unwrap() + 1));
    let run = world.start("w", json!({"who": "me"}));
    assert_eq!(world.trace(&run), "n C, v C, i C, past C, t C");
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.output(&run), json!({"r": 3}));
    assert_eq!(world.reason(&run), "enough");
    let view = world.view(&run);
    assert_eq!(view["variables"], json!({"attempts": 2, "who": "me"}));
    let record = |reference: &str| world.record(&run, reference);
    assert_eq!(record("n")["inputData"], json!({}));
    assert_eq!(record("i")["outputData"], json!({"result": 3}));
    assert_eq!(record("v")["outputData"], json!({}));
}

#[test]
fn an_inline_task_may_fail_in_several_ways() {
    let inline = |input: Value| json!([{"name": "i", "taskReferenceName": "i", "type": "INLINE", "inputParameters": input}]);
    for (input, reason) in [
        (
            json!({"expression": "throw"}),
            "Error evaluating the script `x` at line 1",
        ),
        (
            json!({"expression": " "}),
            "Empty 'expression' in INLINE task.",
        ),
        (json!({}), "Empty 'expression' in INLINE task."),
        (
            json!({"evaluatorType": "lua", "expression": "1"}),
            "Unknown evaluator 'lua' in INLINE task.",
        ),
    ] {
        let mut world = World::with_tasks(inline(input));
        world.failing_script("throw", "Error evaluating the script `x` at line 1", false);
        let run = world.start("w", json!({}));
        assert_eq!(
            (world.trace(&run), world.status(&run)),
            ("i Z".to_owned(), "FAILED")
        );
        let record = world.record(&run, "i");
        assert_eq!(record["outputData"], json!({"error": reason}));
        assert_eq!(record["reasonForIncompletion"], reason);
    }
    // A limit is retriable: the attempt after the delay is evaluated again.
    let mut world = World::with_tasks(inline(json!({"expression": "slow"})));
    world.task_def(json!({"name": "i", "retryCount": 1, "retryDelaySeconds": 5}));
    world.failing_script("slow", "limit", true);
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "i Fr, i S");
    world.script("slow", |_| json!(7));
    world.wait_seconds(5);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("i Fr, i C".to_owned(), "COMPLETED")
    );
    assert_eq!(world.output(&run), json!({"result": 7}));
}

#[test]
fn a_retry_without_delay_begins_in_the_same_pass() {
    let mut world = World::with_tasks(json!([
        {"name": "i", "taskReferenceName": "i", "type": "INLINE", "inputParameters": {"expression": "slow"}},
    ]));
    world.task_def(json!({"name": "i", "retryCount": 2, "retryDelaySeconds": 0}));
    world.failing_script("slow", "limit", true);
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("i Fr, i Fr, i F".to_owned(), "FAILED")
    );
}

#[test]
fn waits_end_by_time_or_by_an_update() {
    let wait = |input: Value| {
        World::with_tasks(json!([
            {"name": "s", "taskReferenceName": "s", "type": "WAIT", "inputParameters": input}, simple("z"),
        ]))
    };
    let mut world = wait(json!({"duration": "5s"}));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "s P");
    assert_eq!(world.record(&run, "s")["callbackAfterSeconds"], 5);
    world.wait_seconds(4);
    assert_eq!(world.trace(&run), "s P");
    world.wait_seconds(1);
    assert_eq!(world.trace(&run), "s C, z S");
    assert_eq!(world.record(&run, "s")["callbackAfterSeconds"], 5);
    let run = world.start("w", json!({}));
    world.complete(&run, "s", json!({"early": true}));
    assert_eq!(world.trace(&run), "s C, z S");
    world.wait_seconds(10);
    let mut world = wait(json!({}));
    let run = world.start("w", json!({}));
    assert_eq!(
        world.record(&run, "s")["callbackAfterSeconds"],
        2_147_483_647
    );
    world.wait_seconds(100_000);
    assert_eq!(world.trace(&run), "s P");
    let mut world = wait(json!({"duration": "zz"}));
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("s Z".to_owned(), "FAILED")
    );
}

#[test]
fn another_attempt_of_a_wait_waits_again() {
    let mut world = World::with_tasks(json!([
        {"name": "s", "taskReferenceName": "s", "type": "WAIT", "inputParameters": {"duration": "10s"}}, simple("z"),
    ]));
    world.task_def(json!({"name": "s", "retryCount": 1, "retryDelaySeconds": 5}));
    let run = world.start("w", json!({}));
    world.fail(&run, "s", "no");
    assert_eq!(world.trace(&run), "s Fr, s S");
    world.wait_seconds(5);
    assert_eq!(world.trace(&run), "s Fr, s P");
    world.wait_seconds(10);
    assert_eq!(world.trace(&run), "s Fr, s C, z S");
}

#[test]
fn a_human_task_waits_for_an_update() {
    let mut world = World::with_tasks(json!([
        {"name": "h", "taskReferenceName": "h", "type": "HUMAN"}, {"name": "y", "taskReferenceName": "y", "type": "YIELD"},
    ]));
    let run = world.start("w", json!({}));
    world.wait_seconds(10_000_000);
    assert_eq!(world.trace(&run), "h P");
    world.complete(&run, "h", json!({"ok": true}));
    world.complete(&run, "y", json!({}));
    assert_eq!(world.trace(&run), "h C, y C");
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn dynamic_and_user_defined_tasks_are_queued() {
    let mut world = World::with_tasks(json!([
        {"name": "d", "taskReferenceName": "d", "type": "DYNAMIC", "dynamicTaskNameParam": "what", "inputParameters": {"what": "${workflow.input.what}"}},
        {"name": "own", "taskReferenceName": "own", "type": "MY_TYPE"},
    ]));
    world.task_def(json!({"name": "resize", "responseTimeoutSeconds": 7, "retryCount": 0}));
    let run = world.start("w", json!({"what": "resize"}));
    let record = world.record(&run, "d");
    assert_eq!(
        (record["taskType"].clone(), record["taskDefName"].clone()),
        (json!("resize"), json!("resize"))
    );
    assert_eq!(record["responseTimeoutSeconds"], 7);
    assert!(world.poll("resize", "w1").is_some());
    world.complete(&run, "d", json!({}));
    let record = world.record(&run, "own");
    assert_eq!(
        (record["taskType"].clone(), record["taskDefName"].clone()),
        (json!("MY_TYPE"), json!("own"))
    );
    assert!(world.poll("MY_TYPE", "w1").is_some());
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        (String::new(), "FAILED")
    );
    assert!(
        world
            .reason(&run)
            .starts_with("Cannot map a dynamic task based on the parameter and input.")
    );
}

#[test]
fn a_workflow_without_tasks_completes() {
    let mut world = World::with_tasks(json!([]));
    let run = world.start("w", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.output(&run), json!({}));
}

#[test]
fn a_start_delay_hides_a_task() {
    let mut world = World::with_tasks(json!([with(simple("a"), json!({"startDelay": 30}))]));
    let run = world.start("w", json!({}));
    let record = world.record(&run, "a");
    assert_eq!(
        (
            record["callbackAfterSeconds"].clone(),
            record["startDelayInSeconds"].clone()
        ),
        (json!(30), json!(30))
    );
    assert_eq!(world.poll("a", "w1"), None);
    world.wait_seconds(29);
    assert_eq!(world.poll("a", "w1"), None);
    world.wait_seconds(1);
    assert!(world.poll("a", "w1").is_some());
}
