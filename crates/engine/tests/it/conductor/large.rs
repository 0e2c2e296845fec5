//! Large values, wide forks and long loops: correct, bounded, and at a cost in proportion to their size.

use longhaul_engine::command::UpdateExecutionTask;
use longhaul_engine::conductor::execution::command::update::TaskTarget;
use longhaul_protocol::conductor::ResultStatus;
use longhaul_protocol::id::RunId;
use serde_json::{Value, json};

use super::world::{World, report, simple, with};

/// A value that is kept in an event.
fn big(letter: &str) -> Value {
    json!({"x": letter.repeat(5000)})
}

#[test]
fn large_values_are_looked_up_in_events() {
    let reads = json!({"inputParameters": {"a": "${a.output.x}", "v": "${workflow.variables.v}", "i": "${workflow.input.x}"}});
    let mut world = World::with_tasks(json!([
        simple("a"),
        {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"v": "${a.output.x}"}},
        with(simple("b"), reads),
    ]));
    let run = world.start("w", big("i"));
    world.complete(&run, "a", big("a"));
    let input = world.record(&run, "b")["inputData"].clone();
    assert_eq!(
        input,
        json!({"a": "a".repeat(5000), "v": "a".repeat(5000), "i": "i".repeat(5000)})
    );
    world.fail(&run, "b", "once");
    assert_eq!(world.record(&run, "b")["inputData"], input);
}

#[test]
fn values_of_one_pass_are_read_in_the_same_pass() {
    // Each of these is larger than what a record keeps, and is read before anything is stored.
    let mut world = World::with_tasks(json!([
        {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"v": "${workflow.input.x}"}},
        {"name": "i", "taskReferenceName": "i", "type": "INLINE", "inputParameters": {"expression": "big", "v": "${workflow.variables.v}"}},
        {"name": "sw", "taskReferenceName": "sw", "type": "SWITCH", "evaluatorType": "value-param", "expression": "k",
         "inputParameters": {"k": "${i.output.result}"}, "decisionCases": {"none": []}, "defaultCase": []},
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [
            [{"name": "j", "taskReferenceName": "j", "type": "INLINE", "inputParameters": {"expression": "big", "s": "${sw.input.k}"}}], []]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["j"]},
        {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": "all($.loop)", "loopOver": [
            {"name": "k", "taskReferenceName": "k", "type": "INLINE",
             "inputParameters": {"expression": "big", "l": "${loop.output}", "j": "${join.output.j.result}"}}]},
        {"name": "t", "taskReferenceName": "t", "type": "TERMINATE",
         "inputParameters": {"terminationStatus": "COMPLETED", "workflowOutput": {"k": "${loop.output.2.k.result}"}}},
    ]));
    world.script("big", |_| json!("r".repeat(5000)));
    world.script("all($.loop)", |input| {
        let iteration = input["loop"]["iteration"].as_u64().unwrap();
        assert_eq!(
            input["loop"][iteration.to_string()]["k"]["result"]
                .as_str()
                .unwrap()
                .len(),
            5000
        );
        json!(iteration < 2)
    });
    let run = world.start("w", big("i"));
    assert_eq!(
        world.status(&run),
        "COMPLETED",
        "{} {}",
        world.trace(&run),
        world.reason(&run)
    );
    assert_eq!(world.output(&run), json!({"k": "r".repeat(5000)}));
    assert_eq!(
        world.events[&run].len(),
        world.folds[&run].tasks.len() * 2 + 5
    );
}

#[test]
fn a_report_that_fails_by_time_still_has_its_large_values() {
    let mut world = World::with_tasks(json!([
        {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "items": "${workflow.input.items}", "loopOver": [simple("t")]},
    ]));
    let run = world.start("w", json!({"items": [big("a"), big("b")]}));
    world.complete(&run, "t", big("1"));
    world.complete(&run, "t", big("2"));
    let output = world.record(&run, "l")["outputData"].clone();
    assert_eq!(
        (output["loopItem"].clone(), output["1"]["t"].clone()),
        (big("b"), big("1"))
    );
    assert_eq!(world.status(&run), "COMPLETED");
}

/// Starts a dynamic fork of this many branches, completes every branch, and returns the bytes that the engine allocated.
fn cost_of_a_fork(branches: usize) -> u64 {
    let mut world = World::with_tasks(json!([
        {"name": "fan", "taskReferenceName": "fan", "type": "FORK_JOIN_DYNAMIC", "inputParameters": {"forkTaskName": "t", "forkTaskInputs": "${workflow.input.list}"}},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN"},
    ]));
    world.check_every = 3000;
    let list: Vec<usize> = (0..branches).collect();
    let run = world.start("w", json!({"list": list}));
    let seqs: Vec<u64> = world
        .tasks(&run)
        .filter(|task| task.task_type == "t")
        .map(|task| task.seq)
        .collect();
    assert_eq!(seqs.len(), branches);
    for seq in seqs {
        world.claim(&run, seq, "w1");
        complete(&mut world, &run, seq);
    }
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.output(&run).as_object().unwrap().len(), branches);
    super::invariants::check(&world, &run);
    world.engine_bytes
}

/// Reports the task with this number as completed.
fn complete(world: &mut World, run: &RunId, seq: u64) {
    let task_id = world.runs[run].task(seq).unwrap().id.clone();
    let command = UpdateExecutionTask {
        target: TaskTarget::Id { task_id, seq },
        report: report(ResultStatus::Completed, json!({"n": seq}), None),
        takes_next: false,
    };
    world.act(run, &command).unwrap();
}

#[test]
fn a_branch_costs_the_same_in_a_fork_of_400_and_of_4000() {
    let (small, large) = (cost_of_a_fork(400), cost_of_a_fork(4000));
    eprintln!("400 branches: {small} bytes, 4,000 branches: {large} bytes");
    assert!(large < small * 13, "{small} bytes, then {large}");
}

#[test]
fn a_fork_of_scripts_and_children_goes_on_in_bounded_passes() {
    let node = |index: usize| {
        if index.is_multiple_of(2) {
            json!({"name": "i", "taskReferenceName": format!("i{index}"), "type": "INLINE", "inputParameters": {"expression": "$.n", "n": index}})
        } else {
            json!({"name": "s", "taskReferenceName": format!("s{index}"), "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child", "version": 1}})
        }
    };
    let nodes: Vec<Value> = (0..600).map(node).collect();
    let mut world = World::with_tasks(json!([
        {"name": "fan", "taskReferenceName": "fan", "type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "nodes", "dynamicForkTasksInputParamName": "inputs",
         "inputParameters": {"nodes": "${workflow.input.nodes}"}},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN"},
    ]));
    world.check_every = 200;
    world.define(json!({"name": "child", "version": 1, "tasks": []}));
    world.script("$.n", |input| input["n"].clone());
    let run = world.start("w", json!({"nodes": nodes}));
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.runs_of("child").len(), 300);
    assert_eq!(world.output(&run)["i598"], json!({"result": 598}));
}

#[test]
fn a_fork_and_its_join_look_everything_up_at_once() {
    let nodes: Vec<Value> = (0..300)
        .map(|index| json!({"name": format!("t{index}"), "taskReferenceName": format!("r{index}"), "type": "SIMPLE"}))
        .collect();
    let mut world = World::with_tasks(json!([
        {"name": "fan", "taskReferenceName": "fan", "type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "nodes", "dynamicForkTasksInputParamName": "inputs",
         "inputParameters": {"nodes": "${workflow.input.nodes}"}},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN"},
    ]));
    world.check_every = 100;
    let run = world.start("w", json!({"nodes": nodes}));
    assert!(world.repeats <= 5, "{} repeats", world.repeats);
    for index in 0..300 {
        world.complete(&run, &format!("r{index}"), big("x"));
    }
    assert!(world.repeats <= 310, "{} repeats", world.repeats);
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_loop_of_2000_rounds_goes_on_in_bounded_passes() {
    let condition = "$.loop['iteration'] < 2000";
    let mut world = World::with_tasks(json!([
        {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": condition, "loopOver": [
            {"name": "n", "taskReferenceName": "n", "type": "NOOP"},
            {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"i": "${loop.output.iteration}"}}]},
    ]));
    world.check_every = 50;
    world.script(condition, |input| {
        json!(input["loop"]["iteration"].as_i64().unwrap() < 2000)
    });
    let run = world.start("w", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(world.view(&run)["variables"], json!({"i": 2000}));
    assert!(world.decisions > 50, "a pass is bounded");
}

#[test]
fn a_loop_without_end_reaches_the_limit_of_tasks() {
    let mut world = World::with_tasks(json!([
        {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "items": "${workflow.input.list}", "inputParameters": {"keepLastN": 2}, "loopOver": [
            {"name": "n", "taskReferenceName": "n", "type": "NOOP"}, {"name": "m", "taskReferenceName": "m", "type": "NOOP"}]},
    ]));
    world.check_every = 100_000;
    let list = vec![0; 30_000];
    let run = world.start("w", json!({"list": list}));
    assert_eq!(world.status(&run), "FAILED");
    assert!(
        world.reason(&run).contains("limit: tasks per workflow"),
        "{}",
        world.reason(&run)
    );
    super::invariants::check(&world, &run);
}

#[test]
fn a_task_costs_the_same_at_10_and_at_10000() {
    let condition = "$.loop['iteration'] < 100000";
    let mut world = World::with_tasks(json!([
        {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": condition, "loopOver": [simple("t")]},
    ]));
    world.check_every = 1_000_000;
    world.script(condition, |_| json!(true));
    let run = world.start("w", json!({}));
    let mut costs = Vec::new();
    for round in 1..=10_100_u64 {
        let seq = round + 1;
        let before = world.engine_bytes;
        world.claim(&run, seq, "w1");
        complete(&mut world, &run, seq);
        costs.push(world.engine_bytes - before);
    }
    super::invariants::check(&world, &run);
    let early: u64 = costs[10..110].iter().sum();
    let late: u64 = costs[10_000..10_100].iter().sum();
    eprintln!("100 tasks: {early} bytes from task 10 on, {late} bytes from task 10,000 on");
    assert!(late < early * 6 / 5, "{early} bytes, then {late}");
}

#[test]
fn a_run_that_ends_at_the_bound_of_a_pass_completes() {
    for count in [499, 500, 501, 1000] {
        let nodes: Vec<Value> = (0..count)
            .map(|index| json!({"name": "n", "taskReferenceName": format!("n{index}"), "type": "NOOP"}))
            .collect();
        let mut world = World::with_tasks(json!(nodes));
        let run = world.start("w", json!({}));
        assert_eq!(world.status(&run), "COMPLETED", "{count}");
    }
    for count in [19, 20, 21, 40] {
        let nodes: Vec<Value> = (0..count)
            .map(|index| json!({"name": "i", "taskReferenceName": format!("i{index}"), "type": "INLINE", "inputParameters": {"expression": "1"}}))
            .collect();
        let mut world = World::with_tasks(json!(nodes));
        world.script("1", |_| json!(1));
        let run = world.start("w", json!({}));
        assert_eq!(world.status(&run), "COMPLETED", "{count}");
    }
}
