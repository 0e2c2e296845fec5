//! Loops by condition and by list.

use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use super::world::{World, simple, with};

fn node(name: &str) -> Value {
    simple(name)
}

fn counted(body: Value, extra: Value) -> World {
    let condition = "$.loop['iteration'] < 2";
    let looped = with(
        json!({"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": condition, "loopOver": body}),
        extra,
    );
    let mut world = World::with_tasks(json!([looped, simple("z")]));
    world.script(condition, |input| {
        json!(input["loop"]["iteration"].as_i64().unwrap() < 2)
    });
    world
}

fn switch_loop(t: Value) -> World {
    counted(
        json!([
            t,
            {"name": "sw", "taskReferenceName": "sw", "type": "SWITCH", "evaluatorType": "value-param", "expression": "x",
             "inputParameters": {"x": "${t.output.x}"}, "decisionCases": {"yes": [node("u")]}},
        ]),
        json!({}),
    )
}

#[test]
fn a_loop_repeats_its_body() {
    let mut world = counted(json!([node("t")]), json!({}));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "loop P, t__1 S");
    world.complete(&run, "t__1", json!({"x": 10}));
    assert_eq!(world.trace(&run), "loop P, t__1 C, t__2 S");
    let open = world.record(&run, "loop");
    assert_eq!(
        open["outputData"],
        json!({"iteration": 2, "1": {"t": {"x": 10}}})
    );
    assert_eq!(
        (open["iteration"].clone(), open["loopOverTask"].clone()),
        (json!(2), json!(true))
    );
    // The bare reference finds the open iteration.
    world.complete(&run, "t", json!({"x": 20}));
    assert_eq!(world.trace(&run), "loop C, t__1 C, t__2 C, z S");
    assert_eq!(
        world.record(&run, "loop")["outputData"],
        json!({"iteration": 2, "1": {"t": {"x": 10}}, "2": {"t": {"x": 20}}})
    );
    let body = world.record(&run, "t__2");
    assert_eq!(
        (body["iteration"].clone(), body["loopOverTask"].clone()),
        (json!(2), json!(true))
    );
    world.complete(&run, "z", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_switch_in_a_loop_goes_on_with_the_loop() {
    let mut world = switch_loop(node("t"));
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"x": "yes"}));
    assert_eq!(world.trace(&run), "loop P, t__1 C, sw__1 C, u__1 S");
    world.complete(&run, "u", json!({}));
    assert_eq!(world.trace(&run), "loop P, t__1 C, sw__1 C, u__1 C, t__2 S");
    world.complete(&run, "t", json!({"x": "no"}));
    assert_eq!(
        world.trace(&run),
        "loop C, t__1 C, sw__1 C, u__1 C, t__2 C, sw__2 C, z S"
    );
}

#[test]
fn a_body_task_may_fail() {
    let mut world = switch_loop(with(node("t"), json!({"retryCount": 1})));
    let run = world.start("w", json!({}));
    world.fail(&run, "t", "one");
    assert_eq!(world.trace(&run), "loop P, t__1 Fr, t__1 S");
    world.fail(&run, "t", "two");
    assert_eq!(world.trace(&run), "loop X, t__1 Fr, t__1 F");
    assert_eq!(world.status(&run), "FAILED");
    let mut world = switch_loop(with(node("t"), json!({"retryCount": 0, "optional": true})));
    let run = world.start("w", json!({}));
    world.fail(&run, "t", "one");
    assert_eq!(world.trace(&run), "loop P, t__1 E, sw__1 C, t__2 S");
    let mut world = switch_loop(with(
        node("t"),
        json!({"retryCount": 0, "permissive": true}),
    ));
    let run = world.start("w", json!({}));
    world.fail(&run, "t", "one");
    assert_eq!(world.trace(&run), "loop F, t__1 F, sw__1 C");
    assert_eq!(world.status(&run), "FAILED");
    assert_eq!(world.task(&run, "loop").reason.as_deref(), Some("one"));
}

#[test]
fn a_fork_in_a_loop_joins_each_iteration() {
    let mut world = counted(
        json!([
            {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[node("a")], [node("b")]]},
            {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a", "b"]},
        ]),
        json!({}),
    );
    let run = world.start("w", json!({}));
    assert_eq!(
        world.trace(&run),
        "loop P, fork__1 C, a__1 S, b__1 S, join__1 P"
    );
    world.complete(&run, "a", json!({"n": 1}));
    world.complete(&run, "b", json!({}));
    assert_eq!(
        world.record(&run, "join__1")["inputData"],
        json!({"joinOn": ["a", "b"]})
    );
    assert_eq!(
        world.record(&run, "join__1")["outputData"],
        json!({"a__1": {"n": 1}})
    );
    world.complete(&run, "b", json!({}));
    world.complete(&run, "a", json!({}));
    assert_eq!(world.task(&run, "loop").status.as_str(), "COMPLETED");
}

#[test]
fn a_dynamic_fork_in_a_loop_joins_each_iteration() {
    let mut world = counted(
        json!([
            {"name": "fan", "taskReferenceName": "fan", "type": "FORK_JOIN_DYNAMIC", "inputParameters": {"forkTaskName": "t", "forkTaskInputs": [1, 2]}},
            {"name": "join", "taskReferenceName": "join", "type": "JOIN"},
        ]),
        json!({}),
    );
    let run = world.start("w", json!({}));
    assert_eq!(
        world.trace(&run),
        "loop P, fan__1 C, _t_0__1 S, _t_1__1 S, join__1 P"
    );
    world.complete(&run, "_t_0", json!({}));
    world.complete(&run, "_t_1", json!({}));
    assert!(
        world
            .trace(&run)
            .ends_with("join__1 C, fan__2 C, _fan_t_0__2 S, _fan_t_1__2 S, join__2 P")
    );
}

#[test]
fn a_list_is_gone_through() {
    let mut world = World::with_tasks(json!([
        {"name": "each", "taskReferenceName": "each", "type": "DO_WHILE", "items": "${workflow.input.list}",
         "loopOver": [with(node("t"), json!({"inputParameters": {"item": "${each.output.loopItem}", "n": "${each.output.iteration}"}}))]},
        simple("z"),
    ]));
    let run = world.start("w", json!({"list": ["a", {"b": 1}]}));
    assert_eq!(
        world.record(&run, "t__1")["inputData"],
        json!({"item": "a", "n": 1})
    );
    assert_eq!(
        world.record(&run, "each")["outputData"],
        json!({"iteration": 1, "loopIndex": 0, "loopItem": "a"})
    );
    world.complete(&run, "t", json!({}));
    assert_eq!(
        world.record(&run, "t__2")["inputData"],
        json!({"item": {"b": 1}, "n": 2})
    );
    world.complete(&run, "t", json!({}));
    assert_eq!(world.trace(&run), "each C, t__1 C, t__2 C, z S");
    for empty in [json!([]), json!(null)] {
        let run = world.start("w", json!({"list": empty}));
        assert_eq!(world.trace(&run), "each C, z S");
        assert_eq!(
            world.record(&run, "each")["outputData"],
            json!({"iteration": 0})
        );
    }
}

#[test]
fn a_condition_may_fail_or_read_outputs() {
    let looped = json!([{"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": "f($.loop, $.t)", "loopOver": [node("t")]}]);
    let mut world = World::with_tasks(looped.clone());
    world.failing_script("f($.loop, $.t)", "boom", false);
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("loop Z, t__1 C".to_owned(), "FAILED")
    );
    assert_eq!(
        world.task(&run, "loop").reason.as_deref(),
        Some("Unable to evaluate condition f($.loop, $.t), exception boom")
    );
    // Large outputs of this iteration and of past ones are read by the condition.
    let mut world = World::with_tasks(looped);
    world.script("f($.loop, $.t)", |input| {
        let newest = input["t"]["x"].as_str().unwrap().len();
        let iteration = input["loop"]["iteration"].as_u64().unwrap();
        let first = input["loop"]["1"]["t"]["x"].as_str().unwrap().len();
        assert_eq!((newest, first), (3000, 3000));
        json!(iteration < 3)
    });
    let run = world.start("w", json!({}));
    for _ in 0..3 {
        world.complete(&run, "t", json!({"x": "x".repeat(3000)}));
    }
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.output(&run)["x"].as_str().unwrap().len(), 3000);
}

#[test]
fn a_loop_may_keep_its_last_iterations_only() {
    let condition = "$.loop.iteration < 6";
    let mut world = World::with_tasks(json!([
        {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": condition, "loopOver": [node("t")],
         "inputParameters": {"keepLastN": 2}},
    ]));
    world.script(condition, |input| {
        json!(input["loop"]["iteration"].as_i64().unwrap() < 6)
    });
    let run = world.start("w", json!({}));
    for iteration in 1..=6 {
        world.fail(&run, "t", "once");
        world.complete(&run, "t", json!({"n": iteration}));
    }
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(
        world.trace(&run),
        "loop C, t__5 Fr, t__5 C, t__6 Fr, t__6 C"
    );
    assert_eq!(
        world.record(&run, "loop")["outputData"],
        json!({"iteration": 6, "5": {"t": {"n": 5}}, "6": {"t": {"n": 6}}})
    );
}

#[test]
fn references_with_two_underscores_are_left_alone() {
    let mut world = World::with_tasks(json!([
        {"name": "l", "taskReferenceName": "loop__1", "type": "DO_WHILE", "items": [1, 2],
         "loopOver": [{"name": "t", "taskReferenceName": "t__2", "type": "SIMPLE"}]},
        {"name": "z", "taskReferenceName": "z", "type": "SIMPLE", "inputParameters": {"n": "${loop__1.output.iteration}", "x": "${t__2.output.x}"}},
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "t__2", json!({"x": 1}));
    assert_eq!(world.trace(&run), "loop__1 P, t__2__1 C, t__2__2 S");
    world.complete(&run, "t__2", json!({"x": 2}));
    assert_eq!(
        world.record(&run, "z")["inputData"],
        json!({"n": 2, "x": 2})
    );
}

#[test]
fn a_loop_inside_of_a_loop_fails_with_a_reason() {
    let inner = json!({"name": "in", "taskReferenceName": "in", "type": "DO_WHILE", "items": [1], "loopOver": [node("t")]});
    let mut world = World::with_tasks(json!([
        {"name": "out", "taskReferenceName": "out", "type": "DO_WHILE", "items": [1], "loopOver": [inner]},
    ]));
    let run = world.start("w", json!({}));
    assert_eq!(world.status(&run), "FAILED");
    assert!(world.reason(&run).contains("inside of another loop"));
}

#[test]
fn a_report_on_an_open_loop_keeps_its_counter() {
    let mut world = counted(json!([node("t")]), json!({}));
    let run = world.start("w", json!({}));
    world
        .report(
            &run,
            "loop",
            ResultStatus::InProgress,
            json!({"note": 1, "iteration": 7}),
            None,
        )
        .unwrap();
    assert_eq!(
        world.record(&run, "loop")["outputData"],
        json!({"note": 1, "iteration": 1})
    );
    world.complete(&run, "t", json!({}));
    assert_eq!(world.trace(&run), "loop P, t__1 C, t__2 S");
    // A loop that is ended by hand leaves its open tasks to their workers.
    world.complete(&run, "loop", json!({"by": "hand"}));
    assert_eq!(world.trace(&run), "loop C, t__1 C, t__2 S, z S");
    world.complete(&run, "t", json!({}));
    world.complete(&run, "z", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_list_may_be_any_expression() {
    for (items, input, expected) in [
        (
            json!("${workflow.input.x}"),
            json!({"x": "one"}),
            json!(["one"]),
        ),
        (
            json!("${workflow.input.list[*].n}"),
            json!({"list": [{"n": 1}, {"m": 0}, {"n": 2}]}),
            json!([1, 2]),
        ),
        (
            json!(["${workflow.input.x}", 5]),
            json!({"x": {"y": 1}}),
            json!([{"y": 1}, 5]),
        ),
        (json!("${workflow.input.none}"), json!({}), json!([])),
        (json!([]), json!({}), json!([])),
    ] {
        let mut world = World::with_tasks(json!([
            {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": items, "loopOver": [
                {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"item": "${l.output.loopItem}"}}]},
        ]));
        let run = world.start("w", input);
        let tasks = world.folds[&run].tasks.values();
        let seen: Vec<Value> = tasks
            .filter(|task| task.iteration > 0 && task.reference.starts_with("v__"))
            .map(|task| task.input["item"].clone())
            .collect();
        assert_eq!((json!(seen), world.status(&run)), (expected, "COMPLETED"));
    }
}

#[test]
fn a_list_that_grows_is_gone_through_to_its_end() {
    let mut world = World::with_tasks(json!([
        {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"list": [1]}},
        {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": "${workflow.variables.list}", "loopOver": [
            node("t"),
            {"name": "g", "taskReferenceName": "g", "type": "SET_VARIABLE", "inputParameters": {"list": "${t.output.list}"}}]},
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"list": [1, 2]}));
    world.complete(&run, "t", json!({"list": [1, 2]}));
    assert_eq!(
        world.trace(&run),
        "v C, l C, t__1 C, g__1 C, t__2 C, g__2 C"
    );
}

#[test]
fn a_reference_that_looks_like_an_iteration_fails_with_a_reason() {
    let looped = json!({"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": [1, 2], "loopOver": [node("t")]});
    let like = json!({"name": "x", "taskReferenceName": "t__2", "type": "NOOP"});
    for tasks in [json!([like, looped]), json!([looped, like])] {
        let mut world = World::with_tasks(tasks);
        let run = world.start("w", json!({}));
        world.complete(&run, "t__1", json!({}));
        if world.status(&run) == "RUNNING" {
            world.complete(&run, "t", json!({}));
        }
        assert_eq!(world.status(&run), "FAILED");
        assert!(
            world
                .reason(&run)
                .contains("Two tasks would have the reference t__2")
        );
    }
}

#[test]
fn a_cancelled_loop_keeps_what_its_iterations_returned() {
    let condition = "$.loop['iteration'] < 5";
    let mut world = World::with_tasks(json!([
        {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": condition, "loopOver": [simple("t")]},
    ]));
    world.script(condition, |_| json!(true));
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"x": "y".repeat(5000)}));
    world.terminate(&run, "enough").unwrap();
    let record = world.record(&run, "loop");
    assert_eq!(record["status"], "CANCELED");
    assert_eq!(record["outputData"]["1"]["t"]["x"], "y".repeat(5000));
    assert_eq!(record["outputData"]["iteration"], 2);
}
