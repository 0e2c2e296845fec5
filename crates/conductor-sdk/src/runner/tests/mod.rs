//! Runners against a server of the test, with a clock that jumps. Every test runs over both kinds of runner where both have the
//! behaviour.

mod capacity;
mod events;
mod fake;
mod faults;
mod gate;
mod leases;
mod logs;
mod loops;
mod results;
mod updates;

use std::time::Duration;

use longhaul_protocol::conductor::Task;
use serde_json::{Value, json};

use super::TaskRunner;
use crate::events::EventDispatcher;
use crate::settings::{CodeSettings, resolve};
use crate::worker::{AnyWorker, Outcome, RunnerKind, TaskResponse, async_function, function};
use fake::FakeTasks;

const BOTH: [RunnerKind; 2] = [RunnerKind::Sync, RunnerKind::Async];

/// Returns a runner whose settings come from the code of the worker only.
fn runner(worker: AnyWorker, tasks: &FakeTasks) -> TaskRunner {
    runner_with(worker, tasks, EventDispatcher::silent())
}

fn runner_with(worker: AnyWorker, tasks: &FakeTasks, events: EventDispatcher) -> TaskRunner {
    let resolved = resolve(worker.task_type(), &worker.settings, &|_| None).unwrap();
    TaskRunner::with_settings(worker, tasks.clone(), events, resolved)
}

/// Returns a worker of either kind for the tasks of type `t`.
fn worker(
    kind: RunnerKind,
    work: impl Fn(Value) -> TaskResponse<Outcome> + Send + Sync + 'static,
) -> AnyWorker {
    match kind {
        RunnerKind::Sync => function("t", work),
        RunnerKind::Async => async_function("t", move |input| {
            let response = work(input);
            async move {
                // The work is done after the first poll of the future.
                tokio::task::yield_now().await;
                response
            }
        }),
    }
}

/// Returns a worker that returns its input.
fn echo(kind: RunnerKind) -> AnyWorker {
    worker(kind, |input| Outcome::output(&input))
}

fn slots(count: usize) -> CodeSettings {
    CodeSettings::new().thread_count(count).worker_id("w")
}

fn task(id: &str) -> Task {
    Task {
        task_id: id.to_owned(),
        workflow_instance_id: format!("workflow of {id}"),
        task_type: "t".to_owned(),
        input_data: json!({"id": id}).as_object().unwrap().clone(),
        ..Task::default()
    }
}

fn tasks(count: usize) -> Vec<Task> {
    (0..count)
        .map(|number| task(&format!("t{number}")))
        .collect()
}

/// Runs until the runner is idle for so long that the next poll would come.
async fn run_for(mut runner: TaskRunner, time: Duration) -> TaskRunner {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        let _elapsed = tokio::time::timeout_at(end, runner.run_once()).await;
    }
    runner
}
