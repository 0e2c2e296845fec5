//! Every operator that needs no call to the outside, from the typed builders. `forks` and `sub_workflows` have their own files.

use std::time::Duration;

use longhaul_conductor_sdk::definition::{
    Steps, TerminationStatus, do_times, do_while, dynamic, for_each, fork, human, inline,
    loop_item, loop_iteration, noop, output_of, raw, set_variable, simple, switch, switch_script,
    terminate, variable, wait_for, wait_until, workflow_input,
};
use longhaul_conductor_sdk::model::{ResultStatus, TaskStatus, WorkflowStatus};
use longhaul_conductor_sdk::worker::{NonRetryable, function};
use serde_json::{Value, json};

use super::echo::Echo;
use super::{World, object, references, statuses, task_of, unique};
use crate::harness::eventually;

#[tokio::test]
async fn tasks_in_sequence() {
    let echo = Echo::start().await;
    let first = echo.task("a").input("n", workflow_input("n"));
    let second = echo
        .task("b")
        .input("text", format!("n={}", first.output("n")))
        .input("missing", first.output("nothing"));
    let run = echo
        .completed(json!({"n": 3}), |workflow| {
            workflow
                .then(first)
                .then(second)
                .output("text", output_of("b", "text"))
                .output("missing", output_of("b", "missing"))
        })
        .await;
    assert_eq!(run.output, object(json!({"text": "n=3", "missing": null})));
    assert_eq!(references(&run), ["a", "b"]);
}

#[tokio::test]
async fn a_switch_selects_a_case() {
    let echo = Echo::start().await;
    let pick = switch("pick", workflow_input("lang"))
        .case("FR", echo.task("fr"))
        .case("none", Steps::new())
        .default_case(echo.task("other"));
    let name = echo
        .world
        .define(|workflow| workflow.then(pick).then(echo.task("last")))
        .await;
    let french = echo.world.completed(&name, json!({"lang": "FR"})).await;
    assert_eq!(references(&french), ["pick", "fr", "last"]);
    assert_eq!(french.tasks[0].output_data["selectedCase"], "FR");
    let german = echo.world.completed(&name, json!({"lang": "DE"})).await;
    assert_eq!(references(&german), ["pick", "other", "last"]);
    let none = echo.world.completed(&name, json!({"lang": "none"})).await;
    assert_eq!(references(&none), ["pick", "last"]);
}

#[tokio::test]
async fn a_switch_by_script() {
    let echo = Echo::start().await;
    let pick = switch_script("pick", "$.n > 10 ? 'big' : 'small'")
        .input("n", workflow_input("n"))
        .case("big", echo.task("big"))
        .case("small", echo.task("small"));
    let name = echo.world.define(|workflow| workflow.then(pick)).await;
    let big = echo.world.completed(&name, json!({"n": 11})).await;
    assert_eq!(references(&big), ["pick", "big"]);
    let small = echo.world.completed(&name, json!({"n": 10})).await;
    assert_eq!(references(&small), ["pick", "small"]);
}

#[tokio::test]
async fn loops_by_count_and_by_condition() {
    let echo = Echo::start().await;
    let body = echo.task("t").input("n", loop_iteration("loop"));
    let counted = do_times("loop", 3, body);
    let rounds = counted.output("iteration");
    let condition = "$.body.n < $.most";
    let body = echo.task("body").input("n", loop_iteration("until"));
    let until = do_while("until", condition, body).input("most", workflow_input("most"));
    let run = echo
        .completed(json!({"most": 2}), |workflow| {
            workflow.then(counted).then(until).output("n", rounds)
        })
        .await;
    assert_eq!(
        references(&run),
        [
            "loop", "t__1", "t__2", "t__3", "until", "body__1", "body__2"
        ]
    );
    assert_eq!(run.output, object(json!({"n": 3})));
    let second = json!({"t": {"reference": "t__2", "n": 2}});
    assert_eq!(run.tasks[0].output_data["2"], second);
}

#[tokio::test]
async fn a_loop_over_a_list() {
    let echo = Echo::start().await;
    let body = echo.task("body").input("item", loop_item("each"));
    let each = for_each("each", workflow_input("list"), body);
    let name = echo.world.define(|workflow| workflow.then(each)).await;
    let items = json!(["a", null, {"c": 1}]);
    let run = echo.world.completed(&name, json!({"list": items})).await;
    assert_eq!(references(&run), ["each", "body__1", "body__2", "body__3"]);
    let seen = run.tasks[1..].iter().map(|task| &task.output_data["item"]);
    assert_eq!(
        seen.collect::<Vec<_>>(),
        items.as_array().unwrap().iter().collect::<Vec<_>>()
    );
    let run = echo.world.completed(&name, json!({"list": []})).await;
    assert_eq!(references(&run), ["each"]);
}

#[tokio::test]
async fn scripts_and_variables() {
    let world = World::start().await;
    let sum = inline("sum", "(function () { return $.a + $.b; })()")
        .input("a", workflow_input("a"))
        .input("b", 2);
    let double = inline("double", "$.n * 2").input("n", sum.output("result"));
    let keep = set_variable("keep").input("total", double.output("result"));
    let name = world
        .define(|workflow| {
            workflow
                .input_template("a", 19)
                .variable("first", "yes")
                .variable("total", 0)
                .then(sum)
                .then(double)
                .then(keep)
                .then(noop("nothing"))
                .output("total", variable("total"))
                .output("first", variable("first"))
        })
        .await;
    let run = world.completed(&name, json!({})).await;
    assert_eq!(run.output, object(json!({"total": 42, "first": "yes"})));
    assert_eq!(task_of(&run, "nothing").task_type, "NOOP");
    let run = world.completed(&name, json!({"a": 1})).await;
    assert_eq!(run.output["total"], 6);
}

#[tokio::test]
async fn a_script_that_throws_fails_the_task() {
    let world = World::start().await;
    let name = world
        .define(|workflow| workflow.then(inline("bad", "throw new TypeError('no')")))
        .await;
    let run = world.run(&name, json!({})).await;
    assert_eq!(run.status, WorkflowStatus::Failed);
    let [task] = &*run.tasks else {
        panic!("{:?}", statuses(&run))
    };
    assert_eq!(task.status, TaskStatus::FailedWithTerminalError);
    let error = &task.output_data["error"];
    assert!(error.as_str().unwrap().contains("TypeError: no"), "{error}");
}

#[tokio::test]
async fn types_of_tasks_that_only_the_run_knows() {
    let echo = Echo::start().await;
    let chosen = dynamic("chosen", workflow_input("task"));
    let own = raw(&echo.task_type, "own", "own").input("n", 1);
    let run = echo
        .completed(json!({"task": echo.task_type}), |workflow| {
            workflow.then(chosen).then(own)
        })
        .await;
    assert_eq!(references(&run), ["chosen", "own"]);
    assert_eq!(run.tasks[0].task_type, echo.task_type);
    assert_eq!(run.tasks[1].task_type, echo.task_type);
    assert_eq!(run.tasks[1].output_data["n"], 1);
}

#[tokio::test]
async fn forms_of_waiting() {
    let echo = Echo::start().await;
    let world = &echo.world;
    let name = world
        .define(|workflow| {
            workflow
                .then(wait_until("past", "2024-01-01 00:00 UTC"))
                .then(wait_for("second", Duration::from_secs(1)))
                .then(echo.task("late").start_delay(Duration::from_secs(1)))
                .then(human("human"))
        })
        .await;
    let id = world.start_workflow(&name, json!({})).await;
    let (workflows, tasks) = (world.client.workflows(), world.client.tasks());
    eventually("the human task", || async {
        let run = workflows.get(&id).await.unwrap();
        let last = run.tasks.last()?;
        (last.reference_task_name == "human" && last.status == TaskStatus::InProgress).then_some(())
    })
    .await;
    let answer = object(json!({"answer": "yes"}));
    let completed = ResultStatus::Completed;
    tasks
        .update_by_reference(&id, "human", completed, &answer)
        .await
        .unwrap();
    let run = world.ended(&id).await;
    assert_eq!(run.status, WorkflowStatus::Completed);
    assert_eq!(references(&run), ["past", "second", "late", "human"]);
    // All moments come from the clock of the server.
    let (second, late) = (task_of(&run, "second"), task_of(&run, "late"));
    assert!(second.end_time - second.scheduled_time >= 1000);
    assert!(late.start_time - late.scheduled_time >= 1000);
    assert_eq!(task_of(&run, "human").output_data, answer);
}

#[tokio::test]
async fn an_end_before_the_end() {
    let echo = Echo::start().await;
    let end = terminate("end", TerminationStatus::Completed)
        .reason("early")
        .workflow_output(json!({"n": workflow_input("n")}));
    let run = echo
        .completed(json!({"n": 3}), |workflow| {
            workflow.then(end).then(echo.task("never"))
        })
        .await;
    assert_eq!(references(&run), ["end"]);
    assert_eq!(run.output, object(json!({"n": 3})));
    assert_eq!(run.reason_for_incompletion.as_deref(), Some("early"));
    // The other branch has no worker.
    let end = terminate("end", TerminationStatus::Failed).reason("no stock");
    let both = fork("fork")
        .branch(simple(unique("idle"), "a"))
        .branch(end)
        .join_on(["a"]);
    let name = echo.world.define(|workflow| workflow.then(both)).await;
    let run = echo.world.run(&name, json!({})).await;
    assert_eq!(run.status, WorkflowStatus::Failed);
    assert_eq!(run.reason_for_incompletion.as_deref(), Some("no stock"));
    assert_eq!(task_of(&run, "a").status, TaskStatus::Canceled);
}

#[tokio::test]
async fn optional_and_permissive_tasks_may_fail() {
    let echo = Echo::start().await;
    let fatal = unique("fatal");
    let _fatal = echo
        .world
        .workers([function(&fatal, |_: Value| -> Result<(), _> {
            Err(NonRetryable::new("no use").into())
        })])
        .await;
    let optional = simple(&fatal, "may").optional();
    let run = echo
        .completed(json!({}), |workflow| {
            workflow.then(optional).then(echo.task("last"))
        })
        .await;
    let ends = [TaskStatus::CompletedWithErrors, TaskStatus::Completed];
    assert_eq!(statuses(&run), [("may", ends[0]), ("last", ends[1])]);
    // A permissive task fails the workflow at its end.
    let permissive = simple(&fatal, "may").permissive();
    let name = echo
        .world
        .define(|workflow| workflow.then(permissive).then(echo.task("last")))
        .await;
    let run = echo.world.run(&name, json!({})).await;
    assert_eq!(run.status, WorkflowStatus::Failed);
    let ends = [TaskStatus::FailedWithTerminalError, TaskStatus::Completed];
    assert_eq!(statuses(&run), [("may", ends[0]), ("last", ends[1])]);
    let reason = run.reason_for_incompletion.unwrap_or_default();
    assert!(reason.contains("no use"), "{reason}");
}
