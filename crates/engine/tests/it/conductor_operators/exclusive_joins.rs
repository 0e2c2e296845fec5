//! EXCLUSIVE_JOIN.

use serde_json::{Value, json};

use super::node;
use crate::conductor::world::{World, simple, with};

/// A DECISION with a branch `a` and a branch `b`, and a join that takes the one that ran.
fn deciding(join: Value) -> World {
    World::with_tasks(json!([
        simple("before"),
        {"name": "d", "taskReferenceName": "d", "type": "DECISION", "caseValueParam": "c",
         "inputParameters": {"c": "${workflow.input.c}"},
         "decisionCases": {"a": [simple("a")], "b": [simple("b")]}},
        node("EXCLUSIVE_JOIN", join),
        simple("z"),
    ]))
}

#[test]
fn the_join_has_the_output_of_the_branch_that_ran() {
    for (case, output) in [("a", json!({"from": "a"})), ("b", json!({"from": "b"}))] {
        let mut world =
            deciding(json!({"joinOn": ["a", "b"], "defaultExclusiveJoinTask": ["before"]}));
        let run = world.start("w", json!({"c": case}));
        world.complete(&run, "before", json!({"from": "before"}));
        world.complete(&run, case, output.clone());
        assert_eq!(
            world.trace(&run),
            format!("before C, d C, {case} C, exclusive_join C, z S")
        );
        let record = world.record(&run, "exclusive_join");
        assert_eq!(record["outputData"], output);
        assert_eq!(record["inputData"], json!({"joinOn": ["a", "b"]}));
        assert_eq!(record["taskDefName"], "EXCLUSIVE_JOIN");
    }
}

#[test]
fn without_a_branch_the_default_is_joined() {
    let mut world =
        deciding(json!({"joinOn": ["a", "b"], "defaultExclusiveJoinTask": ["none", "before"]}));
    let run = world.start("w", json!({"c": "other"}));
    world.complete(&run, "before", json!({"from": "before"}));
    assert_eq!(world.trace(&run), "before C, d C, exclusive_join C, z S");
    assert_eq!(
        world.record(&run, "exclusive_join")["outputData"],
        json!({"from": "before"})
    );
}

#[test]
fn a_join_of_a_running_task_waits_for_its_last_attempt() {
    let later = with(simple("later"), json!({"retryCount": 1}));
    let join = node("EXCLUSIVE_JOIN", json!({"joinOn": ["later"]}));
    let mut world = World::with_tasks(json!([
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[later], [simple("now"), join]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["exclusive_join"]},
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "now", json!({}));
    assert_eq!(
        world.trace(&run),
        "f C, later S, now C, j P, exclusive_join P"
    );
    world.fail(&run, "later", "once");
    assert_eq!(
        world.task(&run, "exclusive_join").status.as_str(),
        "IN_PROGRESS"
    );
    world.complete(&run, "later", json!({"n": 2}));
    assert_eq!(
        world.record(&run, "exclusive_join")["outputData"],
        json!({"n": 2})
    );
    assert_eq!(world.status(&run), "COMPLETED");
    assert!(
        world.runs[&run]
            .core
            .execution
            .as_ref()
            .unwrap()
            .exclusive_joins
            .is_empty()
    );
}

#[test]
fn a_failed_task_fails_the_join() {
    let fails = with(
        simple("fails"),
        json!({"permissive": true, "retryCount": 0}),
    );
    let join = node("EXCLUSIVE_JOIN", json!({"joinOn": ["fails"]}));
    let mut world = World::with_tasks(json!([fails, join, simple("z")]));
    let run = world.start("w", json!({}));
    world.fail(&run, "fails", "broken");
    assert_eq!(world.trace(&run), "fails F, exclusive_join F");
    assert_eq!(
        world.task(&run, "exclusive_join").reason.as_deref(),
        Some("broken")
    );
    assert_eq!(world.status(&run), "FAILED");
}

#[test]
fn a_join_of_nothing_waits_until_the_run_is_terminated() {
    let join = node("EXCLUSIVE_JOIN", json!({"joinOn": ["never"]}));
    let mut world = World::with_tasks(json!([simple("a"), join]));
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "a C, exclusive_join P");
    world.terminate(&run, "enough").unwrap();
    assert_eq!(world.trace(&run), "a C, exclusive_join X");
}

#[test]
fn a_join_in_a_loop_joins_the_tasks_of_its_iteration() {
    let join = node("EXCLUSIVE_JOIN", json!({"joinOn": ["t"]}));
    let mut world = World::with_tasks(json!([
        {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopCondition": "go", "loopOver": [simple("t"), join]},
    ]));
    world.script("go", |input| {
        json!(input["l"]["iteration"].as_i64().unwrap() < 2)
    });
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"n": 1}));
    world.complete(&run, "t", json!({"n": 2}));
    assert_eq!(
        world.trace(&run),
        "l C, t__1 C, exclusive_join__1 C, t__2 C, exclusive_join__2 C"
    );
    assert_eq!(
        world.record(&run, "exclusive_join__2")["outputData"],
        json!({"n": 2})
    );
}
