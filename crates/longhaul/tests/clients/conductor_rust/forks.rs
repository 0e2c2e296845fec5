//! Forks with their joins: branches of the definition, and branches that a run decides.

use longhaul_conductor_sdk::definition::{
    dynamic_fork, fork, fork_each, human, simple, switch, workflow_input,
};
use longhaul_conductor_sdk::model::{Object, TaskStatus};
use longhaul_conductor_sdk::worker::function;
use serde_json::{Value, json};

use super::echo::Echo;
use super::{object, references, statuses, task_of, unique};
use crate::harness::eventually;

#[tokio::test]
async fn a_fork_joins_the_ends_of_its_branches() {
    let echo = Echo::start().await;
    let all = fork("fork")
        .branch(echo.task("a1").then(echo.task("a2")))
        .branch(echo.task("b").input("x", 1))
        .branch(switch("pick", workflow_input("lang")).case("FR", echo.task("fr")));
    let x = all.join_output("b.x");
    let run = echo
        .completed(json!({"lang": "FR"}), |workflow| {
            workflow.then(all).then(echo.task("last").input("x", x))
        })
        .await;
    let joined = &task_of(&run, "fork_join").output_data;
    // A task without output leaves nothing in the join.
    assert_eq!(joined.keys().collect::<Vec<_>>(), ["a2", "b"]);
    assert_eq!(joined["b"], json!({"reference": "b", "x": 1}));
    // The join waits for the case of the switch, too.
    let ends = statuses(&run);
    assert!(ends.contains(&("fr", TaskStatus::Completed)), "{ends:?}");
    assert_eq!(task_of(&run, "last").output_data["x"], 1);
    assert_eq!(references(&run).last(), Some(&"last"));
}

#[tokio::test]
async fn a_join_need_not_wait_for_all() {
    let echo = Echo::start().await;
    let some = fork("fork")
        .branch(echo.task("a"))
        .branch(human("h"))
        .join_reference("join")
        .join_on(["a"]);
    let name = echo
        .world
        .define(|workflow| workflow.then(some).then(echo.task("last")))
        .await;
    let id = echo.world.start_workflow(&name, json!({})).await;
    let workflows = echo.world.client.workflows();
    let run = eventually("the task after the join", || async {
        let run = workflows.get(&id).await.unwrap();
        statuses(&run)
            .contains(&("last", TaskStatus::Completed))
            .then_some(run)
    })
    .await;
    assert_eq!(task_of(&run, "h").status, TaskStatus::InProgress);
    let joined = &task_of(&run, "join").output_data;
    assert_eq!(joined.keys().collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn a_worker_plans_a_fork() {
    let echo = Echo::start().await;
    let (plan, branch) = (unique("plan"), echo.task_type.clone());
    let planner = function(&plan, move |input: Value| {
        let count = input["count"].as_u64().unwrap_or_default();
        let node =
            |n| json!({"name": branch, "taskReferenceName": format!("r{n}"), "type": "SIMPLE"});
        let inputs: Object = (0..count)
            .map(|n| (format!("r{n}"), json!({"n": n})))
            .collect();
        Ok(json!({"tasks": (0..count).map(node).collect::<Vec<_>>(), "inputs": inputs}))
    });
    let _planner = echo.world.workers([planner]).await;
    let planned = simple(&plan, "plan").input("count", workflow_input("count"));
    let fan = dynamic_fork("fan", planned.output("tasks"), planned.output("inputs"));
    let seven = fan.join_output("r7.n");
    let run = echo
        .completed(json!({"count": 20}), |workflow| {
            workflow.then(planned).then(fan).output("seven", seven)
        })
        .await;
    assert_eq!(run.output, object(json!({"seven": 7})));
    assert_eq!(run.tasks.len(), 20 + 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_a_thousand_branches() {
    let echo = Echo::start().await;
    let fan = fork_each("fan", &echo.task_type, workflow_input("inputs")).join_reference("join");
    let inputs: Vec<_> = (0..1000).map(|n| json!({"n": n})).collect();
    let run = echo
        .completed(json!({"inputs": inputs}), |workflow| workflow.then(fan))
        .await;
    assert_eq!(run.tasks.len(), 1002);
    let joined = &task_of(&run, "join").output_data;
    let mut numbers: Vec<_> = joined.values().map(|output| output["n"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1000).map(Some).collect::<Vec<_>>());
}
