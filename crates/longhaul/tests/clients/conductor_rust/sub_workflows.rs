//! Workflows that run other workflows: registered, inline, and again after a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, human, output_of, simple, sub_workflow,
    sub_workflow_inline, workflow_input,
};
use longhaul_conductor_sdk::model::{ResultStatus, TaskStatus, WorkflowStatus};
use longhaul_conductor_sdk::worker::{NonRetryable, function};
use serde_json::{Value, json};

use super::echo::Echo;
use super::{World, object, references, refused, statuses, unique};
use crate::harness::eventually;

#[tokio::test]
async fn three_deep() {
    let world = World::start().await;
    let (task, mut name) = world.one_task(|task| task).await;
    for _ in 0..3 {
        let call = sub_workflow("call", &name).version(1);
        let n = call.output("n");
        name = world
            .define(|workflow| workflow.then(call).output("n", n))
            .await;
    }
    let id = world.start_workflow(&name, json!({})).await;
    let given = world.polled(&task).await;
    world
        .report(&given, ResultStatus::Completed, json!({"n": 7}))
        .await;
    let mut run = world.ended(&id).await;
    assert_eq!(run.output, object(json!({"n": 7})));
    for _ in 0..3 {
        assert_eq!(run.status, WorkflowStatus::Completed);
        let child = run.tasks[0].sub_workflow_id.as_deref().unwrap();
        let below = world.ended(child).await;
        let parent = below.parent_workflow_id.as_ref();
        assert_eq!(parent, Some(&run.workflow_id));
        run = below;
    }
    assert_eq!(references(&run), ["t"]);
}

#[tokio::test]
async fn a_definition_inside_the_call() {
    let echo = Echo::start().await;
    let child = WorkflowDefBuilder::new(unique("child"))
        .then(echo.task("c").input("n", workflow_input("n")))
        .output("answer", output_of("c", "n"))
        .build()
        .unwrap();
    let child_name = child.name.clone();
    let call = sub_workflow_inline("call", child).input("n", 8);
    let answer = call.output("answer");
    let run = echo
        .completed(json!({}), |workflow| {
            workflow.then(call).output("answer", answer)
        })
        .await;
    assert_eq!(run.output, object(json!({"answer": 8})));
    let metadata = echo.world.client.metadata();
    refused(404, metadata.workflow(&child_name, None).await);
}

#[tokio::test]
async fn a_call_is_tried_again() {
    let world = World::start().await;
    let (task, call) = (unique("once"), unique("call"));
    let child = world
        .define(|workflow| workflow.then(simple(&task, "c")))
        .await;
    let definition = TaskDefBuilder::new(&call)
        .retries(1)
        .retry_delay(Duration::ZERO)
        .build()
        .unwrap();
    let metadata = world.client.metadata();
    metadata.register_tasks(&[definition]).await.unwrap();
    let name = world
        .define(|workflow| workflow.then(sub_workflow("call", &child).task_name(&call)))
        .await;
    let has_failed = Arc::new(AtomicBool::new(false));
    let worker = function(&task, move |_: Value| {
        if has_failed.swap(true, Ordering::Relaxed) {
            Ok(json!({"n": 5}))
        } else {
            Err(NonRetryable::new("the first child fails").into())
        }
    });
    let _workers = world.workers([worker]).await;
    let run = world.completed(&name, json!({})).await;
    let ends = [TaskStatus::Failed, TaskStatus::Completed];
    assert_eq!(statuses(&run), [("call", ends[0]), ("call", ends[1])]);
    let reason = run.tasks[0].reason_for_incompletion.as_deref();
    let reason = reason.unwrap_or_default();
    assert!(reason.contains("the first child fails"), "{reason}");
    assert_eq!(run.tasks[1].output_data["n"], 5);
    let ends = [WorkflowStatus::Failed, WorkflowStatus::Completed];
    for (call, end) in run.tasks.iter().zip(ends) {
        let child = world.ended(call.sub_workflow_id.as_deref().unwrap()).await;
        assert_eq!(child.status, end);
    }
}

#[tokio::test]
async fn the_end_of_a_parent_ends_its_child() {
    let world = World::start().await;
    let child = world.define(|workflow| workflow.then(human("h"))).await;
    let name = world
        .define(|workflow| workflow.then(sub_workflow("call", &child)))
        .await;
    let id = world.start_workflow(&name, json!({})).await;
    let workflows = world.client.workflows();
    let child = eventually("the child", || async {
        let run = workflows.get(&id).await.unwrap();
        run.tasks.first()?.sub_workflow_id.clone()
    })
    .await;
    workflows.terminate(&id, Some("enough")).await.unwrap();
    let run = world.ended(&id).await;
    assert_eq!(statuses(&run), [("call", TaskStatus::Canceled)]);
    let below = world.ended(&child).await;
    assert_eq!(below.status, WorkflowStatus::Terminated);
    let reason = below.reason_for_incompletion.unwrap_or_default();
    assert!(
        reason.contains("terminated with reason: enough"),
        "{reason}"
    );
}
