//! Runs that ended and are opened again: restart, retry, rerun. And what operators change in open runs: skip, callbacks, state.

use longhaul_engine::Rejection;
use longhaul_engine::command::{PauseExecution, RerunExecution};
use longhaul_engine::conductor::execution::command::update::{Output, Report};
use longhaul_protocol::conductor::ResultStatus;
use longhaul_protocol::id::RunId;
use serde_json::{Value, json};

use crate::conductor::world::{World, members, report, simple, with};

/// Returns a SIMPLE node that is not retried by itself.
fn once(name: &str) -> Value {
    with(simple(name), json!({"retryCount": 0}))
}

fn fork(branches: Value, on: Value) -> [Value; 2] {
    [
        json!({"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": branches}),
        json!({"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": on}),
    ]
}

fn started(tasks: Value) -> (World, RunId) {
    let mut world = World::with_tasks(tasks);
    let run = world.start("w", json!({"x": 1}));
    (world, run)
}

/// Returns a world where `w` waits for `child`, and the child for its worker.
fn family() -> (World, RunId, RunId) {
    let sub = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "retryCount": 0,
        "subWorkflowParam": {"name": "child", "version": 1}});
    let mut world = World::with_tasks(json!([sub, simple("z")]));
    world.define(json!({"name": "child", "version": 1, "tasks": [once("c"), once("d")]}));
    let run = world.start("w", json!({}));
    let child = world.runs_of("child")[0].clone();
    (world, run, child)
}

#[test]
fn a_restart_begins_from_the_start() {
    let (mut world, run) = started(json!([
        {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"k": 1}},
        once("a"), once("b")]));
    assert_eq!(world.restart(&run), Err(Rejection::RunNotEnded));
    world.complete(&run, "a", json!({"y": 1}));
    world.fail(&run, "b", "no");
    let first = world.task(&run, "a").id.clone();
    world.wait_seconds(9);
    world.restart(&run).unwrap();
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("RUNNING", "v C, a S")
    );
    let view = world.view(&run);
    assert_eq!(view["tasks"][0]["seq"], 1, "numbers count from the restart");
    assert_eq!(view["input"], json!({"x": 1}));
    assert_eq!(view["output"], json!({}));
    assert!(view["createTime"].as_i64() > view["tasks"][0]["seq"].as_i64());
    assert_eq!(view.get("reasonForIncompletion"), None);
    assert!(!world.rows.contains_key(&first), "the row is gone");
    world.complete(&run, "a", json!({}));
    world.complete(&run, "b", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.view(&run).get("failedTaskNames"), Some(&json!([])));
}

#[test]
fn a_restart_may_use_the_newest_definition() {
    let (mut world, run) = started(json!([once("a")]));
    world.fail(&run, "a", "no");
    world.define(json!({"name": "w", "version": 2, "restartable": false, "variables": {"v": 2}, "tasks": [once("b")]}));
    world.restart(&run).unwrap();
    assert_eq!(world.trace(&run), "a S");
    world.fail(&run, "a", "no");
    world.restart_with(&run, Some("w")).unwrap();
    let view = world.view(&run);
    assert_eq!(
        (&*world.trace(&run), &view["workflowVersion"]),
        ("b S", &json!(2))
    );
    assert_eq!(view["variables"], json!({"v": 2}));
    world.complete(&run, "b", json!({}));
    assert_eq!(world.restart(&run), Err(Rejection::RunNotRestartable));
}

#[test]
fn a_retry_repeats_what_failed() {
    let [fork, join] = fork(
        json!([[once("a")], [once("b"), once("c")]]),
        json!(["a", "c"]),
    );
    let (mut world, run) = started(json!([fork, join, once("z")]));
    assert_eq!(world.retry(&run), Err(Rejection::RunNotEnded));
    world.complete(&run, "b", json!({"y": 1}));
    world.fail(&run, "a", "no");
    assert_eq!(world.trace(&run), "f C, a F, b C, j X, c X");
    world.retry(&run).unwrap();
    assert_eq!(world.trace(&run), "f C, a Fr, b C, j P, c Xr, a S, c S");
    let again = world.record(&run, "a");
    assert_eq!(
        (&again["retryCount"], again.get("reasonForIncompletion")),
        (&json!(1), None)
    );
    assert_eq!(
        again["retriedTaskId"],
        world.view(&run)["tasks"][1]["taskId"]
    );
    world.complete(&run, "c", json!({}));
    world.complete(&run, "a", json!({}));
    world.complete(&run, "z", json!({}));
    let view = world.view(&run);
    assert_eq!(view["status"], "COMPLETED");
    assert_eq!(view["failedReferenceTaskNames"], json!(["a"]));
    assert_eq!(world.retry(&run), Err(Rejection::NothingToRetry));
}

#[test]
fn a_retry_goes_on_where_the_run_was_cut_off() {
    // The end of b was reported while the run was paused, so nothing was scheduled after it.
    let [fork, join] = fork(
        json!([[once("a")], [once("b"), once("c")]]),
        json!(["a", "c"]),
    );
    let (mut world, run) = started(json!([fork, join]));
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.complete(&run, "b", json!({}));
    world.terminate(&run, "enough").unwrap();
    assert_eq!(world.trace(&run), "f C, a X, b C, j X");
    world.retry(&run).unwrap();
    assert_eq!(world.trace(&run), "f C, a Xr, b C, j P, a S, c S");
    assert_eq!(world.status(&run), "RUNNING");
}

#[test]
fn a_retried_loop_goes_on_at_its_iteration() {
    let body = json!([once("t"), once("u")]);
    let looping = json!({"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": ["x", "y"], "loopOver": body});
    let (mut world, run) = started(json!([looping, once("z")]));
    for name in ["t__1", "u__1", "t__2"] {
        world.complete(&run, name, json!({"n": name}));
    }
    world.fail(&run, "u__2", "no");
    assert_eq!(world.trace(&run), "l X, t__1 C, u__1 C, t__2 C, u__2 F");
    world.retry(&run).unwrap();
    assert_eq!(
        world.trace(&run),
        "l P, t__1 C, u__1 C, t__2 C, u__2 Fr, u__2 S"
    );
    world.complete(&run, "u__2", json!({"n": 1}));
    assert_eq!(world.task(&run, "z").reference, "z");
    let output = &world.record(&run, "l")["outputData"];
    assert_eq!(
        (&output["iteration"], &output["loopItem"]),
        (&json!(2), &json!("y"))
    );
    assert_eq!(output["2"], json!({"t": {"n": "t__2"}, "u": {"n": 1}}));
}

#[test]
fn a_retried_switch_is_evaluated_again() {
    let mut world = World::with_tasks(
        json!([{"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "javascript",
        "expression": "e", "inputParameters": {"k": 1}, "decisionCases": {"one": [once("a")]}, "defaultCase": [once("b")]}]),
    );
    world.failing_script("e", "no such thing", false);
    let run = world.start("w", json!({}));
    assert_eq!((world.status(&run), &*world.trace(&run)), ("FAILED", "s F"));
    world.script("e", |_| json!("one"));
    world.retry(&run).unwrap();
    assert_eq!(world.trace(&run), "s Fr, s C, a S");
}

#[test]
fn a_cancelled_wait_keeps_its_time() {
    let [fork, join] = fork(
        json!([[once("a")], [{"name": "w", "taskReferenceName": "w", "type": "WAIT", "inputParameters": {"duration": "60s"}}]]),
        json!(["a", "w"]),
    );
    let (mut world, run) = started(json!([fork, join]));
    world.wait_seconds(20);
    world.fail(&run, "a", "no");
    world.wait_seconds(20);
    world.retry(&run).unwrap();
    assert_eq!(world.record(&run, "w")["callbackAfterSeconds"], 20);
    world.fail(&run, "a", "no");
    world.wait_seconds(30);
    world.retry(&run).unwrap();
    assert_eq!(
        world.trace(&run),
        "f C, a Fr, w Xr, j P, a Fr, w Xr, a S, w C"
    );
}

#[test]
fn a_run_that_timed_out_has_another_deadline() {
    let mut world = World::new();
    world.define(json!({"name": "w", "version": 1, "timeoutSeconds": 30, "timeoutPolicy": "TIME_OUT_WF", "tasks": [once("a")]}));
    let run = world.start("w", json!({}));
    world.wait_seconds(30);
    assert_eq!(world.status(&run), "TIMED_OUT");
    world.wait_seconds(100);
    world.retry(&run).unwrap();
    assert_eq!(world.trace(&run), "a Xr, a S");
    world.wait_seconds(29);
    assert_eq!(world.status(&run), "RUNNING");
    world.wait_seconds(1);
    assert_eq!(world.status(&run), "TIMED_OUT");
}

#[test]
fn a_terminate_task_is_not_repeated_by_a_retry() {
    let end = json!({"name": "e", "taskReferenceName": "e", "type": "TERMINATE", "inputParameters": {"terminationStatus": "FAILED"}});
    let [fork, join] = fork(json!([[once("a"), once("b")], [end]]), json!(["b", "e"]));
    let (mut world, run) = started(json!([fork, join]));
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("FAILED", "f C, a X, e C, j X")
    );
    world.retry(&run).unwrap();
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("RUNNING", "f C, a Xr, e C, j P, a S")
    );
    let (mut world, run) = started(json!([
        {"name": "e", "taskReferenceName": "e", "type": "TERMINATE", "inputParameters": {"terminationStatus": "FAILED"}}]));
    assert_eq!(world.retry(&run), Err(Rejection::NothingToRetry));
    world.rerun_at(&run, "e");
    assert_eq!(world.status(&run), "FAILED", "a rerun repeats it");
}

#[test]
fn a_rerun_goes_on_from_a_task() {
    let (mut world, run) = started(json!([once("a"), once("b"), once("c")]));
    for name in ["a", "b", "c"] {
        world.complete(&run, name, json!({"n": name}));
    }
    let id = world.task(&run, "b").id.clone();
    let command = RerunExecution {
        from: Some((id.clone(), 2)),
        task_input: Some(members(json!({"new": true}))),
        workflow_input: Some(members(json!({"x": 2}))),
        correlation_id: Some("again".to_owned()),
    };
    world.rerun(&run, &command).unwrap();
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("RUNNING", "a C, b S")
    );
    let (view, task) = (world.view(&run), world.record(&run, "b"));
    assert_eq!(
        (&view["input"], &view["correlationId"]),
        (&json!({"x": 2}), &json!("again"))
    );
    assert_eq!(
        (&task["taskId"], &task["inputData"]),
        (&json!(id), &json!({"new": true}))
    );
    assert_eq!(
        (&task["outputData"], &task["pollCount"], &task["retryCount"]),
        (&json!({}), &json!(0), &json!(0))
    );
    world.complete(&run, "b", json!({}));
    world.complete(&run, "c", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_rerun_without_a_task_begins_with_the_new_input() {
    let (mut world, run) = started(json!([once("a")]));
    world.complete(&run, "a", json!({}));
    let command = RerunExecution {
        workflow_input: Some(members(json!({"x": 7}))),
        ..RerunExecution::default()
    };
    world.rerun(&run, &command).unwrap();
    assert_eq!(world.trace(&run), "a S");
    assert_eq!(world.view(&run)["input"], json!({"x": 7}));
    assert_eq!(world.rerun(&run, &command), Err(Rejection::RunNotEnded));
}

#[test]
fn a_rerun_of_an_attempt_keeps_the_attempts_before_it() {
    let (mut world, run) = started(json!([
        with(simple("a"), json!({"retryCount": 1})),
        once("b")
    ]));
    world.fail(&run, "a", "one");
    world.wait_seconds(60);
    world.complete(&run, "a", json!({}));
    world.fail(&run, "b", "no");
    world.rerun_at(&run, "a");
    assert_eq!(world.trace(&run), "a Fr, a S");
    assert_eq!(world.record(&run, "a")["retryCount"], 1);
    world.terminate(&run, "enough").unwrap();
    world.rerun_from(&run, 1).unwrap();
    assert_eq!(world.trace(&run), "a S");
}

#[test]
fn a_rerun_inside_a_branch_opens_the_join() {
    let [fork, join] = fork(
        json!([[once("a"), once("b")], [once("c"), once("d")]]),
        json!(["b", "d"]),
    );
    let (mut world, run) = started(json!([fork, join, once("z")]));
    for name in ["c", "a", "b", "d", "z"] {
        world.complete(&run, name, json!({}));
    }
    assert_eq!(world.trace(&run), "f C, a C, c C, j C, d C, b C, z C");
    // Later tasks go, those of the other branch too; what is missing there is scheduled again.
    world.rerun_at(&run, "a");
    assert_eq!(world.trace(&run), "f C, j P, a S, c S");
    for name in ["c", "a", "b", "d"] {
        world.complete(&run, name, json!({}));
    }
    assert_eq!(world.trace(&run), "f C, j C, a C, c C, d C, b C, z S");
}

#[test]
fn a_rerun_of_a_fork_or_a_switch_decides_again() {
    let [fork, join] = fork(json!([[once("a")], [once("b")]]), json!(["a", "b"]));
    let (mut world, run) = started(json!([fork, join]));
    world.complete(&run, "a", json!({}));
    world.complete(&run, "b", json!({}));
    world.rerun_at(&run, "f");
    assert_eq!(world.trace(&run), "f C, a S, b S, j P");
    let (mut world, run) = started(json!([
        {"name": "s", "taskReferenceName": "s", "type": "SWITCH", "evaluatorType": "value-param", "expression": "k",
            "inputParameters": {"k": "${workflow.input.x}"}, "decisionCases": {"1": [once("a")]}, "defaultCase": [once("b")]},
        once("z")]));
    world.complete(&run, "a", json!({}));
    world.complete(&run, "z", json!({}));
    let command = RerunExecution {
        from: Some((world.task(&run, "s").id.clone(), 1)),
        workflow_input: Some(members(json!({"x": 2}))),
        ..RerunExecution::default()
    };
    world.rerun(&run, &command).unwrap();
    assert_eq!(world.trace(&run), "s C, b S");
}

#[test]
fn a_rerun_inside_a_loop_goes_on_at_its_iteration() {
    let looping = json!({"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": [1, 2, 3], "loopOver": [once("t")]});
    let (mut world, run) = started(json!([looping, once("z")]));
    for name in ["t__1", "t__2", "t__3", "z"] {
        world.complete(&run, name, json!({}));
    }
    world.rerun_at(&run, "t__2");
    assert_eq!(world.trace(&run), "l P, t__1 C, t__2 S");
    for name in ["t__2", "t__3", "z"] {
        world.complete(&run, name, json!({}));
    }
    assert_eq!(world.status(&run), "COMPLETED");
    world.rerun_at(&run, "l");
    assert_eq!(world.trace(&run), "l P, t__1 S");
}

#[test]
fn a_rerun_inside_a_dynamic_fork_keeps_the_other_branches() {
    let fork = json!({"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN_DYNAMIC",
        "inputParameters": {"forkTaskName": "t", "forkTaskInputs": [{"n": 0}, {"n": 1}, {"n": 2}]}});
    let join = json!({"name": "j", "taskReferenceName": "j", "type": "JOIN"});
    let mut world = World::with_tasks(json!([fork, join, once("z")]));
    world.task_def(json!({"name": "t", "retryCount": 0}));
    let run = world.start("w", json!({}));
    let names: Vec<String> = world
        .tasks(&run)
        .map(|task| task.reference.clone())
        .collect();
    for name in &names[1..4] {
        world.complete(&run, name, json!({"r": name}));
    }
    world.complete(&run, "z", json!({}));
    world.rerun_at(&run, &names[2]);
    assert_eq!(
        world.trace(&run),
        format!("f C, {} C, j P, {} S, {} S", names[1], names[2], names[3])
    );
    assert_eq!(world.record(&run, &names[2])["inputData"]["n"], 1);
    for name in &names[2..4] {
        world.complete(&run, name, json!({"r": name}));
    }
    assert_eq!(
        world.record(&run, "j")["outputData"]
            .as_object()
            .unwrap()
            .len(),
        3
    );
    assert!(world.trace(&run).ends_with("z S"));
}

#[test]
fn a_retried_child_opens_its_parents() {
    let (mut world, run, child) = family();
    world.fail(&child, "c", "no");
    assert_eq!((world.status(&run), &*world.trace(&run)), ("FAILED", "s F"));
    world.retry(&child).unwrap();
    assert_eq!(
        (world.status(&child), world.status(&run)),
        ("RUNNING", "RUNNING")
    );
    assert_eq!(world.trace(&run), "s P");
    world.complete(&child, "c", json!({}));
    world.complete(&child, "d", json!({"done": true}));
    assert_eq!(world.trace(&run), "s C, z S");
    assert_eq!(world.record(&run, "s")["outputData"]["done"], true);
    world.complete(&run, "z", json!({}));
    // A child that completed may be opened too. What followed it stays.
    world.restart(&child).unwrap();
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("RUNNING", "s P, z C")
    );
    world.complete(&child, "c", json!({}));
    world.complete(&child, "d", json!({"done": 2}));
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("COMPLETED", "s C, z C")
    );
}

#[test]
fn a_parent_that_took_another_child_leaves_the_first_alone() {
    let (mut world, run, child) = family();
    world.fail(&child, "c", "no");
    world.retry(&run).unwrap();
    assert_eq!(world.trace(&run), "s Fr, s P");
    world.retry(&child).unwrap();
    world.complete(&child, "c", json!({}));
    world.complete(&child, "d", json!({}));
    assert_eq!(
        (world.status(&child), &*world.trace(&run)),
        ("COMPLETED", "s Fr, s P")
    );
    let second = world.runs_of("child")[1].clone();
    assert_ne!(second, child);
    world.complete(&second, "c", json!({}));
    world.complete(&second, "d", json!({}));
    assert_eq!(world.trace(&run), "s Fr, s C, z S");
}

#[test]
fn siblings_of_an_opened_child_are_repaired() {
    let sub = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "retryCount": 0, "subWorkflowParam": {"name": "child", "version": 1}});
    let [fork, join] = fork(json!([[once("a")], [sub]]), json!(["a", "s"]));
    let mut world = World::with_tasks(json!([fork, join]));
    world.define(json!({"name": "child", "version": 1, "tasks": [once("c")]}));
    let run = world.start("w", json!({}));
    let child = world.runs_of("child")[0].clone();
    world.terminate(&run, "enough").unwrap();
    assert_eq!(
        (world.status(&child), &*world.trace(&run)),
        ("TERMINATED", "f C, a X, s X, j X")
    );
    world.retry(&child).unwrap();
    assert_eq!(
        (world.status(&run), &*world.trace(&run)),
        ("RUNNING", "f C, a Xr, s P, j P, a S")
    );
    world.complete(&run, "a", json!({}));
    world.complete(&child, "c", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn messages_of_an_earlier_life_change_nothing() {
    let (mut world, run, child) = family();
    world.fail(&child, "c", "no");
    world.retry(&child).unwrap();
    world.terminate(&run, "enough").unwrap();
    assert_eq!(world.status(&child), "TERMINATED");
    world.retry(&child).unwrap();
    assert_eq!(
        (world.status(&child), world.status(&run)),
        ("RUNNING", "RUNNING")
    );
    // The end of the first life, its reopening, and the stop of the second life come once more.
    for letter in 0..world.letters.len() {
        world.repeat_letter(letter);
    }
    assert_eq!(
        (world.status(&child), world.status(&run)),
        ("RUNNING", "RUNNING")
    );
}

#[test]
fn a_skipped_task_is_passed_over() {
    let (mut world, run) = started(json!([once("a"), once("b"), once("c")]));
    assert!(matches!(
        world.skip(&run, "x", json!({}), json!({})),
        Err(Rejection::ReferenceUnknown { .. })
    ));
    assert!(matches!(
        world.skip(&run, "a", json!({}), json!({})),
        Err(Rejection::NotSkippable { .. })
    ));
    world
        .skip(&run, "b", json!({"i": 1}), json!({"o": 2}))
        .unwrap();
    assert_eq!(world.trace(&run), "a S, b K");
    let record = world.record(&run, "b");
    assert_eq!(
        (&record["inputData"], &record["outputData"]),
        (&json!({"i": 1}), &json!({"o": 2}))
    );
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "a C, b K, c S");
    world.fail(&run, "c", "no");
    assert!(matches!(
        world.skip(&run, "c", json!({}), json!({})),
        Err(Rejection::RunNotActive { .. })
    ));
    world.rerun_at(&run, "b");
    assert_eq!(world.trace(&run), "a C, b S", "a rerun makes it run");
}

#[test]
fn a_skipped_task_in_a_branch_waits_for_its_turn() {
    let [fork, join] = fork(
        json!([[once("a"), once("b")], [once("c")]]),
        json!(["b", "c"]),
    );
    let (mut world, run) = started(json!([fork, join]));
    for name in ["f", "j"] {
        assert!(matches!(
            world.skip(&run, name, json!({}), json!({})),
            Err(Rejection::NotSkippable { .. })
        ));
    }
    world.skip(&run, "b", json!({}), json!({})).unwrap();
    world.complete(&run, "c", json!({}));
    assert_eq!(
        world.trace(&run),
        "f C, a S, c C, j P, b K",
        "the join waits for a"
    );
    world.terminate(&run, "enough").unwrap();
    world.retry(&run).unwrap();
    assert_eq!(world.trace(&run), "f C, a Xr, c C, j P, b K, a S");
    world.complete(&run, "a", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn nodes_of_a_loop_and_of_a_paused_run_are_not_skipped() {
    let looping = json!({"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": [1], "loopOver": [once("t"), once("u")]});
    let (mut world, run) = started(json!([looping]));
    assert!(matches!(
        world.skip(&run, "u", json!({}), json!({})),
        Err(Rejection::ReferenceUnknown { .. })
    ));
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    assert!(matches!(
        world.skip(&run, "u", json!({}), json!({})),
        Err(Rejection::RunNotActive { .. })
    ));
}

#[test]
fn hidden_tasks_are_shown_at_once() {
    let (mut world, run) = started(json!([once("a")]));
    let later = Report::Status {
        status: ResultStatus::InProgress,
        output: Output::Replace(members(json!({"half": 1}))),
        reason: None,
        worker_id: Some("w1".to_owned()),
        callback_after_seconds: 600,
        logs: Vec::new(),
    };
    let target = longhaul_engine::conductor::execution::command::update::TaskTarget::Reference(
        "a".to_owned(),
    );
    world.update(&run, target, later).unwrap();
    assert!(world.poll("a", "w2").is_none());
    world.reset_callbacks(&run).unwrap();
    let record = world.record(&run, "a");
    assert_eq!(
        (&record["callbackAfterSeconds"], &record["outputData"]),
        (&json!(0), &json!({"half": 1}))
    );
    assert!(world.poll("a", "w2").is_some());
    world.complete(&run, "a", json!({}));
    assert!(matches!(
        world.reset_callbacks(&run),
        Err(Rejection::RunNotActive { .. })
    ));
}

#[test]
fn state_changes_together() {
    let (mut world, run) = started(json!([
        once("a"),
        with(
            once("b"),
            json!({"inputParameters": {"v": "${workflow.variables.k}"}})
        )
    ]));
    let done = || report(ResultStatus::Completed, json!({"o": 1}), None);
    let version = world.runs[&run].version;
    let refused = world.update_state(&run, json!({"k": 5}), Some(("b", done())));
    assert_eq!(refused, Err(Rejection::TaskNotFound));
    assert_eq!(world.runs[&run].version, version, "neither happened");
    world
        .update_state(&run, json!({"k": 5}), Some(("a", done())))
        .unwrap();
    assert_eq!(world.trace(&run), "a C, b S");
    assert_eq!(world.record(&run, "b")["inputData"], json!({"v": 5}));
    let large = "x".repeat(300_000);
    let refused = world.update_state(&run, json!({"large": large}), None);
    assert!(matches!(refused, Err(Rejection::ValueTooLarge { .. })));
    world.complete(&run, "b", json!({}));
    assert!(matches!(
        world.update_state(&run, json!({}), None),
        Err(Rejection::RunNotActive { .. })
    ));
}
