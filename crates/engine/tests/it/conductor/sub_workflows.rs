//! Runs inside of runs.

use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use super::world::{World, simple, with};

fn sub(param: Value, more: Value) -> Value {
    with(
        json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": param}),
        more,
    )
}

fn parent(param: Value, more: Value) -> World {
    let mut world = World::with_tasks(json!([sub(param, more), simple("z")]));
    world.define(json!({"name": "child", "version": 1, "tasks": [simple("c")]}));
    world.define(json!({"name": "child", "version": 2, "tasks": [simple("d")]}));
    world
}

#[test]
fn a_child_completes_its_task() {
    let mut world = parent(
        json!({"name": "child", "version": 1}),
        json!({"inputParameters": {"k": 1}}),
    );
    let mut new = world.new_execution("w", json!({}));
    new.correlation_id = Some("order-7".to_owned());
    let run = world.create(&new);
    world.settle();
    assert_eq!(world.trace(&run), "s P");
    let child = world.runs_of("child")[0].clone();
    let id = child.as_str();
    let record = world.record(&run, "s");
    assert_eq!(
        (
            record["subWorkflowId"].clone(),
            record["outputData"].clone()
        ),
        (json!(id), json!({"subWorkflowId": id}))
    );
    assert_eq!(
        record["inputData"],
        json!({"subWorkflowName": "child", "subWorkflowVersion": 1, "workflowInput": {"k": 1}, "priority": null,
            "subWorkflowTaskToDomain": null, "subWorkflowDefinition": null, "idempotencyKey": null, "idempotencyStrategy": null})
    );
    let view = world.view(&child);
    assert_eq!(
        (
            view["parentWorkflowId"].clone(),
            view["parentWorkflowTaskId"].clone()
        ),
        (json!(run.as_str()), record["taskId"].clone())
    );
    assert_eq!(
        (view["input"].clone(), view["correlationId"].clone()),
        (json!({"k": 1}), json!("order-7"))
    );
    world.complete(&child, "c", json!({"answer": 42}));
    assert_eq!(world.trace(&run), "s C, z S");
    assert_eq!(
        world.record(&run, "s")["outputData"],
        json!({"subWorkflowId": id, "answer": 42})
    );
}

#[test]
fn the_newest_version_is_fixed_at_the_start() {
    let mut world = parent(json!({"name": "child"}), json!({"startDelay": 5}));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "s S");
    assert_eq!(world.record(&run, "s")["callbackAfterSeconds"], 5);
    world.define(json!({"name": "child", "version": 3, "tasks": [simple("e")]}));
    world.wait_seconds(5);
    assert_eq!(world.trace(&run), "s P");
    let child = world.runs_of("child")[0].clone();
    assert_eq!(world.trace(&child), "d S");
}

#[test]
fn a_definition_may_be_inline_or_an_expression() {
    let inline = json!({"name": "own", "version": 1, "tasks": [simple("o")]});
    let mut world = parent(
        json!({"name": "own", "workflowDefinition": inline}),
        json!({}),
    );
    let run = world.start("w", json!({}));
    let child = world.runs_of("own")[0].clone();
    assert_eq!(
        world.view(&child)["input"],
        json!({"_systemMetadata": {"dynamic": true}})
    );
    world.complete(&child, "o", json!({}));
    assert_eq!(world.trace(&run), "s C, z S");

    let mut world = parent(
        json!({"name": "x", "workflowDefinition": "${workflow.input.d}"}),
        json!({}),
    );
    world.start("w", json!({"d": inline}));
    assert_eq!(world.runs_of("own").len(), 1);

    let mut world = parent(
        json!({"name": "${workflow.input.n}", "version": "${workflow.input.v}"}),
        json!({}),
    );
    world.start("w", json!({"n": "child", "v": "1"}));
    let child = world.runs_of("child")[0].clone();
    assert_eq!(world.trace(&child), "c S");
}

#[test]
fn a_child_that_does_not_exist_fails_the_task() {
    let mut world = parent(json!({"name": "none", "version": 7}), json!({}));
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("s F".to_owned(), "FAILED")
    );
    assert_eq!(
        world.task(&run, "s").reason.as_deref(),
        Some("No such workflow defined. name=none, version=7")
    );
    let mut world = parent(
        json!({"name": "none", "version": 7}),
        json!({"optional": true}),
    );
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "s E, z S");
}

#[test]
fn a_failed_child_fails_the_task_or_is_retried() {
    let failing = |world: &mut World, child: usize| {
        let child = world.runs_of("child")[child].clone();
        world
            .report(
                &child,
                "c",
                ResultStatus::FailedWithTerminalError,
                json!({"e": 1}),
                Some("bad"),
            )
            .unwrap();
        child
    };
    let mut world = parent(json!({"name": "child", "version": 1}), json!({}));
    let run = world.start("w", json!({}));
    let child = failing(&mut world, 0);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("s F".to_owned(), "FAILED")
    );
    assert_eq!(
        world.task(&run, "s").reason.clone().unwrap(),
        format!(
            "Sub workflow child.1/{child} failure reason: {}",
            world.reason(&child)
        )
    );
    let mut world = parent(
        json!({"name": "child", "version": 1}),
        json!({"retryCount": 1, "inputParameters": {"v": "${workflow.input.v}"}}),
    );
    world.task_def(json!({"name": "s", "retryCount": 0, "retryDelaySeconds": 9}));
    let run = world.start("w", json!({"v": 3}));
    failing(&mut world, 0);
    assert_eq!(world.trace(&run), "s Fr, s S");
    let record = world.record(&run, "s");
    assert_eq!(
        (
            record["inputData"]["workflowInput"].clone(),
            record["inputData"].get("v")
        ),
        (json!({"v": 3}), None)
    );
    world.wait_seconds(9);
    assert_eq!(world.trace(&run), "s Fr, s P");
    assert_eq!(world.runs_of("child").len(), 2);
    failing(&mut world, 1);
    assert_eq!(world.status(&run), "FAILED");
}

#[test]
fn a_terminated_child_cancels_its_task() {
    for (more, trace, status) in [
        (json!({}), "s X", "TERMINATED"),
        (json!({"optional": true}), "s E, z S", "RUNNING"),
    ] {
        let mut world = parent(json!({"name": "child"}), more);
        let run = world.start("w", json!({}));
        let child = world.runs_of("child")[0].clone();
        world.terminate(&child, "enough").unwrap();
        assert_eq!(
            (world.trace(&run).as_str(), world.status(&run)),
            (trace, status)
        );
    }
}

#[test]
fn a_report_on_the_task_stops_the_child() {
    let mut world = parent(json!({"name": "child"}), json!({}));
    let run = world.start("w", json!({}));
    world.complete(&run, "s", json!({"by": "hand"}));
    assert_eq!(world.trace(&run), "s C, z S");
    let child = world.runs_of("child")[0].clone();
    assert_eq!(world.status(&child), "TERMINATED");
}

#[test]
fn the_end_of_a_parent_ends_three_levels() {
    let mut world = World::new();
    for (name, child) in [("one", "two"), ("two", "three"), ("three", "four")] {
        world.define(
            json!({"name": name, "version": 1, "tasks": [sub(json!({"name": child}), json!({}))]}),
        );
    }
    world.define(json!({"name": "four", "version": 1, "tasks": [simple("a")]}));
    let run = world.start("one", json!({}));
    world.terminate(&run, "enough").unwrap();
    let mut reason = "enough".to_owned();
    for name in ["one", "two", "three", "four"] {
        let run = world.runs_of(name)[0].clone();
        assert_eq!(
            (world.status(&run), world.reason(&run)),
            ("TERMINATED", reason.as_str())
        );
        reason = format!("Parent workflow has been terminated with reason: {reason}");
    }
    // And the other way round: the deepest result flows up.
    let run = world.start("one", json!({}));
    let deepest = world.runs_of("four")[1].clone();
    world.complete(&deepest, "a", json!({"deep": true}));
    assert_eq!(
        (world.status(&run), world.output(&run)["deep"].clone()),
        ("COMPLETED", json!(true))
    );
}

#[test]
fn a_definition_that_calls_itself_stops_at_the_limit() {
    let mut world = World::new();
    world.check_every = 10;
    world.define(json!({"name": "me", "version": 1, "tasks": [sub(json!({"name": "me", "version": 1}), json!({}))]}));
    let run = world.start("me", json!({}));
    assert_eq!(world.runs_of("me").len(), 101);
    assert_eq!(world.status(&run), "FAILED");
    assert!(
        world.reason(&run).contains("Sub workflow me.1"),
        "{}",
        world.reason(&run)
    );
}

#[test]
fn domains_and_priority_of_children() {
    let param =
        json!({"name": "child", "version": 1, "taskToDomain": {"c": "blue"}, "priority": 42});
    let mut world = parent(param, json!({}));
    world.start("w", json!({}));
    assert!(world.poll("blue:c", "w1").is_some());
    let child = world.runs_of("child")[0].clone();
    assert_eq!(world.view(&child)["priority"], 42);
}

#[test]
fn another_attempt_of_a_forked_child_keeps_its_input() {
    let mut world = World::with_tasks(json!([
        {"name": "fan", "taskReferenceName": "fan", "type": "FORK_JOIN_DYNAMIC",
         "inputParameters": {"forkTaskWorkflow": "child", "forkTaskWorkflowVersion": 1, "forkTaskInputs": [{"a": 1}]}},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN"},
    ]));
    world.define(json!({"name": "child", "version": 1, "tasks": [simple("c")]}));
    world.task_def(json!({"name": "child", "retryCount": 1, "retryDelaySeconds": 0}));
    let run = world.start("w", json!({}));
    let first = world.runs_of("child")[0].clone();
    let terminal = ResultStatus::FailedWithTerminalError;
    world
        .report(&first, "c", terminal, json!({}), None)
        .unwrap();
    assert_eq!(world.trace(&run), "fan C, _child_0 Fr, join P, _child_0 P");
    let second = world.runs_of("child")[1].clone();
    assert_eq!(world.view(&second)["input"], json!({"a": 1, "__index": 0}));
    world.complete(&second, "c", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_definition_by_expression_must_be_one() {
    for definition in [
        json!(null),
        json!("child"),
        json!([]),
        json!({}),
        json!({"tasks": []}),
    ] {
        let mut world = World::with_tasks(json!([
            {"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW",
             "subWorkflowParam": {"name": "child", "workflowDefinition": "${workflow.input.definition}"}},
        ]));
        world.define(json!({"name": "child", "version": 1, "tasks": []}));
        let run = world.start("w", json!({"definition": definition}));
        assert_eq!(world.status(&run), "FAILED", "{definition}");
        assert!(world.runs_of("child").is_empty(), "{definition}");
        let reason = world.reason(&run);
        assert!(
            reason.contains("does not resolve to a workflow definition"),
            "{reason}"
        );
    }
}

#[test]
fn a_dynamic_task_may_be_an_operator() {
    let dynamic = |reference: &str, name: &str, more: Value| {
        let mut inputs = json!({"taskToRun": name});
        inputs
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"name": "d", "taskReferenceName": reference, "type": "DYNAMIC", "dynamicTaskNameParam": "taskToRun", "inputParameters": inputs})
    };
    let mut world = World::with_tasks(json!([
        dynamic("n", "NOOP", json!({})),
        dynamic("v", "SET_VARIABLE", json!({"x": 1})),
        dynamic(
            "i",
            "INLINE",
            json!({"expression": "$.x + 1", "x": "${workflow.variables.x}"})
        ),
        dynamic("wait", "WAIT", json!({"duration": "10 s"})),
        dynamic("h", "HUMAN", json!({})),
        dynamic(
            "t",
            "TERMINATE",
            json!({"terminationStatus": "COMPLETED", "workflowOutput": {"n": "${i.output.result}"}})
        ),
        simple("never"),
    ]));
    world.script("$.x + 1", |input| json!(input["x"].as_i64().unwrap() + 1));
    let run = world.start("w", json!({}));
    assert_eq!(world.record(&run, "wait")["taskType"], "WAIT");
    world.wait_seconds(10);
    world.complete(&run, "h", json!({}));
    assert_eq!(world.status(&run), "COMPLETED", "{}", world.reason(&run));
    assert_eq!(world.output(&run), json!({"n": 2}));
}
