//! Limits of task definitions, logs, sizes of queues, domains and the synchronous update.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_conductor_sdk::client::Poll;
use longhaul_conductor_sdk::definition::{human, wait};
use longhaul_conductor_sdk::model::{
    Object, ResultStatus, StartWorkflowRequest, Task, TaskExecLog, TaskResult, TaskStatus,
    WorkflowStatus,
};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{
    TaskContext, TaskFailure, TaskResponse, async_function, function,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{World, object, refused, request, result, statuses, unique};
use crate::harness::eventually;

/// Earlier than any moment of a run, and later than the same moment in seconds.
const SOME_TIME_AGO_MS: i64 = 1_700_000_000_000;

impl World {
    async fn start_many(&self, name: &str, count: usize) -> Vec<String> {
        let request = request(name, json!({}));
        let workflows = self.client.workflows();
        let starts = (0..count).map(|_| workflows.start(&request));
        futures::future::try_join_all(starts).await.unwrap()
    }

    /// Returns the tasks that can be polled now.
    async fn batch(&self, task_type: &str) -> Vec<Task> {
        let poll = Poll::new(task_type).worker_id("by-hand").count(10);
        self.client.tasks().batch_poll(&poll).await.unwrap()
    }

    /// Returns a task to its queue for an hour.
    async fn put_off(&self, task: &Task) {
        let update = TaskResult {
            callback_after_seconds: 3600,
            ..result(task, ResultStatus::InProgress, json!({}))
        };
        self.client.tasks().update(&update).await.unwrap();
    }

    async fn queue_size(&self, queue: &str) -> i64 {
        let sizes = self.client.tasks().queue_sizes(&[queue]).await.unwrap();
        sizes.get(queue).copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn two_of_five_are_in_progress() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task.concurrent_limit(2)).await;
    let runs = world.start_many(&name, 5).await;
    let first = world.batch(&task).await;
    assert_eq!(first.len(), 2);
    assert!(world.batch(&task).await.is_empty());
    let completed = ResultStatus::Completed;
    world.report(&first[0], completed, json!({})).await;
    assert_eq!(world.batch(&task).await.len(), 1);
    // A task that waits for its callback is not in progress.
    world.put_off(&first[1]).await;
    let fourth = world.batch(&task).await;
    assert_eq!(fourth.len(), 1);
    let workflows = world.client.workflows();
    let id = &fourth[0].workflow_instance_id;
    workflows.terminate(id, Some("enough")).await.unwrap();
    assert_eq!(world.batch(&task).await.len(), 1);
    assert!(world.batch(&task).await.is_empty());
    let mut ends = Vec::new();
    for id in runs {
        ends.push(workflows.get(&id).await.unwrap().status.as_str());
    }
    ends.sort_unstable();
    assert_eq!(
        ends,
        ["COMPLETED", "RUNNING", "RUNNING", "RUNNING", "TERMINATED"]
    );
}

#[tokio::test]
async fn a_worker_with_many_threads_keeps_to_the_limit() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task.concurrent_limit(2)).await;
    let gate = Arc::new(Semaphore::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let shared = (Arc::clone(&gate), Arc::clone(&running), Arc::clone(&most));
    let worker = async_function(&task, move |_: Value| {
        let (gate, running, most) = shared.clone();
        async move {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let _passed = gate.acquire().await?;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let _workers = world
        .workers([worker.settings(CodeSettings::new().thread_count(8))])
        .await;
    let runs = world.start_many(&name, 20).await;
    eventually("two tasks run", || async {
        (running.load(Ordering::SeqCst) == 2).then_some(())
    })
    .await;
    // Both wait, and no worker gets a third one.
    assert!(world.batch(&task).await.is_empty());
    assert_eq!(world.queue_size(&task).await, 18);
    gate.add_permits(8);
    for id in runs {
        assert_eq!(world.ended(&id).await.status, WorkflowStatus::Completed);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn starts_in_a_window_are_limited() {
    let world = World::start().await;
    let window = Duration::from_secs(1);
    let (task, name) = world.one_task(|task| task.rate_limit(3, window)).await;
    world.start_many(&name, 7).await;
    let mut given = Vec::new();
    while given.len() < 7 {
        let one = eventually("another task", || async {
            let batch = world.batch(&task).await;
            (!batch.is_empty()).then_some(batch)
        });
        given.extend(one.await);
    }
    // The moments come from the clock of the server: the third task after any one starts a window later.
    let mut moments = Vec::new();
    for one in &given {
        let record = world.client.tasks().get(&one.task_id).await.unwrap();
        moments.push(record.start_time);
    }
    moments.sort_unstable();
    assert!(
        moments.windows(4).all(|four| four[3] - four[0] >= 1000),
        "{moments:?}"
    );
    let (count, seconds) = (
        given[0].rate_limit_per_frequency,
        given[0].rate_limit_frequency_in_seconds,
    );
    assert_eq!((count, seconds), (3, 1));
}

#[tokio::test]
async fn logs() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let worker = function(&task, |_: Value| {
        let context = TaskContext::current().expect("the worker has a task");
        context.add_log("from the context");
        context.add_log("second ü");
        context.set_output("both", "context");
        context.set_output("context", true);
        Ok(json!({"both": "result"}))
    });
    let _workers = world.workers([worker]).await;
    let run = world.completed(&name, json!({})).await;
    let output = json!({"both": "result", "context": true});
    assert_eq!(run.output, object(output));
    let (tasks, id) = (world.client.tasks(), &run.tasks[0].task_id);
    tasks.add_log(id, "later: \"quoted\" ü").await.unwrap();
    let found = tasks.logs(id).await.unwrap();
    let lines: Vec<_> = found.iter().map(|line| &*line.log).collect();
    assert_eq!(
        lines,
        ["from the context", "second ü", "later: \"quoted\" ü"]
    );
    for line in &found {
        assert_eq!(line.task_id.as_ref(), Some(id));
        assert!(line.created_time > SOME_TIME_AGO_MS, "{line:?}");
    }
    refused(404, tasks.add_log("no-such-task", "lost").await);
}

#[tokio::test]
async fn logs_of_a_report_by_hand() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let id = world.start_workflow(&name, json!({})).await;
    let given = world.polled(&task).await;
    let line = TaskExecLog {
        log: "by hand".to_owned(),
        task_id: Some(given.task_id.clone()),
        created_time: SOME_TIME_AGO_MS,
    };
    let report = TaskResult {
        logs: vec![line],
        ..result(&given, ResultStatus::Completed, json!({}))
    };
    world.client.tasks().update(&report).await.unwrap();
    assert_eq!(world.ended(&id).await.status, WorkflowStatus::Completed);
    let found = world.client.tasks().logs(&given.task_id).await.unwrap();
    let [line] = &*found else { panic!("{found:?}") };
    assert_eq!(line.log, "by hand");
}

#[tokio::test]
async fn a_failure_leaves_its_trace() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task.retries(0)).await;
    let worker = function(&task, |_: Value| -> TaskResponse<()> {
        Err(TaskFailure::new("broken on purpose"))
    });
    let _workers = world.workers([worker]).await;
    let run = world.run(&name, json!({})).await;
    assert_eq!(run.status, WorkflowStatus::Failed);
    let tasks = world.client.tasks();
    let found = tasks.logs(&run.tasks[0].task_id).await.unwrap();
    let [line] = &*found else { panic!("{found:?}") };
    assert!(line.log.contains("broken on purpose"), "{line:?}");
    assert!(line.created_time > SOME_TIME_AGO_MS, "{line:?}");
}

#[tokio::test]
async fn sizes_of_queues() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    assert_eq!(world.queue_size(&task).await, 0);
    let mut runs = world.start_many(&name, 3).await;
    assert_eq!(world.queue_size(&task).await, 3);
    let given = world.polled(&task).await;
    assert_eq!(world.queue_size(&task).await, 2);
    world.put_off(&given).await;
    assert_eq!(world.queue_size(&task).await, 3);
    let blue = StartWorkflowRequest {
        task_to_domain: [(task.clone(), "blue".to_owned())].into(),
        ..request(&name, json!({}))
    };
    let workflows = world.client.workflows();
    runs.push(workflows.start(&blue).await.unwrap());
    assert_eq!(world.queue_size(&format!("blue:{task}")).await, 1);
    assert_eq!(world.queue_size(&task).await, 3);
    for id in runs {
        workflows.terminate(&id, None).await.unwrap();
    }
    assert_eq!(world.queue_size(&task).await, 0);
    assert_eq!(world.queue_size(&format!("blue:{task}")).await, 0);
}

#[tokio::test]
async fn poll_data_names_the_last_worker_of_each_domain() {
    let world = World::start().await;
    let task = unique("task");
    let tasks = world.client.tasks();
    assert!(tasks.poll_data(&task).await.unwrap().is_empty());
    let plain = Poll::new(&task);
    let blue = plain.clone().domain("blue").worker_id("second");
    for poll in [
        plain.clone().worker_id("zeroth"),
        plain.worker_id("first"),
        blue,
    ] {
        assert!(tasks.poll(&poll).await.unwrap().is_none());
    }
    let mut found = tasks.poll_data(&task).await.unwrap();
    found.sort_by(|one, other| one.domain.cmp(&other.domain));
    let shown: Vec<_> = found
        .iter()
        .map(|poll| (poll.domain.as_deref(), poll.worker_id.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [(None, Some("first")), (Some("blue"), Some("second"))]
    );
    for poll in found {
        assert_eq!(poll.queue_name, task);
        assert!(poll.last_poll_time > SOME_TIME_AGO_MS);
    }
}

#[tokio::test]
async fn a_domain_has_its_own_queue() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let start = StartWorkflowRequest {
        task_to_domain: [(task.clone(), "blue".to_owned())].into(),
        ..request(&name, json!({}))
    };
    let id = world.client.workflows().start(&start).await.unwrap();
    assert!(world.batch(&task).await.is_empty());
    let blue = Poll::new(&task).domain("blue");
    let given = eventually("the task of the domain", || async {
        world.client.tasks().poll(&blue).await.unwrap()
    })
    .await;
    assert_eq!(given.domain.as_deref(), Some("blue"));
    world
        .report(&given, ResultStatus::Completed, json!({}))
        .await;
    assert_eq!(world.ended(&id).await.status, WorkflowStatus::Completed);
}

#[tokio::test]
async fn a_domain_without_a_worker_yields_to_the_next() {
    let world = World::start().await;
    let (task, name) = world.one_task(|task| task).await;
    let fallen = StartWorkflowRequest {
        task_to_domain: [("*".to_owned(), "unseen,NO_DOMAIN".to_owned())].into(),
        ..request(&name, json!({}))
    };
    let id = world.client.workflows().start(&fallen).await.unwrap();
    let given = world.polled(&task).await;
    assert_eq!((&given.workflow_instance_id, &given.domain), (&id, &None));
}

#[tokio::test]
async fn the_synchronous_update_returns_the_workflow() {
    let world = World::start().await;
    let name = world
        .define(|workflow| workflow.then(wait("one")).then(human("two")))
        .await;
    let id = world.start_workflow(&name, json!({})).await;
    let (tasks, completed) = (world.client.tasks(), ResultStatus::Completed);
    let output = object(json!({"v": 9}));
    let open = tasks
        .update_by_reference_sync(&id, "one", completed, &output)
        .await
        .unwrap();
    assert_eq!(open.workflow_id, id);
    let ends = [TaskStatus::Completed, TaskStatus::InProgress];
    assert_eq!(statuses(&open), [("one", ends[0]), ("two", ends[1])]);
    assert_eq!(open.tasks[0].output_data, output);
    let ended = tasks
        .update_by_reference_sync(&id, "two", completed, &Object::new())
        .await
        .unwrap();
    assert_eq!(ended.status, WorkflowStatus::Completed);
}
