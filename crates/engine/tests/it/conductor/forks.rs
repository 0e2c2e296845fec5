//! Forks beyond the traces: dynamic ones in their three styles, joins that wait for nothing or for a task that never comes, and their errors.

use serde_json::{Value, json};

use super::world::{World, simple, with};

fn dynamic(fork: Value) -> World {
    let fork = with(
        json!({"name": "fan", "taskReferenceName": "fan", "type": "FORK_JOIN_DYNAMIC"}),
        fork,
    );
    World::with_tasks(json!([
        fork,
        {"name": "join", "taskReferenceName": "join", "type": "JOIN"},
        simple("z"),
    ]))
}

fn by_nodes() -> World {
    dynamic(json!({
        "dynamicForkTasksParam": "dynamicTasks", "dynamicForkTasksInputParamName": "dynamicTasksInputs",
        "inputParameters": {"dynamicTasks": "${workflow.input.tasks}", "dynamicTasksInputs": "${workflow.input.inputs}"},
    }))
}

fn node(name: &str, reference: &str) -> Value {
    json!({"name": name, "taskReferenceName": reference, "type": "SIMPLE"})
}

#[test]
fn nodes_and_inputs_become_branches() {
    let mut world = by_nodes();
    let run = world.start(
        "w",
        json!({"tasks": [node("resize", "r0"), node("resize", "r1")], "inputs": {"r0": {"w": 100}, "r1": {"w": 200}}}),
    );
    assert_eq!(world.trace(&run), "fan C, r0 S, r1 S, join P");
    assert_eq!(
        world.record(&run, "fan")["inputData"]["forkedTasks"],
        json!(["r0", "r1"])
    );
    assert_eq!(world.record(&run, "r1")["inputData"], json!({"w": 200}));
    assert_eq!(
        world.record(&run, "r1")["workflowTask"]["taskReferenceName"],
        "r1"
    );
    assert_eq!(
        world.record(&run, "join")["inputData"],
        json!({"joinOn": ["r0", "r1"]})
    );
    world.complete(&run, "r1", json!({"n": 1}));
    world.fail(&run, "r0", "once");
    assert_eq!(world.trace(&run), "fan C, r0 Fr, r1 C, join P, r0 S");
    assert_eq!(world.record(&run, "r0")["inputData"], json!({"w": 100}));
    world.complete(&run, "r0", json!({"n": 0}));
    assert_eq!(world.trace(&run), "fan C, r0 Fr, r1 C, join C, r0 C, z S");
    assert_eq!(
        world.record(&run, "join")["outputData"],
        json!({"r0": {"n": 0}, "r1": {"n": 1}})
    );
}

#[test]
fn an_empty_list_joins_at_once() {
    for inputs in [json!({}), json!(null), json!("")] {
        let mut world = by_nodes();
        let run = world.start("w", json!({"tasks": [], "inputs": inputs}));
        assert_eq!(world.trace(&run), "fan C, join C, z S");
    }
}

#[test]
fn branches_of_every_operator_are_joined() {
    let mut world = by_nodes();
    world.script("ok", |_| json!(true));
    world.script("again", |input| {
        json!(input["l"]["iteration"].as_i64().unwrap() < 2)
    });
    world.define(json!({"name": "child", "version": 1, "tasks": [simple("c")]}));
    let tasks = json!([
        {"name": "n", "taskReferenceName": "n", "type": "NOOP"},
        {"name": "i", "taskReferenceName": "i", "type": "INLINE", "inputParameters": {"expression": "ok"}},
        {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopCondition": "again", "loopOver": [node("t", "t")]},
        {"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}},
        {"name": "sw", "taskReferenceName": "sw", "type": "SWITCH", "evaluatorType": "value-param", "expression": "x",
         "decisionCases": {"null": [node("u", "u")]}},
        {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"k": 1}},
    ]);
    let run = world.start("w", json!({"tasks": tasks, "inputs": {}}));
    let child = world.runs_of("child")[0].clone();
    world.complete(&child, "c", json!({"answer": 42}));
    world.complete(&run, "t", json!({}));
    world.complete(&run, "u", json!({"u": 1}));
    assert_eq!(world.task(&run, "join").status.as_str(), "IN_PROGRESS");
    world.complete(&run, "t", json!({}));
    assert_eq!(world.task(&run, "join").status.as_str(), "COMPLETED");
    let output = world.record(&run, "join")["outputData"].clone();
    assert_eq!(output["s"]["answer"], 42);
    assert_eq!(output["l"]["iteration"], 2);
    assert_eq!(output["i"], json!({"result": true}));
    assert_eq!(output["u"], json!({"u": 1}));
    world.complete(&run, "z", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_list_of_inputs_becomes_branches_of_one_task() {
    let mut world = dynamic(
        json!({"inputParameters": {"forkTaskName": "resize", "forkTaskInputs": "${workflow.input.list}"}}),
    );
    let run = world.start("w", json!({"list": [{"w": 1}, 7]}));
    assert_eq!(world.trace(&run), "fan C, _resize_0 S, _resize_1 S, join P");
    assert_eq!(
        world.record(&run, "_resize_0")["inputData"],
        json!({"w": 1, "__index": 0})
    );
    assert_eq!(
        world.record(&run, "_resize_1")["inputData"],
        json!({"input": 7, "__index": 1})
    );
    let mut world = dynamic(
        json!({"inputParameters": {"forkTaskWorkflow": "child", "forkTaskWorkflowVersion": "1", "forkTaskInputs": [{"a": 1}]}}),
    );
    world.define(json!({"name": "child", "version": 1, "tasks": [simple("c")]}));
    world.define(json!({"name": "child", "version": 2, "tasks": [simple("d")]}));
    let run = world.start("w", json!({}));
    let child = world.runs_of("child")[0].clone();
    assert_eq!(world.view(&child)["input"], json!({"a": 1, "__index": 0}));
    world.complete(&child, "c", json!({"r": 1}));
    assert_eq!(world.trace(&run), "fan C, _child_0 C, join C, z S");
}

#[test]
fn a_second_fork_names_its_branches_after_itself() {
    let mut world = World::with_tasks(json!([
        {"name": "f1", "taskReferenceName": "f1", "type": "FORK_JOIN_DYNAMIC", "inputParameters": {"forkTaskName": "t", "forkTaskInputs": [1]}},
        {"name": "j1", "taskReferenceName": "j1", "type": "JOIN"},
        {"name": "f2", "taskReferenceName": "f2", "type": "FORK_JOIN_DYNAMIC", "inputParameters": {"forkTaskName": "t", "forkTaskInputs": [1]}},
        {"name": "j2", "taskReferenceName": "j2", "type": "JOIN"},
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "_t_0", json!({}));
    assert_eq!(
        world.trace(&run),
        "f1 C, _t_0 C, j1 C, f2 C, _f2_t_0 S, j2 P"
    );
    world.complete(&run, "_f2_t_0", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn the_older_style_works() {
    let mut world = dynamic(
        json!({"dynamicForkJoinTasksParam": "plan", "inputParameters": {"plan": "${workflow.input.plan}"}}),
    );
    let plan = json!({"dynamicTasks": [{"taskName": "a", "referenceName": "a1", "input": {"x": 1}}, {"taskName": "b", "referenceName": "b1"}]});
    let run = world.start("w", json!({"plan": plan}));
    assert_eq!(world.trace(&run), "fan C, a1 S, b1 S, join P");
    assert_eq!(world.record(&run, "a1")["inputData"], json!({"x": 1}));
    let run = world.start("w", json!({"plan": 7}));
    assert_eq!(world.status(&run), "FAILED");
}

#[test]
fn a_wrong_list_fails_the_run_with_a_reason() {
    for (input, reason) in [
        (
            json!({"tasks": 7, "inputs": {}}),
            "Input 'dynamicTasks' is invalid. Cannot deserialize a list of Workflow Tasks from '7'",
        ),
        (
            json!({"inputs": {}}),
            "Input 'dynamicTasks' is invalid. Cannot deserialize a list of Workflow Tasks from 'null'",
        ),
        (
            json!({"tasks": [], "inputs": [1]}),
            "Input to the dynamically forked tasks is not a map -> expecting a map of K,V  but found [1]",
        ),
        (
            json!({"tasks": [node("a", "")]}),
            "A dynamically forked task has no taskReferenceName",
        ),
        (
            json!({"tasks": [node("a", "r"), node("a", "r")]}),
            "attempted to create a duplicate task reference name: r",
        ),
        (
            json!({"tasks": [node("a", "z")]}),
            "attempted to create a duplicate task reference name: z",
        ),
        (
            json!({"tasks": [{"name": "s", "taskReferenceName": "s", "type": "SWITCH", "decisionCases": {"x": [node("q", "s")]}}]}),
            "duplicate task reference name: s",
        ),
        (
            json!({"tasks": vec![node("a", "r"); 10_001]}),
            "The dynamic fork has 10001 branches, more than 10000 (limit: branches of a fork)",
        ),
    ] {
        let mut world = by_nodes();
        let run = world.start("w", input);
        assert_eq!(
            (world.trace(&run), world.status(&run)),
            (String::new(), "FAILED")
        );
        assert!(
            world.reason(&run).contains(reason),
            "{} and {reason}",
            world.reason(&run)
        );
    }
}

#[test]
fn a_forked_loop_without_a_body_fails() {
    let mut world = by_nodes();
    let run = world.start("w", json!({"tasks": [{"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopCondition": "x"}]}));
    assert_eq!(world.status(&run), "FAILED");
    assert!(
        world.reason(&run).contains("loopOver"),
        "{}",
        world.reason(&run)
    );
}

#[test]
fn a_fork_without_a_join_fails_the_run() {
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a")]]}, simple("z"),
    ]));
    let run = world.start("w", json!({}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        (String::new(), "FAILED")
    );
    assert!(
        world
            .reason(&run)
            .starts_with("Fork task definition is not followed by a join task.")
    );
}

#[test]
fn a_join_on_a_task_that_never_comes_waits_for_an_update() {
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a")], []]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a", "typo"]},
        simple("z"),
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "fork C, a C, join P");
    world.complete(&run, "join", json!({}));
    assert_eq!(world.trace(&run), "fork C, a C, join C, z S");
}

#[test]
fn a_join_need_not_name_every_branch() {
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a")], [simple("b")]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": []},
        simple("z"),
    ]));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "fork C, a S, b S, join C, z S");
    world.complete(&run, "z", json!({}));
    world.complete(&run, "a", json!({}));
    assert_eq!(world.status(&run), "RUNNING");
    world.complete(&run, "b", json!({}));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_terminate_in_a_branch_ends_everything() {
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [
            [simple("a"), {"name": "t", "taskReferenceName": "t", "type": "TERMINATE", "inputParameters": {"terminationStatus": "FAILED", "workflowOutput": 7}}],
            [simple("b")]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["t", "b"]},
        simple("z"),
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "fork C, a C, b X, join X, t C");
    assert_eq!(
        (world.status(&run), world.output(&run)),
        ("FAILED", json!({"output": 7}))
    );
    let id = world.task(&run, "t").id.clone();
    assert_eq!(
        world.reason(&run),
        format!("Workflow is FAILED by TERMINATE task: {id}")
    );
}

#[test]
fn a_join_over_the_limit_of_outputs_fails() {
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a")], [simple("b")]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a", "b"]},
    ]));
    world.check_every = 1000;
    let run = world.start("w", json!({}));
    let big = json!({"x": "x".repeat(6 * 1024 * 1024)});
    world.complete(&run, "a", big.clone());
    world.complete(&run, "b", big);
    assert_eq!(world.trace(&run), "fork C, a C, b C, join Z");
    assert!(world.reason(&run).contains("limit: task output"));
}

#[test]
fn reasons_of_many_tasks_are_cut() {
    let branches: Vec<Value> = (0..20)
        .map(|index| {
            json!([with(
                simple(&format!("b{index}")),
                json!({"retryCount": 0, "permissive": true})
            )])
        })
        .collect();
    let names: Vec<String> = (0..20).map(|index| format!("b{index}")).collect();
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": branches},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": names},
    ]));
    let run = world.start("w", json!({}));
    for name in &names {
        world.fail(&run, name, &"ä".repeat(20_000));
    }
    assert_eq!(world.status(&run), "FAILED");
    for reference in ["b0", "join"] {
        let reason = world.task(&run, reference).reason.clone().unwrap();
        assert_eq!(reason.chars().count(), 10_001, "{reference}");
    }
    assert!(world.reason(&run).chars().count() < 700);
}

#[test]
fn a_task_reads_what_an_open_join_has_collected() {
    let reads = json!({"inputParameters": {"n": "${join.output.a.n}"}});
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN",
         "forkTasks": [[simple("a")], [simple("b"), with(simple("c"), reads)]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a", "c"]},
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"n": 3}));
    world.complete(&run, "b", json!({}));
    assert_eq!(world.record(&run, "c")["inputData"], json!({"n": 3}));
    // A JOIN that is cancelled keeps it.
    world.terminate(&run, "enough").unwrap();
    let join = world.record(&run, "join");
    assert_eq!(join["status"], "CANCELED");
    assert_eq!(join["outputData"], json!({"a": {"n": 3}}));
}
