//! Workers and the requests of a worker by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_conductor_sdk::client::{Poll, SearchQuery};
use longhaul_conductor_sdk::definition::{TaskDefBuilder, output_of, simple, workflow_input};
use longhaul_conductor_sdk::model::{
    ResultStatus, StartWorkflowRequest, TaskStatus, WorkflowStatus,
};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{async_function, function};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::{World, object, request, result, statuses, unique};
use crate::harness::eventually;

#[tokio::test]
async fn a_run_step_by_step() {
    let world = World::start().await;
    let (tasks, workflows) = (world.client.tasks(), world.client.workflows());
    let task = unique("greet");
    let definition = TaskDefBuilder::new(&task).build().unwrap();
    let metadata = world.client.metadata();
    metadata.register_tasks(&[definition]).await.unwrap();
    let name = world
        .define(|workflow| {
            workflow
                .then(simple(&task, "greet_ref").input("n", workflow_input("n")))
                .output("g", output_of("greet_ref", "result"))
        })
        .await;
    let poll = Poll::new(&task).worker_id("h");
    assert!(tasks.batch_poll(&poll).await.unwrap().is_empty());
    let id = world.start_workflow(&name, json!({"n": "x"})).await;
    let given = tasks.batch_poll(&poll).await.unwrap();
    let [given] = &*given else {
        panic!("{given:?}")
    };
    assert_eq!(given.workflow_instance_id, id);
    assert_eq!(given.status, TaskStatus::InProgress);
    assert_eq!(given.input_data, object(json!({"n": "x"})));
    assert_eq!(
        (
            &*given.task_type,
            &*given.task_def_name,
            &*given.reference_task_name
        ),
        (&*task, &*task, "greet_ref")
    );
    assert_eq!((given.seq, given.poll_count, given.retry_count), (1, 1, 0));
    let result = result(given, ResultStatus::Completed, json!({"result": "hi x"}));
    assert!(tasks.update_and_poll(&result).await.unwrap().is_none());
    let workflow = world.ended(&id).await;
    assert_eq!(workflow.status, WorkflowStatus::Completed);
    assert_eq!(workflow.output, object(json!({"g": "hi x"})));
    assert_eq!(statuses(&workflow), [("greet_ref", TaskStatus::Completed)]);
    let query = SearchQuery::new(format!("workflowId = '{id}'")).free_text("*");
    // Other servers index a little later.
    eventually("the workflow is found", || async {
        let found = workflows.search(&query).await.unwrap();
        let found: Vec<_> = found.results.into_iter().collect();
        (found.len() == 1 && found[0].workflow_id == id).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_task_in_progress_comes_back() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let id = world.start_workflow(&name, json!({})).await;
    for round in 0..3 {
        let given = world.polled(&task).await;
        assert_eq!(given.poll_count, round + 1);
        world
            .report(&given, ResultStatus::InProgress, json!({"round": round}))
            .await;
    }
    let given = world.polled(&task).await;
    assert_eq!(given.output_data, object(json!({"round": 2})));
    world
        .report(&given, ResultStatus::Completed, json!({}))
        .await;
    assert_eq!(world.ended(&id).await.status, WorkflowStatus::Completed);
}

#[tokio::test]
async fn a_worker_of_a_domain_gets_its_tasks_only() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let worker = function(&task, |_: Value| Ok(json!({"by": "blue"})));
    let _workers = world
        .workers([worker.settings(CodeSettings::new().domain("blue"))])
        .await;
    let blue = StartWorkflowRequest {
        task_to_domain: [("*".to_owned(), "blue".to_owned())].into(),
        ..request(&name, json!({}))
    };
    let id = world.client.workflows().start(&blue).await.unwrap();
    let ended = world.ended(&id).await;
    assert_eq!(ended.output, object(json!({"by": "blue"})));
    assert_eq!(ended.tasks[0].domain.as_deref(), Some("blue"));
    let plain = world.start_workflow(&name, json!({})).await;
    let given = world.polled(&task).await;
    assert_eq!(given.workflow_instance_id, plain);
    world
        .report(&given, ResultStatus::Completed, json!({"by": "hand"}))
        .await;
    let ended = world.ended(&plain).await;
    assert_eq!(ended.output, object(json!({"by": "hand"})));
}

#[tokio::test]
async fn an_update_after_the_end_changes_nothing() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let id = world.start_workflow(&name, json!({})).await;
    let given = world.polled(&task).await;
    world
        .report(&given, ResultStatus::Completed, json!({"first": true}))
        .await;
    world
        .report(&given, ResultStatus::Failed, json!({"first": false}))
        .await;
    let workflow = world.ended(&id).await;
    assert_eq!(workflow.status, WorkflowStatus::Completed);
    assert_eq!(workflow.output, object(json!({"first": true})));
}

#[tokio::test]
async fn values_keep_their_form() {
    let world = World::start().await;
    let (name, _workers) = world.returning_input().await;
    let value = json!({
        "text": "naïve 雪 \u{1f40d}", "null": null, "deep": {"null": [null, {"null": null}]},
        "number": 1.5, "large": "x".repeat(1_000_000), "i64": i64::MAX,
    });
    let ended = world.run(&name, json!({"n": value})).await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    assert_eq!(ended.output, object(json!({"n": value})));
}

/// Runs a workflow of one task of this name.
async fn works_with_name(name: &str) {
    let world = World::start().await;
    let task = unique(name);
    let name = world
        .define(|workflow| workflow.then(simple(&task, "t")))
        .await;
    let _workers = world
        .workers([function(&task, |_: Value| Ok(json!({"ok": true})))])
        .await;
    assert_eq!(world.run(&name, json!({})).await.output["ok"], true);
}

#[tokio::test]
async fn names_with_spaces_work() {
    works_with_name("a task with spaces, 100 % & 雪; ?#+").await;
}

#[tokio::test]
async fn names_with_slashes_work() {
    works_with_name("a task/with slashes").await;
}

#[tokio::test]
async fn pause_and_resume() {
    let world = World::start().await;
    let (first, second) = (unique("first"), unique("second"));
    let name = world
        .define(|workflow| {
            workflow
                .then(simple(&first, "a"))
                .then(simple(&second, "b"))
        })
        .await;
    let id = world.start_workflow(&name, json!({})).await;
    let workflows = world.client.workflows();
    workflows.pause(&id).await.unwrap();
    let _workers = world
        .workers([
            function(&first, |_: Value| Ok(())),
            function(&second, |_: Value| Ok(())),
        ])
        .await;
    eventually("the first task ends", || async {
        let workflow = workflows.get(&id).await.unwrap();
        (workflow.tasks[0].status == TaskStatus::Completed).then_some(())
    })
    .await;
    let paused = workflows.get(&id).await.unwrap();
    assert_eq!(
        (paused.status, paused.tasks.len()),
        (WorkflowStatus::Paused, 1)
    );
    workflows.resume(&id).await.unwrap();
    assert_eq!(world.ended(&id).await.status, WorkflowStatus::Completed);
}

#[tokio::test]
async fn terminate() {
    let world = World::start().await;
    let (_, name) = world.one_task(|task| task).await;
    let id = world.start_workflow(&name, json!({})).await;
    let workflows = world.client.workflows();
    workflows.terminate(&id, Some("enough")).await.unwrap();
    let ended = world.ended(&id).await;
    assert_eq!(ended.status, WorkflowStatus::Terminated);
    assert_eq!(ended.reason_for_incompletion.as_deref(), Some("enough"));
    assert_eq!(statuses(&ended), [("t", TaskStatus::Canceled)]);
}

#[tokio::test]
async fn futures_work_at_the_same_time() {
    let world = World::start().await;
    let task = unique("task");
    let name = world
        .define(|workflow| workflow.then(simple(&task, "t").input("n", workflow_input("n"))))
        .await;
    // All ten wait for each other, so they must run together.
    let all = Arc::new(Barrier::new(10));
    let worker = async_function(&task, move |input: Value| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
            Ok(input)
        }
    });
    let _workers = world
        .workers([worker.settings(CodeSettings::new().thread_count(10))])
        .await;
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(world.start_workflow(&name, json!({"n": n})).await);
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(world.ended(id).await.output, object(json!({"n": n})));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_keeps_its_lease() {
    const SECONDS: u64 = 2;
    let world = World::start().await;
    let (task, name) = world
        .one_task(|task| {
            task.retries(9)
                .retry_delay(Duration::ZERO)
                .response_timeout(Duration::from_secs(SECONDS))
        })
        .await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = async_function(&task, move |_: Value| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {
            // Longer than the time-out: only heartbeats keep the task.
            tokio::time::sleep(Duration::from_secs(2 * SECONDS)).await;
            Ok(json!({"done": true}))
        }
    });
    let _workers = world
        .workers([worker.settings(CodeSettings::new().lease_extend_enabled(true))])
        .await;
    let ended = world.run(&name, json!({})).await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    let last = ended.tasks.last().unwrap();
    assert_eq!(last.output_data["done"], true);
    assert_eq!(last.poll_count, 1);
    assert!(last.end_time - last.start_time > i64::try_from(SECONDS * 1000).unwrap());
    // A machine that stalls may cost further attempts.
    assert_eq!(runs.load(Ordering::Relaxed), ended.tasks.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workflows() {
    let world = World::start().await;
    let task = unique("task");
    let name = world
        .define(|workflow| workflow.then(simple(&task, "t").input("n", workflow_input("n"))))
        .await;
    let worker = async_function(&task, async |input: Value| Ok(input));
    let _workers = world
        .workers([worker.settings(CodeSettings::new().thread_count(20))])
        .await;
    let requests: Vec<_> = (0..100).map(|n| request(&name, json!({"n": n}))).collect();
    let workflows = world.client.workflows();
    let starts = requests.iter().map(|request| workflows.start(request));
    let ids = futures::future::try_join_all(starts).await.unwrap();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(world.ended(id).await.output, object(json!({"n": n})));
    }
}
