//! Workers of three libraries on one queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_conductor_sdk::definition::simple;
use longhaul_conductor_sdk::model::WorkflowStatus;
use longhaul_conductor_sdk::worker::{TaskContext, async_function};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{World, request};
use crate::harness::{Background, Server};

const TASKS: usize = 1000;

/// Starts that wait for the server at the same time.
const STARTS_AT_ONCE: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_of_a_mixed_fleet_are_executed_once() {
    let server = Arc::new(Server::start().await);
    let world = World::of(Arc::clone(&server));
    let name = world
        .define(|workflow| workflow.then(simple("fleet_work", "t")))
        .await;
    let (executed, mut executions) = mpsc::unbounded_channel::<(&str, String)>();
    for (by, mut program) in [
        ("python", Background::python("fleet_worker.py", &server)),
        (
            "javascript",
            Background::node("fleet_worker.mjs", &server, &[]),
        ),
    ] {
        assert_eq!(program.next_line().await.as_deref(), Some("working"));
        let executed = executed.clone();
        tokio::spawn(async move {
            while let Some(line) = program.next_line_of_any_time().await {
                let id = line.strip_prefix("executed ");
                let id = id.unwrap_or_else(|| panic!("{by}: {line}"));
                let _ended = executed.send((by, id.to_owned()));
            }
        });
    }
    let _workers = world
        .workers([async_function("fleet_work", move |_: Value| {
            let context = TaskContext::current().unwrap();
            let _ended = executed.send(("rust", context.task_id().to_owned()));
            async { Ok(json!({"by": "rust"})) }
        })])
        .await;

    let mut ids = Vec::new();
    for _ in 0..TASKS / STARTS_AT_ONCE {
        let request = request(&name, json!({}));
        let workflows = world.client.workflows();
        let starts = (0..STARTS_AT_ONCE).map(|_| workflows.start(&request));
        ids.extend(futures::future::try_join_all(starts).await.unwrap());
    }
    let mut by_task = BTreeMap::new();
    for id in &ids {
        let ended = world.ended(id).await;
        assert_eq!(ended.status, WorkflowStatus::Completed, "{id}");
        let [task] = &*ended.tasks else {
            panic!("{id} has {} tasks", ended.tasks.len())
        };
        assert_eq!(task.poll_count, 1, "{id}");
        let by = task.output_data["by"].as_str().unwrap().to_owned();
        by_task.insert(task.task_id.clone(), by);
    }
    assert_eq!(by_task.len(), TASKS);

    // Each line of a worker is one execution: of a task that it completed, and of no other.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..TASKS {
        let (by, task_id) = executions.recv().await.unwrap();
        assert_eq!(by_task.remove(&task_id).as_deref(), Some(by), "{task_id}");
        *counts.entry(by).or_default() += 1;
    }
    assert!(executions.try_recv().is_err(), "a task was executed twice");
    assert_eq!(counts.len(), 3, "all three libraries work: {counts:?}");
}
