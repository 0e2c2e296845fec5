//! What a task leaves behind: attempts, reasons, log lines, outputs, definitions.

use std::time::Duration;

use longhaul_conductor_sdk::client::Execute;
use longhaul_conductor_sdk::definition::{TaskDefBuilder, simple};
use longhaul_conductor_sdk::model::{StartWorkflowRequest, TaskDef, TaskStatus, WorkflowStatus};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{
    NonRetryable, Outcome, TaskContext, TaskFailure, TaskInProgress, function,
};
use serde_json::{Value, json};

use super::{World, object, request, statuses, unique};
use crate::harness::eventually;

#[tokio::test]
async fn a_failed_task_is_tried_again() {
    let world = World::start().await;
    let (task, name) = world
        .one_task(|task| task.retries(2).retry_delay(Duration::ZERO))
        .await;
    let worker = function(&task, |_: Value| {
        if TaskContext::current().unwrap().retry_count() == 0 {
            return Err(TaskFailure::new("no van"));
        }
        Ok(json!({"parcel": 1}))
    });
    let _workers = world.workers([worker]).await;
    let ended = world.run(&name, json!({})).await;
    assert_eq!(ended.output, object(json!({"parcel": 1})));
    let attempts = [("t", TaskStatus::Failed), ("t", TaskStatus::Completed)];
    assert_eq!(statuses(&ended), attempts);
    let reason = ended.tasks[0].reason_for_incompletion.as_deref();
    assert_eq!(reason, Some("no van"));
    assert_eq!(ended.tasks[1].retry_count, 1);
    assert_eq!(
        ended.tasks[1].retried_task_id.as_deref(),
        Some(&*ended.tasks[0].task_id)
    );
}

#[tokio::test]
async fn a_failure_for_good_ends_the_workflow() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task.retries(2)).await;
    let worker = function(&task, |_: Value| -> Result<Value, TaskFailure> {
        Err(NonRetryable::new("no such order").into())
    });
    let _workers = world.workers([worker]).await;
    let ended = world.run(&name, json!({})).await;
    assert_eq!(ended.status, WorkflowStatus::Failed);
    assert_eq!(
        statuses(&ended),
        [("t", TaskStatus::FailedWithTerminalError)]
    );
    let reason = ended.reason_for_incompletion.unwrap_or_default();
    assert!(reason.contains("no such order"), "{reason}");
}

#[tokio::test]
async fn a_task_that_is_given_back_has_its_output_so_far() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let worker = function(&task, |_: Value| {
        let context = TaskContext::current().unwrap();
        let pages = context.task().output_data.get("pages");
        let pages = pages.and_then(Value::as_u64).unwrap_or(0) + 1;
        if pages < 3 {
            let rest = TaskInProgress::after(Duration::ZERO).output("pages", pages);
            return Ok(rest.into());
        }
        Outcome::output(&json!({"pages": pages}))
    });
    let _workers = world.workers([worker]).await;
    let ended = world.run(&name, json!({})).await;
    assert_eq!(ended.output, object(json!({"pages": 3})));
    assert_eq!(ended.tasks[0].poll_count, 3);
}

#[tokio::test]
async fn a_silent_worker_loses_its_task() {
    let world = World::start().await;
    let (task, name) = world
        .one_task(|task| {
            task.retries(1)
                .retry_delay(Duration::ZERO)
                .response_timeout(Duration::from_secs(1))
        })
        .await;
    let id = world.start_workflow(&name, json!({})).await;
    let first = world.polled(&task).await;
    let second = world.polled(&task).await;
    assert_eq!((first.retry_count, second.retry_count), (0, 1));
    let workflow = world.client.workflows().get(&id).await.unwrap();
    assert_eq!(workflow.tasks[0].status, TaskStatus::TimedOut);
}

#[tokio::test]
async fn execute_returns_the_output() {
    let world = World::start().await;
    let (name, _workers) = world.returning_input().await;
    let request = request(&name, json!({"n": 7}));
    let execute = Execute::new().wait(Duration::from_secs(30));
    let executed = world.client.workflows().execute(&request, &execute).await;
    let run = executed.unwrap().workflow().unwrap();
    assert_eq!(run.status, WorkflowStatus::Completed);
    assert_eq!(run.output, object(json!({"n": 7})));
}

#[tokio::test]
async fn log_lines_are_kept_as_they_are() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let id = world.start_workflow(&name, json!({})).await;
    let lines = ["a \"line\" 雪", "two\nlines", "{\"a\": 1}"];
    let given = world.polled(&task).await;
    for line in lines {
        let tasks = world.client.tasks();
        tasks.add_log(&given.task_id, line).await.unwrap();
    }
    // Other servers index a little later.
    eventually("all lines", || async {
        let logs = world.client.tasks().logs(&given.task_id).await.unwrap();
        let kept: Vec<_> = logs.iter().map(|log| &*log.log).collect();
        (kept == lines).then_some(())
    })
    .await;
    let workflows = world.client.workflows();
    workflows.terminate(&id, None).await.unwrap();
}

#[tokio::test]
async fn a_worker_adds_log_lines() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let worker = function(&task, |_: Value| {
        let context = TaskContext::current().unwrap();
        context.add_log("first");
        context.add_log("second");
        Ok(())
    });
    let _workers = world.workers([worker]).await;
    let ended = world.run(&name, json!({})).await;
    eventually("both lines", || async {
        let tasks = world.client.tasks();
        let logs = tasks.logs(&ended.tasks[0].task_id).await.unwrap();
        let kept: Vec<_> = logs.iter().map(|log| &*log.log).collect();
        (kept == ["first", "second"]).then_some(())
    })
    .await;
}

/// Runs a worker with this template until it has worked. It registers before it polls.
async fn work_once(world: &World, template: TaskDef, settings: CodeSettings) {
    // The last poll of an earlier worker must not get the task, so each worker has a domain.
    let domain = unique("domain");
    let task = template.name.clone();
    let worker = function(&task, |_: Value| Ok(()))
        .task_definition(template)
        .settings(settings.register_task_def(true).domain(&domain));
    let _workers = world.workers([worker]).await;
    let name = world
        .define(|workflow| workflow.then(simple(&task, "t")))
        .await;
    let request = StartWorkflowRequest {
        task_to_domain: [("*".to_owned(), domain)].into(),
        ..request(&name, json!({}))
    };
    let id = world.client.workflows().start(&request).await.unwrap();
    world.ended(&id).await;
}

#[tokio::test]
async fn a_worker_registers_its_task_definition() {
    let world = World::start().await;
    for (overwrite, kept) in [(true, 6), (false, 5)] {
        let task = unique("task");
        for (count, expected) in [(5, 5), (6, kept)] {
            let template = TaskDefBuilder::new(&task).retries(count).build().unwrap();
            let settings = CodeSettings::new().overwrite_task_def(overwrite);
            work_once(&world, template, settings).await;
            let registered = world.client.metadata().task(&task).await.unwrap();
            assert_eq!(registered.retry_count, expected, "overwrite: {overwrite}");
        }
    }
}

#[tokio::test]
async fn a_worker_registers_its_schemas() {
    let world = World::start().await;
    let task = unique("task");
    let worker = function(&task, |_: Value| Ok(()))
        .input_schema(json!({"type": "object"}))
        .settings(CodeSettings::new().register_task_def(true));
    let _workers = world.workers([worker]).await;
    let registered = eventually("the definition", || async {
        world.client.metadata().task(&task).await.ok()
    })
    .await;
    let link = registered.input_schema.unwrap();
    assert_eq!((&*link.name, link.version), (&*format!("{task}_input"), 1));
    let schema = world.client.schemas().get(&link.name, None).await.unwrap();
    assert_eq!(schema.data, Some(object(json!({"type": "object"}))));
}
