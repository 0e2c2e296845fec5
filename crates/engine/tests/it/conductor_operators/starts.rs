//! START_WORKFLOW and LAMBDA.

use serde_json::{Value, json};

use super::node;
use crate::conductor::world::{World, simple};

fn starting(request: Value) -> World {
    let start = node(
        "START_WORKFLOW",
        json!({"inputParameters": {"startWorkflow": request}}),
    );
    let mut world = World::with_tasks(json!([start, simple("z")]));
    world.define(json!({"name": "other", "version": 1, "tasks": [simple("a")]}));
    world.define(json!({"name": "other", "version": 2, "tasks": [simple("b")]}));
    world
}

#[test]
fn the_task_completes_as_soon_as_the_other_run_exists() {
    let mut world = starting(
        json!({"name": "other", "input": {"k": "${workflow.input.k}"}, "correlationId": null, "version": null}),
    );
    let mut new = world.new_execution("w", json!({"k": 7}));
    new.correlation_id = Some("order-7".to_owned());
    let run = world.create(&new);
    world.settle();
    assert_eq!(world.trace(&run), "start_workflow C, z S");
    let other = world.runs_of("other")[0].clone();
    assert_eq!(
        world.record(&run, "start_workflow")["outputData"],
        json!({"workflowId": other.as_str()})
    );
    let view = world.view(&other);
    assert_eq!(
        (
            &view["input"],
            &view["correlationId"],
            view.get("parentWorkflowId")
        ),
        (&json!({"k": 7}), &json!("order-7"), None)
    );
    assert_eq!(world.trace(&other), "b S", "the newest version");
    world.terminate(&run, "no longer needed").unwrap();
    assert_eq!(world.status(&other), "RUNNING", "it has no parent");
}

#[test]
fn a_request_may_name_everything_that_a_start_has() {
    let mut world = starting(
        json!({"name": "other", "version": 1, "correlationId": "c", "priority": 5, "taskToDomain": {"a": "d"}}),
    );
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "start_workflow C, z S");
    let other = world.runs_of("other")[0].clone();
    let view = world.view(&other);
    assert_eq!(
        (&view["correlationId"], &view["priority"]),
        (&json!("c"), &json!(5))
    );
    assert_eq!(world.task(&other, "a").domain.as_deref(), Some("d"));

    let inline = json!({"name": "own", "version": 3, "tasks": [simple("o")]});
    let mut world = starting(json!({"name": "own", "workflowDef": inline}));
    world.start("w", json!({}));
    let other = world.runs_of("own")[0].clone();
    assert_eq!(
        world.view(&other)["input"],
        json!({"_systemMetadata": {"dynamic": true}})
    );
}

#[test]
fn a_start_that_is_not_possible_fails_the_task() {
    for (request, reason) in [
        (Value::Null, "Missing 'startWorkflow' in input data."),
        (json!("other"), "Missing 'startWorkflow' in input data."),
        (
            json!({"input": {}}),
            "Invalid 'startWorkflow': name is missing.",
        ),
        (
            json!({"name": "none"}),
            "No such workflow defined. name=none, version=null",
        ),
        (
            json!({"name": "other", "version": 9}),
            "No such workflow defined. name=other, version=9",
        ),
        (
            json!({"name": "other", "priority": 100}),
            "startWorkflow.priority must be between 0 and 99, not 100",
        ),
    ] {
        let mut world = starting(request.clone());
        let run = world.start("w", json!({}));
        assert_eq!(world.trace(&run), "start_workflow F", "{request}");
        assert_eq!(
            world.task(&run, "start_workflow").reason.as_deref(),
            Some(reason)
        );
        assert_eq!(world.status(&run), "FAILED");
        assert!(world.runs_of("other").is_empty());
    }
}

#[test]
fn an_idempotency_key_is_claimed_with_the_run() {
    let request = |strategy: &str| json!({"name": "other", "idempotencyKey": "k", "idempotencyStrategy": strategy});
    let mut world = starting(request("RETURN_EXISTING"));
    let first = world.start("w", json!({}));
    let second = world.start("w", json!({}));
    let id = |world: &World, run| {
        world.record(run, "start_workflow")["outputData"]["workflowId"].clone()
    };
    assert_eq!(id(&world, &first), id(&world, &second));
    assert_eq!(world.runs_of("other").len(), 1);

    let mut world = starting(request("FAIL"));
    world.start("w", json!({}));
    let second = world.start("w", json!({}));
    assert_eq!(world.trace(&second), "start_workflow F");
    let other = world.runs_of("other")[0].clone();
    assert_eq!(
        world.task(&second, "start_workflow").reason,
        Some(format!("The idempotency key k is used by workflow {other}"))
    );

    let mut world = starting(request("FAIL_ON_RUNNING"));
    world.start("w", json!({}));
    let second = world.start("w", json!({}));
    assert_eq!(world.trace(&second), "start_workflow F");
    let other = world.runs_of("other")[0].clone();
    world.complete(&other, "b", json!({}));
    let third = world.start("w", json!({}));
    assert_eq!(world.trace(&third), "start_workflow C, z S");
    assert_eq!(world.runs_of("other").len(), 2);
}

#[test]
fn two_starts_of_one_decision_do_not_take_the_same_key() {
    let start = |name: &str| {
        json!({"name": name, "taskReferenceName": name, "type": "START_WORKFLOW", "inputParameters": {"startWorkflow":
            {"name": "other", "idempotencyKey": "k", "idempotencyStrategy": "RETURN_EXISTING"}}})
    };
    let mut world = World::with_tasks(json!([start("one"), start("two")]));
    world.define(json!({"name": "other", "version": 1, "tasks": [simple("a")]}));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "one C, two C");
    assert_eq!(world.runs_of("other").len(), 1);
}

#[test]
fn runs_that_start_each_other_have_an_end() {
    let start = node(
        "START_WORKFLOW",
        json!({"inputParameters": {"startWorkflow": {"name": "w"}}}),
    );
    let mut world = World::with_tasks(json!([start]));
    world.check_every = 50;
    world.start("w", json!({}));
    let runs = world.runs_of("w");
    assert_eq!(runs.len(), 101);
    let failed = runs.iter().filter(|run| world.status(run) == "FAILED");
    assert_eq!(failed.count(), 1);
}

#[test]
fn a_delayed_start_waits_and_a_failed_one_is_retried() {
    let mut world = World::with_tasks(json!([node(
        "START_WORKFLOW",
        json!({"startDelay": 5, "retryCount": 1, "inputParameters": {"startWorkflow": {"name": "late"}}})
    )]));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "start_workflow S");
    world.wait_seconds(5);
    assert_eq!(world.trace(&run), "start_workflow Fr, start_workflow S");
    world.define(json!({"name": "late", "version": 1, "tasks": [simple("a")]}));
    world.wait_seconds(60);
    assert_eq!(world.trace(&run), "start_workflow Fr, start_workflow C");
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_lambda_is_the_body_of_a_function() {
    let lambda = |script: &str| {
        World::with_tasks(json!([node(
            "LAMBDA",
            json!({"inputParameters": {"scriptExpression": script, "n": 4}})
        )]))
    };
    let mut world = lambda("return $.n + 1 // the next");
    world.script("(function () { return $.n + 1 // the next\n})()", |input| {
        json!(input["n"].as_i64().unwrap() + 1)
    });
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "lambda C");
    assert_eq!(world.output(&run), json!({"result": 5}));

    let mut world = lambda("throw 'no'");
    world.failing_script("(function () { throw 'no'\n})()", "no", false);
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "lambda F");
    assert_eq!(
        world.record(&run, "lambda")["outputData"],
        json!({"error": "no"})
    );

    let mut world = lambda(" ");
    let run = world.start("w", json!({}));
    assert_eq!(
        world.task(&run, "lambda").reason.as_deref(),
        Some("Empty 'scriptExpression' in LAMBDA task.")
    );
}
