//! Schemas that definitions enforce.

use longhaul_engine::Rejection;
use longhaul_engine::conductor::execution::lookup::{Comparison, ScriptFailure};
use longhaul_protocol::Reason;
use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use super::world::{World, members, simple, with};

/// Compares like the world outside: a schema names the members that a value must have, or the error of every comparison.
pub(super) fn compare(comparison: &Comparison) -> Result<Vec<String>, ScriptFailure> {
    let schema: Value = serde_json::from_str(&comparison.schema).unwrap();
    let value: Value = serde_json::from_str(&comparison.value).unwrap();
    if let Some(message) = schema["error"].as_str() {
        return Err(ScriptFailure {
            message: message.to_owned(),
            is_retriable: schema["busy"] == true,
        });
    }
    let required = schema["required"].as_array().unwrap().iter();
    Ok(required
        .map(|name| name.as_str().unwrap())
        .filter(|name| value.get(name).is_none())
        .map(|name| format!("\"{name}\" is a required property"))
        .collect())
}

fn needs(name: &str) -> Value {
    json!({"name": format!("needs {name}"), "version": 2, "type": "JSON", "data": {"required": [name]}})
}

/// A world with one task `t` whose definition has these members, and the workflow definition those.
fn world(task: Value, workflow: Value) -> World {
    let mut world = World::new();
    world.task_def(with(
        json!({"name": "t", "retryCount": 1, "retryDelaySeconds": 0}),
        task,
    ));
    let node = with(
        simple("t"),
        json!({"inputParameters": {"a": "${workflow.input.a}"}}),
    );
    let more = with(
        json!({"name": "w", "version": 1, "tasks": [node]}),
        workflow,
    );
    world.define(more);
    world
}

fn refused(world: &mut World, name: &str, input: Value) -> Rejection {
    let new = world.new_execution(name, input);
    world.try_create(&new).unwrap_err()
}

#[test]
fn a_start_with_another_input_is_refused() {
    let mut world = world(json!({}), json!({"inputSchema": needs("a")}));
    let rejection = refused(&mut world, "w", json!({"b": 1}));
    assert_eq!(rejection.reason(), Reason::SchemaMismatch);
    assert_eq!(
        rejection.to_string(),
        "The input of workflow w does not match schema needs a version 2: \"a\" is a required property"
    );
    assert!(world.runs.is_empty(), "nothing was started");
    let run = world.start("w", json!({"a": 1}));
    assert_eq!(world.status(&run), "RUNNING");
}

#[test]
fn the_template_of_the_input_comes_before_the_schema() {
    let template = json!({"inputSchema": needs("a"), "inputTemplate": {"a": 1}});
    let mut world = world(json!({}), template);
    let run = world.start("w", json!({}));
    assert_eq!(world.status(&run), "RUNNING");
}

#[test]
fn nothing_is_enforced_that_is_switched_off_unknown_or_in_another_language() {
    for schema in [
        json!({"inputSchema": needs("a"), "outputSchema": needs("b"), "enforceSchema": false}),
        json!({"inputSchema": {"name": "unknown", "version": 1}, "enforceSchema": true}),
        json!({"inputSchema": with(needs("a"), json!({"type": "AVRO"})), "enforceSchema": true}),
    ] {
        let mut world = world(schema.clone(), schema.clone());
        let run = world.start("w", json!({}));
        world.complete(&run, "t", json!({}));
        assert_eq!(world.status(&run), "COMPLETED", "{schema}");
    }
    // Task definitions do not enforce by default.
    let mut world = world(json!({"inputSchema": needs("x")}), json!({}));
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_task_with_another_input_fails_and_no_worker_gets_it() {
    let schemas = json!({"inputSchema": needs("b"), "enforceSchema": true});
    let mut world = world(schemas, json!({}));
    let run = world.start("w", json!({"a": 1}));
    let task = world.task(&run, "t");
    assert_eq!(task.status.as_str(), "FAILED_WITH_TERMINAL_ERROR");
    assert_eq!(
        task.reason.as_deref(),
        Some(
            "The input of task t does not match schema needs b version 2: \"b\" is a required property"
        )
    );
    assert_eq!((task.poll_count, task.retry_count), (0, 0));
    assert_eq!(world.status(&run), "FAILED");
}

#[test]
fn a_task_with_a_matching_input_is_queued_and_retried() {
    let schemas =
        json!({"inputSchema": needs("a"), "outputSchema": needs("x"), "enforceSchema": true});
    let mut world = world(schemas, json!({}));
    let run = world.start("w", json!({"a": 1}));
    world
        .report(&run, "t", ResultStatus::Failed, json!({}), None)
        .unwrap();
    assert_eq!(world.task(&run, "t").retry_count, 1);
    world.complete(&run, "t", json!({"x": 1}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_delay_comes_before_the_comparison() {
    let schemas = json!({"inputSchema": needs("a"), "enforceSchema": true});
    let mut world = world(schemas, json!({}));
    let node = with(
        simple("t"),
        json!({"inputParameters": {"a": 1}, "startDelay": 60}),
    );
    world.define(json!({"name": "late", "version": 1, "tasks": [node]}));
    let run = world.start("late", json!({}));
    assert!(world.poll("t", "w1").is_none(), "it is not due");
    world.wait_seconds(60);
    let polled = world.poll("t", "w1");
    assert_eq!(polled.map(|(run_id, _)| run_id), Some(run.clone()));
    world.complete(&run, "t", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn another_output_fails_the_task_and_stays_readable() {
    let schemas = json!({"outputSchema": needs("x"), "enforceSchema": true});
    let mut world = world(schemas, json!({}));
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"y": 1}));
    let task = world.task(&run, "t");
    assert_eq!(task.status.as_str(), "FAILED_WITH_TERMINAL_ERROR");
    let reason = task.reason.clone().unwrap();
    assert!(reason.starts_with("The output of task t does not match schema needs x"));
    assert_eq!(world.status(&run), "FAILED");
    assert_eq!(world.output(&run), json!({"y": 1}));
    // The output of a failed task is not compared.
    let run = world.start("w", json!({}));
    world
        .report(
            &run,
            "t",
            ResultStatus::FailedWithTerminalError,
            json!({}),
            Some("own"),
        )
        .unwrap();
    assert_eq!(world.task(&run, "t").reason.as_deref(), Some("own"));
}

#[test]
fn an_output_that_cannot_be_compared_is_tried_again() {
    let busy = json!({"name": "s", "data": {"error": "no process", "busy": true}});
    let mut world = world(
        json!({"outputSchema": busy, "enforceSchema": true}),
        json!({}),
    );
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({}));
    let statuses: Vec<_> = world.tasks(&run).map(|task| task.status.as_str()).collect();
    assert_eq!(statuses, ["FAILED", "SCHEDULED"]);
    let broken = json!({"name": "s", "data": {"error": "it is not a valid JSON Schema"}});
    let mut world = self::world(
        json!({"outputSchema": broken, "enforceSchema": true}),
        json!({}),
    );
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({}));
    assert_eq!(
        world.task(&run, "t").reason.as_deref(),
        Some(
            "The output of task t could not be compared with schema s version 1: it is not a valid JSON Schema"
        )
    );
    assert_eq!(world.status(&run), "FAILED");
}

#[test]
fn a_start_that_cannot_be_compared_may_be_repeated() {
    let busy = json!({"name": "s", "data": {"error": "no process", "busy": true}});
    let mut world = world(json!({}), json!({"inputSchema": busy}));
    let rejection = refused(&mut world, "w", json!({}));
    assert_eq!(rejection.reason(), Reason::ServerBusy);
}

#[test]
fn a_run_with_another_output_fails() {
    let mut world = world(
        json!({}),
        json!({"outputSchema": needs("x"), "failureWorkflow": "mend"}),
    );
    world.define(json!({"name": "mend", "version": 1, "tasks": [simple("t")]}));
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"y": 1}));
    assert_eq!(world.status(&run), "FAILED");
    assert_eq!(
        world.reason(&run),
        "The output of workflow w does not match schema needs x version 2: \"x\" is a required property"
    );
    assert_eq!(world.output(&run)["y"], 1);
    assert!(world.output(&run)["conductor.failure_workflow"].is_string());
    let run = world.start("w", json!({}));
    world.complete(&run, "t", json!({"x": 1}));
    assert_eq!(world.status(&run), "COMPLETED");
    // The output of TERMINATE is one, too.
    let end = json!({"terminationStatus": "COMPLETED", "workflowOutput": {"y": 1}});
    let node = json!({"name": "end", "taskReferenceName": "end", "type": "TERMINATE", "inputParameters": end});
    world.define(
        json!({"name": "ended", "version": 1, "tasks": [node], "outputSchema": needs("x")}),
    );
    let run = world.start("ended", json!({}));
    assert_eq!(world.status(&run), "FAILED");
}

#[test]
fn a_sub_workflow_with_another_input_fails_its_task() {
    let mut world = world(json!({}), json!({"inputSchema": needs("a")}));
    let sub = json!({"name": "sub", "taskReferenceName": "sub", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "w", "version": 1}});
    world.define(json!({"name": "parent", "version": 1, "tasks": [sub]}));
    let run = world.start("parent", json!({}));
    assert_eq!(world.status(&run), "FAILED");
    let reason = world.task(&run, "sub").reason.clone().unwrap();
    assert!(
        reason.contains("The input of workflow w does not match"),
        "{reason}"
    );
}

#[test]
fn a_run_keeps_the_registered_schemas_with_which_it_began() {
    let named = json!({"name": "s", "version": 3});
    let mut world = world(
        json!({"outputSchema": named, "enforceSchema": true}),
        json!({"inputSchema": named}),
    );
    let key = ("s".to_owned(), 3);
    world
        .schemas
        .insert(key.clone(), members(json!({"required": ["x"]})));
    assert_eq!(
        refused(&mut world, "w", json!({})).reason(),
        Reason::SchemaMismatch
    );
    let before = world.start("w", json!({"x": 1}));
    world
        .schemas
        .insert(key, members(json!({"required": ["y"]})));
    world.complete(&before, "t", json!({"x": 1}));
    assert_eq!(world.status(&before), "COMPLETED");
    let after = world.start("w", json!({"y": 1}));
    world.complete(&after, "t", json!({"x": 1}));
    assert_eq!(world.status(&after), "FAILED");
}

#[test]
fn a_dynamic_task_has_the_schemas_of_its_definition() {
    let named = json!({"name": "s", "version": 3});
    let mut world = world(
        json!({"inputSchema": named, "outputSchema": needs("x"), "enforceSchema": true}),
        json!({}),
    );
    world
        .schemas
        .insert(("s".to_owned(), 3), members(json!({"required": ["a"]})));
    let node = json!({
        "name": "d", "taskReferenceName": "d", "type": "DYNAMIC", "dynamicTaskNameParam": "which",
        "inputParameters": {"which": "t", "a": "${workflow.input.a}"},
    });
    world.define(json!({"name": "dynamic", "version": 1, "tasks": [node]}));
    let run = world.start("dynamic", json!({"a": 1}));
    world.complete(&run, "d", json!({}));
    let reason = world.task(&run, "d").reason.clone().unwrap();
    assert!(
        reason.contains("The output of task d does not match"),
        "{reason}"
    );
}

#[test]
fn many_branches_are_compared_in_several_transactions() {
    let schemas = json!({"inputSchema": needs("a"), "enforceSchema": true});
    let mut world = world(schemas, json!({}));
    let branches: Vec<Value> = (0..50)
        .map(|n| json!([{"name": "t", "taskReferenceName": format!("b{n}"), "inputParameters": {"a": n}}]))
        .collect();
    let on: Vec<String> = (0..50).map(|n| format!("b{n}")).collect();
    world.define(json!({"name": "wide", "version": 1, "tasks": [
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": branches},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": on},
    ]}));
    let run = world.start("wide", json!({}));
    for reference in &on {
        world.complete(&run, reference, json!({}));
    }
    assert_eq!(world.status(&run), "COMPLETED");
}
