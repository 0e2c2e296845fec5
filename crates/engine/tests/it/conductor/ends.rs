//! How runs end, what they return, and what stops or holds them.

use longhaul_engine::Rejection;
use longhaul_engine::command::{PauseExecution, ResumeExecution};
use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use super::world::{World, simple, with};

fn defined(tasks: Value, more: Value) -> World {
    let mut world = World::new();
    world.define(with(
        json!({"name": "w", "version": 1, "tasks": tasks}),
        more,
    ));
    world
}

#[test]
fn the_output_follows_the_definition() {
    let parameters = json!({"x": "${a.output.x}", "none": "${b.output.y}", "s": "${workflow.status}", "id": "${CPEWF_TASK_ID}"});
    let mut world = defined(
        json!([simple("a"), simple("b")]),
        json!({"outputParameters": parameters}),
    );
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"x": 1}));
    world.complete(&run, "b", json!({"z": 2}));
    assert_eq!(
        world.output(&run),
        json!({"x": 1, "none": null, "s": "RUNNING", "id": "${CPEWF_TASK_ID}"})
    );
    // Also when it fails.
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"x": 1}));
    world
        .report(
            &run,
            "b",
            ResultStatus::FailedWithTerminalError,
            json!({"y": 5}),
            None,
        )
        .unwrap();
    assert_eq!(
        (world.status(&run), world.output(&run)["none"].clone()),
        ("FAILED", json!(5))
    );
    let id = world.task(&run, "b").id.clone();
    assert_eq!(
        world.reason(&run),
        format!("Task {id} failed with status: FAILED and reason: 'null'")
    );
}

#[test]
fn without_parameters_the_last_task_or_the_failed_one_counts() {
    let mut world = defined(
        json!([
            {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a"), simple("a2")], [simple("b")]]},
            {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a2", "b"]},
        ]),
        json!({}),
    );
    let run = world.start("w", json!({}));
    for (reference, output) in [
        ("a", json!({"a": 1})),
        ("b", json!({"b": 1})),
        ("a2", json!({"a2": 1})),
    ] {
        world.complete(&run, reference, output);
    }
    assert_eq!(
        world.output(&run),
        json!({"a2": 1}),
        "a late branch has the highest number"
    );
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"a": 1}));
    world
        .report(
            &run,
            "b",
            ResultStatus::FailedWithTerminalError,
            json!({"b": 1}),
            None,
        )
        .unwrap();
    assert_eq!(world.output(&run), json!({"b": 1}));
}

#[test]
fn a_terminate_task_decides_about_the_end() {
    let terminate = |input: Value| {
        let task = json!({"name": "t", "taskReferenceName": "t", "type": "TERMINATE", "inputParameters": input});
        defined(
            json!([task, simple("z")]),
            json!({"outputParameters": {"x": 1}, "failureWorkflow": "cleanup"}),
        )
    };
    for (input, status, output) in [
        (
            json!({"terminationStatus": "COMPLETED"}),
            "COMPLETED",
            json!({}),
        ),
        (
            json!({"terminationStatus": "${workflow.input.s}", "workflowOutput": {"code": 7}}),
            "FAILED",
            json!({"code": 7}),
        ),
        (
            json!({"terminationStatus": "TERMINATED", "workflowOutput": [1]}),
            "TERMINATED",
            json!({"output": [1]}),
        ),
    ] {
        let mut world = terminate(input);
        world.define(json!({"name": "cleanup", "version": 1, "tasks": [simple("c")]}));
        let run = world.start("w", json!({"s": "FAILED"}));
        assert_eq!(
            (world.trace(&run), world.status(&run)),
            ("t C".to_owned(), status)
        );
        let mut shown = world.output(&run);
        let cleanup = shown
            .as_object_mut()
            .unwrap()
            .remove("conductor.failure_workflow");
        assert_eq!(shown, output);
        assert_eq!(cleanup.is_some(), status != "COMPLETED");
        assert_eq!(
            world.runs_of("cleanup").len(),
            usize::from(status != "COMPLETED")
        );
    }
    let mut world = terminate(json!({"terminationStatus": "DONE"}));
    world.define(json!({"name": "cleanup", "version": 1, "tasks": []}));
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("t F".to_owned(), "FAILED")
    );
    assert!(
        world
            .task(&run, "t")
            .reason
            .as_ref()
            .unwrap()
            .contains("terminationStatus")
    );
}

#[test]
fn a_failure_workflow_gets_the_failed_run() {
    let mut world = defined(
        json!([with(simple("a"), json!({"retryCount": 0}))]),
        json!({"failureWorkflow": "cleanup"}),
    );
    world.define(json!({"name": "cleanup", "version": 1, "tasks": [simple("c")]}));
    let run = world.start("w", json!({"order": 7, "big": "b".repeat(5000)}));
    let big = "x".repeat(5000);
    world
        .report(
            &run,
            "a",
            ResultStatus::Failed,
            json!({"big": big}),
            Some("broken"),
        )
        .unwrap();
    let cleanup = world.runs_of("cleanup")[0].clone();
    assert_eq!(
        world.output(&run)["conductor.failure_workflow"],
        json!(cleanup.as_str())
    );
    let input = world.view(&cleanup)["input"].clone();
    assert_eq!(
        (input["order"].clone(), input["workflowId"].clone()),
        (json!(7), json!(run.as_str()))
    );
    assert_eq!(input["failureStatus"], "FAILED");
    assert_eq!(input["reason"], json!(world.reason(&run)));
    assert_eq!(
        input["failureTaskId"],
        json!(world.task(&run, "a").id.as_str())
    );
    // The output that this very decision stored is in it.
    let failed = &input["failedWorkflow"];
    assert_eq!(failed["tasks"][0]["outputData"]["big"], json!(big));
    assert_eq!(
        (failed["status"].clone(), failed["input"]["order"].clone()),
        (json!("FAILED"), json!(7))
    );
    world.complete(&cleanup, "c", json!({}));
    assert_eq!(world.status(&cleanup), "COMPLETED");
}

#[test]
fn a_failure_workflow_may_be_missing_or_named_by_the_input() {
    for (name, input, found) in [
        ("cleanup", json!({}), false),
        ("$workflow.input.key", json!({"key": "other"}), true),
        ("${workflow.input.key}", json!({"key": "other"}), true),
        ("", json!({}), false),
    ] {
        let mut world = defined(
            json!([with(simple("a"), json!({"retryCount": 0}))]),
            json!({"failureWorkflow": name}),
        );
        world.define(json!({"name": "other", "version": 1, "tasks": []}));
        let run = world.start("w", input);
        world.fail(&run, "a", "broken");
        assert_eq!(world.status(&run), "FAILED");
        assert_eq!(world.runs_of("other").len(), usize::from(found), "{name}");
        if name == "cleanup" {
            assert_eq!(
                world.output(&run)["conductor.failure_workflow"],
                "Error workflow cleanup failed to start.  reason: No such workflow defined. name=cleanup"
            );
        }
    }
}

#[test]
fn a_caller_terminates_a_run_without_its_failure_workflow() {
    let mut world = defined(
        json!([simple("a")]),
        json!({"failureWorkflow": "cleanup", "outputParameters": {"x": 1}}),
    );
    world.define(json!({"name": "cleanup", "version": 1, "tasks": []}));
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    world.terminate(&run, "enough").unwrap();
    assert_eq!(
        (world.trace(&run), world.status(&run), world.reason(&run)),
        ("a X".to_owned(), "TERMINATED", "enough")
    );
    assert_eq!(world.output(&run), json!({"x": 1}));
    assert!(world.runs_of("cleanup").is_empty());
    let again = world.terminate(&run, "enough");
    assert!(
        matches!(again, Err(Rejection::RunNotActive { .. })),
        "{again:?}"
    );
    let late = world.report(&run, "a", ResultStatus::Completed, json!({}), None);
    assert!(matches!(late, Err(Rejection::TaskNotFound)));
}

#[test]
fn a_paused_run_schedules_nothing() {
    let mut world = defined(json!([simple("a"), simple("b")]), json!({}));
    let run = world.start("w", json!({}));
    let pause = PauseExecution {
        reason: Some("night".to_owned()),
    };
    world.act(&run, &pause).unwrap();
    world.act(&run, &pause).unwrap();
    assert_eq!(world.status(&run), "PAUSED");
    assert!(world.poll("a", "w1").is_some(), "open tasks can be polled");
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "a C");
    world.act(&run, &ResumeExecution).unwrap();
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a C, b S".to_owned(), "RUNNING")
    );
    assert!(matches!(
        world.act(&run, &ResumeExecution),
        Err(Rejection::RunNotPaused)
    ));
    world.act(&run, &pause).unwrap();
    world.complete(&run, "b", json!({}));
    assert_eq!(world.status(&run), "PAUSED");
    world.act(&run, &ResumeExecution).unwrap();
    assert_eq!(world.status(&run), "COMPLETED");
    assert!(world.act(&run, &pause).is_err());
    assert!(world.act(&run, &ResumeExecution).is_err());
}

#[test]
fn time_passes_in_a_paused_run() {
    let wait = json!({"name": "s", "taskReferenceName": "s", "type": "WAIT", "inputParameters": {"duration": "5s"}});
    let mut world = defined(
        json!([wait, with(simple("a"), json!({"retryCount": 1}))]),
        json!({}),
    );
    let run = world.start("w", json!({}));
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.wait_seconds(5);
    assert_eq!(world.trace(&run), "s C");
    world.act(&run, &ResumeExecution).unwrap();
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.fail(&run, "a", "no");
    assert_eq!(world.trace(&run), "s C, a F");
    world.act(&run, &ResumeExecution).unwrap();
    assert_eq!(world.trace(&run), "s C, a Fr, a S");
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.terminate(&run, "over").unwrap();
    assert_eq!(world.status(&run), "TERMINATED");
}

#[test]
fn a_run_may_be_paused_before_its_first_pass() {
    let mut world = defined(json!([simple("a")]), json!({}));
    let new = world.new_execution("w", json!({}));
    let run = world.create(&new);
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.settle();
    assert_eq!(world.trace(&run), "");
    world.act(&run, &ResumeExecution).unwrap();
    assert_eq!(world.trace(&run), "a S");
}

#[test]
fn the_input_and_variables_of_a_run_come_from_its_definition() {
    let template = json!({"currency": "EUR", "a": 1});
    let mut world = defined(
        json!([with(
            simple("a"),
            json!({"inputParameters": {"c": "${workflow.input.currency}", "n": "${workflow.variables.n}"}})
        )]),
        json!({"inputTemplate": template, "variables": {"n": 5}}),
    );
    let run = world.start("w", json!({"a": 2, "currency": null}));
    assert_eq!(
        world.record(&run, "a")["inputData"],
        json!({"c": "EUR", "n": 5})
    );
    assert_eq!(
        world.view(&run)["input"],
        json!({"a": 2, "currency": "EUR"})
    );
}

#[test]
fn variables_over_the_limit_are_not_set() {
    let set = |value: Value| json!({"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": value});
    let mut world = defined(
        json!([set(json!({"x": "${workflow.input.x}"}))]),
        json!({"variables": {"y": 1}}),
    );
    let run = world.start("w", json!({"x": "x".repeat(256 * 1024)}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("v Z".to_owned(), "FAILED")
    );
    assert!(world.reason(&run).contains("limit: variables"));
    assert_eq!(world.view(&run)["variables"], json!({"y": 1}));
}
