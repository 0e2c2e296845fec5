//! Random definitions, nested to depth 4 over all operators, with random reports, failures, duplicates, time-outs, pauses and polls
//! by several workers, and random operations: retries, restarts, reruns, skipped tasks, late messages. The invariants are checked after every decision, and every run ends when all its tasks are answered.

use longhaul_engine::Rejection;
use longhaul_engine::command::{
    PauseExecution, RerunExecution, ResumeExecution, UpdateExecutionTask,
};
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_engine::conductor::execution::state::Waiting;
use longhaul_protocol::conductor::ResultStatus;
use longhaul_protocol::id::RunId;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, members, with};

/// A node of a definition before it has a reference.
#[derive(Clone, Debug)]
enum Shape {
    Simple,
    Queued(u8),
    Direct(u8),
    Wait(u8),
    Terminate,
    Sub(u8),
    Switch(Vec<Self>, Vec<Self>),
    Fork(Vec<Vec<Self>>, u8),
    DynamicFork(Vec<Self>, u8),
    Loop(Vec<Self>, u8),
}

fn shape() -> impl Strategy<Value = (Shape, u8)> {
    let leaf = prop_oneof![
        6 => Just(Shape::Simple),
        1 => (0..3_u8).prop_map(Shape::Queued),
        3 => (0..3_u8).prop_map(Shape::Direct),
        1 => (0..4_u8).prop_map(Shape::Wait),
        1 => (0..5_u8).prop_map(Shape::Sub),
    ];
    let nested = leaf.prop_recursive(4, 24, 4, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            2 => inner.clone(),
            2 => (list(), list()).prop_map(|(one, two)| Shape::Switch(one, two)),
            2 => (prop::collection::vec(list(), 1..4), any::<u8>()).prop_map(|(branches, on)| Shape::Fork(branches, on)),
            1 => (list(), 0..3_u8).prop_map(|(nodes, style)| Shape::DynamicFork(nodes, style)),
            2 => (prop::collection::vec(inner, 1..3), any::<u8>()).prop_map(|(body, kind)| Shape::Loop(body, kind)),
        ]
    });
    (
        prop_oneof![30 => nested, 1 => Just(Shape::Terminate)],
        any::<u8>(),
    )
}

/// Builds nodes with references of their own.
struct Builder {
    count: usize,
}

impl Builder {
    fn list(&mut self, shapes: &[Shape], in_loop: bool) -> Vec<Value> {
        let mut nodes = Vec::new();
        for (index, shape) in shapes.iter().enumerate() {
            nodes.extend(self.node(shape, in_loop, u8::try_from(index).unwrap_or(0)));
        }
        nodes
    }

    fn reference(&mut self) -> String {
        self.count += 1;
        format!("n{}", self.count)
    }

    fn node(&mut self, shape: &Shape, in_loop: bool, flags: u8) -> Vec<Value> {
        let reference = self.reference();
        let name = format!("t{}", flags % 4);
        let base = |kind: &str| json!({"name": name, "taskReferenceName": reference, "type": kind});
        let previous = format!("${{n{}.output}}", self.count.saturating_sub(1));
        let mut node = match shape {
            Shape::Simple => with(
                base("SIMPLE"),
                json!({"inputParameters": {"before": previous, "task": "${CPEWF_TASK_ID}"}}),
            ),
            Shape::Queued(0) => base("MY_TYPE"),
            Shape::Queued(1) => with(base("HTTP"), json!({"inputParameters": {"uri": previous}})),
            Shape::Queued(_) => with(
                base("DYNAMIC"),
                json!({"dynamicTaskNameParam": "n", "inputParameters": {"n": "t1"}}),
            ),
            Shape::Direct(0) => base("NOOP"),
            Shape::Direct(1) => with(
                base("SET_VARIABLE"),
                json!({"inputParameters": {"v": previous}}),
            ),
            Shape::Direct(_) => with(
                base("INLINE"),
                json!({"inputParameters": {"expression": "inline", "flags": flags, "before": previous}}),
            ),
            Shape::Wait(0) => with(base("WAIT"), json!({"inputParameters": {"duration": "7s"}})),
            Shape::Wait(1) => base("WAIT"),
            Shape::Wait(2) => base("YIELD"),
            Shape::Wait(_) => base("HUMAN"),
            Shape::Terminate => {
                let status = ["COMPLETED", "FAILED", "TERMINATED"][usize::from(flags % 3)];
                with(
                    base("TERMINATE"),
                    json!({"inputParameters": {"terminationStatus": status}}),
                )
            }
            Shape::Sub(0) => with(
                base("SUB_WORKFLOW"),
                json!({"subWorkflowParam": {"name": "missing", "version": 1}}),
            ),
            Shape::Sub(1) => {
                let inline = json!({"name": "inline", "version": 1, "tasks": [{"name": "t0", "taskReferenceName": "a", "type": "SIMPLE"}]});
                with(
                    base("SUB_WORKFLOW"),
                    json!({"subWorkflowParam": {"name": "inline", "workflowDefinition": inline}}),
                )
            }
            Shape::Sub(_) => with(
                base("SUB_WORKFLOW"),
                json!({"startDelay": flags % 3, "subWorkflowParam": {"name": "child", "version": 1}}),
            ),
            Shape::Switch(one, two) => {
                let (one, two) = (self.list(one, in_loop), self.list(two, in_loop));
                let script = flags % 2 == 1;
                let evaluator = if script { "javascript" } else { "value-param" };
                let expression = if script { "switch" } else { "k" };
                with(
                    base("SWITCH"),
                    json!({"evaluatorType": evaluator, "expression": expression, "inputParameters": {"k": format!("c{}", flags % 3), "b": previous},
                    "decisionCases": {"c0": one, "c1": two}}),
                )
            }
            Shape::Fork(branches, on) => {
                let lists: Vec<Vec<Value>> = branches
                    .iter()
                    .map(|branch| self.list(branch, in_loop))
                    .collect();
                let last = lists
                    .iter()
                    .filter_map(|list| Some(list.last()?["taskReferenceName"].clone()));
                let last: Vec<Value> = last.filter(|_| on % 5 != 0).collect();
                let fork = with(base("FORK_JOIN"), json!({"forkTasks": lists}));
                let join = self.reference();
                return vec![
                    fork,
                    json!({"name": "join", "taskReferenceName": join, "type": "JOIN", "joinOn": last}),
                ];
            }
            Shape::DynamicFork(shapes, style) => {
                let fork = match style {
                    0 => {
                        json!({"inputParameters": {"forkTaskName": "t1", "forkTaskInputs": vec![json!({"a": 1}); shapes.len()]}})
                    }
                    1 => {
                        json!({"inputParameters": {"forkTaskWorkflow": "child", "forkTaskWorkflowVersion": 1, "forkTaskInputs": vec![json!(7); shapes.len()]}})
                    }
                    // A node of a dynamic fork is one node: forks would need a join after them, and loops may not be nested.
                    _ => {
                        let nodes: Vec<Value> = shapes
                            .iter()
                            .flat_map(|shape| {
                                let mut nodes = self.node(shape, true, 2);
                                nodes.truncate(1);
                                nodes
                            })
                            .collect();
                        json!({"dynamicForkTasksParam": "nodes", "dynamicForkTasksInputParamName": "inputs", "inputParameters": {"nodes": nodes, "inputs": {}}})
                    }
                };
                let fork = with(base("FORK_JOIN_DYNAMIC"), fork);
                let join = self.reference();
                return vec![
                    fork,
                    json!({"name": "join", "taskReferenceName": join, "type": "JOIN"}),
                ];
            }
            Shape::Loop(body, _) if in_loop => return self.list(body, true),
            Shape::Loop(body, kind) => {
                let body = self.list(body, true);
                let keep = if kind % 4 == 0 {
                    json!({"keepLastN": 1})
                } else {
                    json!({})
                };
                let looped = if kind % 2 == 0 {
                    json!({"items": [1, {"big": "x".repeat(3000)}], "loopOver": body, "inputParameters": keep})
                } else {
                    json!({"loopCondition": "again", "loopOver": body, "inputParameters": with(keep, json!({"me": reference, "all": format!("${{{reference}.output}}")}))})
                };
                with(base("DO_WHILE"), looped)
            }
        };
        match flags % 7 {
            1 if !matches!(shape, Shape::Terminate) => node["optional"] = json!(true),
            2 => node["permissive"] = json!(true),
            3 => node["retryCount"] = json!(0),
            4 if matches!(shape, Shape::Simple) => node["startDelay"] = json!(3),
            _ => {}
        }
        vec![node]
    }
}

#[derive(Clone, Debug)]
enum Step {
    Poll(u8, u8),
    Report(u8, u8),
    /// A report on any open task, also on joins and loops.
    Override(u8, u8),
    /// A report by reference that takes the next task.
    TakeNext(u8, u8),
    Duplicate(u8, u8),
    Extend(u8),
    Wait(u16),
    Pause(u8),
    Resume(u8),
    Terminate(u8),
    Restart(u8),
    Retry(u8),
    Rerun(u8, u8),
    Skip(u8, u8),
    ResetCallbacks(u8),
    UpdateState(u8, u8),
    /// A message that was delivered before comes again.
    Late(u8),
    Remove(u8),
    Signal(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), 0..3_u8).prop_map(|(which, worker)| Step::Poll(which, worker)),
        10 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::Report(which, how)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::Override(which, how)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::TakeNext(which, how)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::Duplicate(which, how)),
        1 => any::<u8>().prop_map(Step::Extend),
        5 => (0..150_u16).prop_map(Step::Wait),
        1 => any::<u8>().prop_map(Step::Pause),
        2 => any::<u8>().prop_map(Step::Resume),
        2 => (0..6_u8).prop_map(Step::Terminate),
        2 => any::<u8>().prop_map(Step::Late),
        1 => any::<u8>().prop_map(Step::Remove),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::Signal(which, how)),
        1 => any::<u8>().prop_map(Step::Restart),
        3 => any::<u8>().prop_map(Step::Retry),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(which, from)| Step::Rerun(which, from)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, node)| Step::Skip(which, node)),
        1 => any::<u8>().prop_map(Step::ResetCallbacks),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::UpdateState(which, how)),
    ]
}

fn world(nodes: &[Value], timeout: bool) -> World {
    let mut world = World::new();
    world.task_def(json!({"name": "t0", "retryCount": 1, "retryDelaySeconds": 2, "responseTimeoutSeconds": 20}));
    world.task_def(json!({"name": "t1", "retryCount": 2, "retryDelaySeconds": 0, "timeoutSeconds": 30, "timeoutPolicy": "RETRY", "backoffJitterMs": 1500}));
    world.task_def(json!({"name": "t2", "retryCount": 1, "pollTimeoutSeconds": 50, "totalTimeoutSeconds": 300, "timeoutPolicy": "RETRY", "retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 1}));
    world.script("inline", |input| {
        json!("y".repeat(if input["flags"].as_u64().unwrap() % 2 == 0 {
            10
        } else {
            2500
        }))
    });
    world.script("switch", |input| input["k"].clone());
    world.script("again", |input| {
        let me = input["me"].as_str().unwrap();
        json!(input[me]["iteration"].as_u64().unwrap() < 3)
    });
    world.failing_script("never", "never", false);
    world.define(json!({"name": "child", "version": 1, "tasks": [
        {"name": "t0", "taskReferenceName": "a", "type": "SIMPLE"},
        {"name": "i", "taskReferenceName": "b", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "grandchild"}}]}));
    world.define(json!({"name": "grandchild", "version": 1, "failureWorkflow": "cleanup", "tasks": [{"name": "t1", "taskReferenceName": "a", "type": "SIMPLE"}]}));
    world.define(json!({"name": "cleanup", "version": 1, "tasks": [{"name": "t0", "taskReferenceName": "a", "type": "SIMPLE"}]}));
    let mut definition =
        json!({"name": "w", "version": 1, "tasks": nodes, "failureWorkflow": "cleanup"});
    if timeout {
        definition = with(
            definition,
            json!({"timeoutSeconds": 500, "timeoutPolicy": "TIME_OUT_WF"}),
        );
    }
    world.define(definition);
    world
}

/// Returns the open tasks.
fn open_tasks(world: &World) -> Vec<(RunId, u64)> {
    let open = world.runs.values().filter(|run| run.core.closed.is_none());
    open.flat_map(|run| {
        let run_id = run.run_id().clone();
        let tasks = world.tasks(&run_id).filter(|task| task.is_open());
        let tasks = tasks.map(|task| (run_id.clone(), task.seq));
        tasks.collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the open tasks that workers, people or children answer.
fn answerable(world: &World) -> Vec<(RunId, u64)> {
    let mut tasks = open_tasks(world);
    tasks.retain(|(run_id, seq)| {
        let task = world.runs[run_id].task(*seq).unwrap();
        !matches!(task.waiting, Waiting::Iteration(_) | Waiting::Tasks(_))
    });
    tasks
}

fn report(how: u8) -> Report {
    let status = match how % 8 {
        0..=3 => ResultStatus::Completed,
        4 | 5 => ResultStatus::Failed,
        6 => ResultStatus::InProgress,
        _ => match how % 3 {
            0 => ResultStatus::FailedWithTerminalError,
            1 => ResultStatus::Canceled,
            _ => ResultStatus::Completed,
        },
    };
    let size = if how.is_multiple_of(5) { 3000 } else { 3 };
    let output = members(json!({"x": "x".repeat(size), "how": how}));
    Report::Status {
        status,
        output: if how.is_multiple_of(2) {
            Output::Replace(output)
        } else {
            Output::Merge(output)
        },
        reason: how.is_multiple_of(3).then(|| format!("because {how}")),
        worker_id: how.is_multiple_of(2).then(|| "w5".to_owned()),
        callback_after_seconds: i64::from(how % 4) * 5,
        logs: Vec::new(),
    }
}

/// Returns the report with another output.
fn with_output(report: Report, new: Output) -> Report {
    match report {
        Report::Status {
            status,
            reason,
            worker_id,
            callback_after_seconds,
            logs,
            ..
        } => Report::Status {
            status,
            output: new,
            reason,
            worker_id,
            callback_after_seconds,
            logs,
        },
        Report::ExtendLease | Report::AwaitsUpdate { .. } => report,
    }
}

fn pick<T: Clone>(list: &[T], which: u8) -> Option<T> {
    (!list.is_empty()).then(|| list[usize::from(which) % list.len()].clone())
}

fn send(world: &mut World, (run_id, seq): &(RunId, u64), report: Report) {
    let task_id = world.runs[run_id].task(*seq).unwrap().id.clone();
    let target = TaskTarget::Id { task_id, seq: *seq };
    world.update(run_id, target, report).unwrap();
}

fn apply(world: &mut World, step: &Step) {
    let runs: Vec<RunId> = world.runs.keys().cloned().collect();
    match step {
        Step::Poll(which, worker) => {
            let queues = ["t0", "t1", "t2", "t3", "MY_TYPE", "HTTP"];
            let queue = queues[usize::from(*which) % queues.len()];
            world.poll(queue, &format!("w{worker}"));
        }
        Step::Report(which, how) => {
            if let Some(task) = pick(&answerable(world), *which) {
                send(world, &task, report(*how));
            }
        }
        Step::Override(which, how) => {
            if let Some(task) = pick(&open_tasks(world), *which) {
                send(world, &task, report(*how));
            }
        }
        Step::TakeNext(which, how) => {
            if let Some((run_id, seq)) = pick(&answerable(world), *which) {
                let reference = world.runs[&run_id].task(seq).unwrap().reference.clone();
                let command = UpdateExecutionTask {
                    target: TaskTarget::Reference(reference),
                    report: report(*how),
                    takes_next: true,
                };
                let updated = world.act(&run_id, &command).unwrap();
                if let Some(next) = updated.next {
                    let next = world.runs[&run_id].task(next).unwrap();
                    assert_eq!(next.waiting, Waiting::Leased);
                }
                world.settle();
            }
        }
        Step::Duplicate(which, how) => {
            let run_id = pick(&runs, *which).unwrap();
            let ended: Vec<u64> = world
                .tasks(&run_id)
                .filter(|task| !task.is_open())
                .map(|task| task.seq)
                .collect();
            if let Some(seq) = pick(&ended, *how) {
                let version = world.runs[&run_id].version;
                send(world, &(run_id.clone(), seq), report(*how));
                assert_eq!(
                    world.runs[&run_id].version, version,
                    "a duplicate changes nothing"
                );
            }
        }
        Step::Extend(which) => {
            if let Some(task) = pick(&answerable(world), *which) {
                send(world, &task, Report::ExtendLease);
            }
        }
        Step::Wait(seconds) => world.wait_seconds(u64::from(*seconds)),
        Step::Pause(which) => {
            let run_id = pick(&runs, *which).unwrap();
            let _ = world.act(&run_id, &PauseExecution { reason: None });
        }
        Step::Resume(which) => {
            let run_id = pick(&runs, *which).unwrap();
            let _ = world.act(&run_id, &ResumeExecution);
            world.settle();
        }
        Step::Terminate(which) => {
            if let Some(run_id) = runs.get(usize::from(*which)) {
                let _ = world.terminate(&run_id.clone(), "random");
            }
        }
        Step::Restart(which) => {
            let run_id = pick(&runs, *which).unwrap();
            operate(world, &run_id, |world| world.restart(&run_id));
        }
        Step::Retry(which) => {
            let run_id = pick(&runs, *which).unwrap();
            operate(world, &run_id, |world| world.retry(&run_id));
        }
        Step::Rerun(which, from) => {
            let run_id = pick(&runs, *which).unwrap();
            let tasks: Vec<u64> = world.tasks(&run_id).map(|task| task.seq).collect();
            match pick(&tasks, *from) {
                Some(seq) if !from.is_multiple_of(8) => {
                    operate(world, &run_id, |world| world.rerun_from(&run_id, seq));
                }
                _ => {
                    let command = RerunExecution {
                        workflow_input: Some(members(json!({"from": from}))),
                        ..RerunExecution::default()
                    };
                    operate(world, &run_id, |world| world.rerun(&run_id, &command));
                }
            }
        }
        Step::Skip(which, node) => {
            let run_id = pick(&runs, *which).unwrap();
            let reference = format!("n{}", node % 12 + 1);
            operate(world, &run_id, |world| {
                world.skip(&run_id, &reference, json!({"a": 1}), json!({"b": 2}))
            });
        }
        Step::ResetCallbacks(which) => {
            let run_id = pick(&runs, *which).unwrap();
            operate(world, &run_id, |world| world.reset_callbacks(&run_id));
        }
        Step::UpdateState(which, how) => {
            if let Some((run_id, seq)) = pick(&answerable(world), *which) {
                let reference = world.runs[&run_id].task(seq).unwrap().reference.clone();
                let task = Some((&*reference, report(*how)));
                operate(world, &run_id, |world| {
                    world.update_state(&run_id, json!({"how": how}), task)
                });
            }
        }
        Step::Late(which) => world.repeat_letter(usize::from(*which)),
        Step::Remove(which) => {
            // A run that others still refer to is kept, so that the checks of this world find it.
            let run_id = pick(&runs, *which).unwrap();
            if world.runs.len() > 1 && !world.is_referred_to(&run_id) {
                world.remove(&run_id);
            }
        }
        Step::Signal(which, how) => {
            let waits = |task: &&(RunId, u64)| {
                let task = world.runs[&task.0].task(task.1).unwrap();
                matches!(&*task.task_type, "WAIT" | "YIELD")
            };
            let waiting: Vec<_> = open_tasks(world).iter().filter(waits).cloned().collect();
            if let Some(task) = pick(&waiting, *which) {
                let output = Output::Merge(members(json!({"signal": how})));
                send(world, &task, with_output(report(*how), output));
            }
        }
    }
}

/// Makes an operation that may be refused. A refused one changes nothing.
fn operate(
    world: &mut World,
    run_id: &RunId,
    operation: impl FnOnce(&mut World) -> Result<(), Rejection>,
) {
    let version = world.runs[run_id].version;
    if operation(world).is_err() {
        let now = world.runs[run_id].version;
        assert_eq!(now, version, "a refused operation changes nothing");
    }
}

/// Answers everything until all runs have ended.
fn finish(world: &mut World) {
    for round in 0..2000 {
        // A resumed run may end and close its children, so each is looked for after the one before.
        let paused = |world: &World| {
            let mut open = world.runs.values().filter(|run| run.core.closed.is_none());
            let found = open.find(|run| run.core.execution.as_ref().unwrap().paused);
            found.map(|run| run.run_id().clone())
        };
        while let Some(run_id) = paused(world) {
            world.act(&run_id, &ResumeExecution).unwrap();
            world.settle();
        }
        let tasks = answerable(world);
        let children = |task: &&(RunId, u64)| {
            let task = world.runs[&task.0].task(task.1).unwrap();
            !matches!(task.waiting, Waiting::Child(_))
        };
        match tasks.iter().find(children) {
            Some(task) => send(world, &task.clone(), report(2)),
            None if tasks.is_empty() => break,
            None => panic!("only children are left open"),
        }
        assert!(round < 1999, "the runs do not end");
    }
    for run in world.runs.values() {
        // Only a join on a task that never comes may be left.
        if run.core.closed.is_none() {
            assert!(
                world
                    .tasks(run.run_id())
                    .any(|task| task.is_open() && matches!(task.waiting, Waiting::Tasks(_)))
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_definitions_keep_the_invariants(
        shapes in prop::collection::vec(shape(), 1..5),
        steps in prop::collection::vec(step(), 0..60),
        timeout in any::<bool>(),
    ) {
        let mut builder = Builder { count: 0 };
        let mut nodes = Vec::new();
        for (shape, flags) in &shapes {
            nodes.extend(builder.node(shape, false, *flags));
        }
        let mut world = world(&nodes, timeout);
        world.start("w", json!({"x": 1}));
        for step in &steps {
            apply(&mut world, step);
        }
        finish(&mut world);
    }
}
