//! How runs end, what they return, and what stops or holds them.

mod reopening;

use longhaul_engine::Rejection;
use longhaul_engine::command::{PauseExecution, ResumeExecution};
use longhaul_engine::conductor::execution::command::start::{KeyUse, use_key};
use longhaul_engine::conductor::execution::end::AfterTermination;
use longhaul_protocol::conductor::{IdempotencyStrategy, ResultStatus};
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
    world.terminate(&run, "again").unwrap();
    assert_eq!(world.reason(&run), "enough", "the first reason stays");
    let late = world.report(&run, "a", ResultStatus::Completed, json!({}), None);
    assert!(matches!(late, Err(Rejection::TaskNotFound)));
}

#[test]
fn a_caller_may_start_the_failure_workflow() {
    let mut world = defined(json!([simple("a")]), json!({"failureWorkflow": "cleanup"}));
    world.define(json!({"name": "cleanup", "version": 1, "tasks": []}));
    let run = world.start("w", json!({}));
    let then = AfterTermination::StartFailureWorkflow;
    world.terminate_and(&run, "enough", then).unwrap();
    assert_eq!(world.status(&run), "TERMINATED");
    assert_eq!(world.runs_of("cleanup").len(), 1);
}

#[test]
fn a_run_that_ended_is_terminated_unless_it_completed() {
    let mut world = defined(
        json!([with(simple("a"), json!({"retryCount": 0}))]),
        json!({}),
    );
    let failed = world.start("w", json!({}));
    world.fail(&failed, "a", "no");
    assert_eq!(world.status(&failed), "FAILED");
    world.terminate(&failed, "given up").unwrap();
    assert_eq!(
        (world.status(&failed), world.reason(&failed)),
        ("TERMINATED", "given up")
    );
    let completed = world.start("w", json!({}));
    world.complete(&completed, "a", json!({}));
    let refused = world.terminate(&completed, "late");
    assert!(
        matches!(refused, Err(Rejection::RunNotActive { .. })),
        "{refused:?}"
    );
    assert_eq!(world.status(&completed), "COMPLETED");
}

#[test]
fn the_strategy_of_a_start_decides_about_a_key_in_use() {
    let mut world = defined(json!([simple("a")]), json!({}));
    let run = world.start("w", json!({}));
    let decide = |world: &World, strategy| use_key(strategy, &world.runs[&run]);
    let taken: Result<KeyUse, _> = Err(Rejection::KeyTaken {
        run_id: run.clone(),
    });
    for strategy in [
        IdempotencyStrategy::Fail,
        IdempotencyStrategy::FailOnRunning,
    ] {
        let decided = decide(&world, strategy);
        assert_eq!(format!("{decided:?}"), format!("{taken:?}"), "{strategy:?}");
    }
    let existing = decide(&world, IdempotencyStrategy::ReturnExisting);
    assert!(matches!(existing, Ok(KeyUse::Existing)));
    world.complete(&run, "a", json!({}));
    let again = decide(&world, IdempotencyStrategy::FailOnRunning);
    assert!(matches!(again, Ok(KeyUse::Replace)));
    let failed = decide(&world, IdempotencyStrategy::Fail);
    assert!(matches!(failed, Err(Rejection::KeyTaken { .. })));
    let existing = decide(&world, IdempotencyStrategy::ReturnExisting);
    assert!(matches!(existing, Ok(KeyUse::Existing)));
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
    let call = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}});
    let mut world = defined(json!([call]), json!({}));
    world.define(json!({"name": "child", "version": 1, "tasks": [simple("a")]}));
    let new = world.new_execution("w", json!({}));
    world.create(&new);
    let run = world.runs_of("child")[0].clone();
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

#[test]
fn a_chain_of_failure_workflows_ends() {
    let mut world = defined(
        json!([{"name": "t", "taskReferenceName": "t", "type": "TERMINATE",
            "inputParameters": {"terminationStatus": "FAILED", "terminationReason": {"code": 5}}}]),
        json!({"failureWorkflow": "w"}),
    );
    world.check_every = 100;
    let run = world.start("w", json!({}));
    assert_eq!(world.reason(&run), r#"{"code":5}"#);
    let runs = world.runs_of("w");
    assert_eq!(runs.len(), 101);
    let last = runs
        .iter()
        .map(|run| world.output(run)["conductor.failure_workflow"].to_string())
        .find(|shown| shown.contains("limit: sub-workflow depth"));
    assert!(last.is_some());
}

#[test]
fn a_value_that_is_nested_too_deeply_is_not_stored() {
    let mut world = World::with_tasks(json!([simple("a")]));
    let run = world.start("w", json!({}));
    let mut deep = json!(1);
    for _ in 0..500 {
        deep = json!([deep]);
    }
    world.complete(&run, "a", json!({"deep": deep}));
    let output = world.output(&run);
    let error = output["error"].as_str().unwrap();
    assert!(error.contains("limit: depth of a value"), "{error}");
}
