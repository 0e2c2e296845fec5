//! Signals, and changes of variables and of a task from outside.

use longhaul_engine::Rejection;
use longhaul_engine::command::{MergeVariables, UpdateExecutionState, UpdateExecutionTask};
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use crate::conductor::world::{World, members, report, simple};

fn wait(reference: &str) -> Value {
    json!({"name": reference, "taskReferenceName": reference, "type": "WAIT"})
}

fn signal(output: Value) -> UpdateExecutionTask {
    UpdateExecutionTask {
        target: TaskTarget::Signalled,
        report: Report::Status {
            status: ResultStatus::Completed,
            output: Output::Merge(members(output)),
            reason: None,
            worker_id: None,
            callback_after_seconds: 0,
            logs: Vec::new(),
        },
        takes_next: false,
    }
}

fn merge(variables: Value) -> MergeVariables {
    MergeVariables {
        variables: members(variables),
        append_lists: false,
    }
}

#[test]
fn a_signal_ends_the_first_task_that_waits_for_one() {
    let yielding = json!({"name": "y", "taskReferenceName": "y", "type": "YIELD"});
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN",
            "forkTasks": [[simple("a")], [wait("one")], [yielding]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a", "one", "y"]},
        simple("z"),
    ]));
    let run = world.start("w", json!({}));
    world.act(&run, &signal(json!({"n": 1}))).unwrap();
    assert_eq!(world.trace(&run), "fork C, a S, one C, y P, join P");
    world.act(&run, &signal(json!({"n": 2}))).unwrap();
    world.complete(&run, "a", json!({}));
    assert_eq!(
        world.record(&run, "join")["outputData"],
        json!({"one": {"n": 1}, "y": {"n": 2}})
    );
    let version = world.runs[&run].version;
    let none = world.act(&run, &signal(json!({})));
    assert!(matches!(none, Err(Rejection::TaskNotFound)));
    assert_eq!(world.runs[&run].version, version);
    world.complete(&run, "z", json!({}));
    let closed = world.act(&run, &signal(json!({})));
    assert!(matches!(closed, Err(Rejection::TaskNotFound)));
}

#[test]
fn a_signal_that_leaves_the_task_open_adds_to_its_output() {
    let mut world = World::with_tasks(json!([wait("one")]));
    let run = world.start("w", json!({}));
    let mut progress = signal(json!({"a": 1, "b": 1}));
    if let Report::Status { status, .. } = &mut progress.report {
        *status = ResultStatus::InProgress;
    }
    world.act(&run, &progress).unwrap();
    assert_eq!(world.trace(&run), "one P");
    world.act(&run, &signal(json!({"b": 2}))).unwrap();
    assert_eq!(world.output(&run), json!({"a": 1, "b": 2}));
}

#[test]
fn variables_are_merged_and_seen_by_later_tasks() {
    let mut world = World::with_tasks(json!([
        wait("one"),
        {"name": "b", "taskReferenceName": "b", "type": "SIMPLE", "inputParameters": {"v": "${workflow.variables.v}"}},
    ]));
    let run = world.start("w", json!({}));
    world
        .act(&run, &merge(json!({"v": 1, "list": [1]})))
        .unwrap();
    world.act(&run, &merge(json!({"v": {"deep": 2}}))).unwrap();
    let appended = MergeVariables {
        append_lists: true,
        ..merge(json!({"list": [2]}))
    };
    world.act(&run, &appended).unwrap();
    assert_eq!(
        world.view(&run)["variables"],
        json!({"v": {"deep": 2}, "list": [1, 2]})
    );
    world.act(&run, &signal(json!({}))).unwrap();
    assert_eq!(
        world.record(&run, "b")["inputData"],
        json!({"v": {"deep": 2}})
    );
    let version = world.runs[&run].version;
    let large = merge(json!({"v": "x".repeat(300_000)}));
    let refused = world.act(&run, &large);
    assert!(matches!(refused, Err(Rejection::ValueTooLarge { .. })));
    assert_eq!(world.runs[&run].version, version);
    world.terminate(&run, "enough").unwrap();
    let closed = world.act(&run, &merge(json!({"v": 3})));
    assert!(matches!(closed, Err(Rejection::RunNotActive { .. })));
}

#[test]
fn variables_and_a_task_change_together_or_not_at_all() {
    let mut world = World::with_tasks(json!([
        wait("one"),
        {"name": "b", "taskReferenceName": "b", "type": "SIMPLE", "inputParameters": {"v": "${workflow.variables.v}"}},
    ]));
    let run = world.start("w", json!({}));
    let update = |reference: &str, variables: Value| UpdateExecutionState {
        variables: merge(variables),
        task: Some(UpdateExecutionTask {
            target: TaskTarget::Reference(reference.to_owned()),
            report: report(ResultStatus::Completed, json!({"done": true}), None),
            takes_next: false,
        }),
    };
    let version = world.runs[&run].version;
    let unknown = world.act(&run, &update("none", json!({"v": 1})));
    assert!(matches!(unknown, Err(Rejection::TaskNotFound)));
    let large = world.act(&run, &update("one", json!({"v": "x".repeat(300_000)})));
    assert!(matches!(large, Err(Rejection::ValueTooLarge { .. })));
    assert_eq!(world.runs[&run].version, version);
    world.act(&run, &update("one", json!({"v": 1}))).unwrap();
    assert_eq!(world.trace(&run), "one C, b S");
    assert_eq!(world.record(&run, "b")["inputData"], json!({"v": 1}));
    let only_variables = UpdateExecutionState {
        variables: merge(json!({"v": 2})),
        task: None,
    };
    world.act(&run, &only_variables).unwrap();
    assert_eq!(world.view(&run)["variables"], json!({"v": 2}));
}
