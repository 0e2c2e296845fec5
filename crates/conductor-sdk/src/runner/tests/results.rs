//! What becomes of the values, errors and panics of a worker.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_protocol::conductor::{ResultStatus, TaskExecLog, TaskResult};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::fake::FakeTasks;
use super::{BOTH, runner, runner_with, slots, task, tasks, worker};
use crate::events::{
    EventDispatcher, PollCompleted, PollStarted, TaskExecutionCompleted, TaskExecutionFailure,
    TaskExecutionStarted, TaskRunnerEventsListener,
};
use crate::worker::{
    NonRetryable, Outcome, RunnerKind, TaskContext, TaskInProgress, TaskResponse, async_function,
    function,
};

/// Runs one task with a function and returns the result that was reported.
async fn result_of(
    kind: RunnerKind,
    work: impl Fn(Value) -> TaskResponse<Outcome> + Send + Sync + 'static,
) -> TaskResult {
    let fake = FakeTasks::returning(vec![vec![task("a")]]);
    let mut runner = runner(worker(kind, work).settings(slots(1)), &fake);
    runner.run_once().await;
    runner.drain().await;
    assert_eq!(runner.running(), 0);
    let mut reported = fake.reported();
    assert_eq!(reported.len(), 1);
    reported.remove(0).2
}

#[tokio::test]
async fn an_error_is_a_failed_task_with_its_message_and_trace() {
    for kind in BOTH {
        let result = result_of(kind, |_| Err(std::io::Error::other("disk full").into())).await;
        assert_eq!(result.status, Some(ResultStatus::Failed));
        assert_eq!(result.reason_for_incompletion.as_deref(), Some("disk full"));
        assert_eq!(result.logs.len(), 1);
        assert_eq!(result.logs[0].log, "Error: disk full");
        // Milliseconds of this century, not seconds.
        assert!(result.logs[0].created_time > 1_600_000_000_000);
    }
}

#[tokio::test]
async fn an_error_that_is_not_retryable_is_terminal() {
    for kind in BOTH {
        let result = result_of(kind, |_| Err(NonRetryable::new("no such order").into())).await;
        assert_eq!(result.status, Some(ResultStatus::FailedWithTerminalError));
        assert_eq!(
            result.reason_for_incompletion.as_deref(),
            Some("no such order")
        );
    }
}

#[tokio::test]
async fn a_panic_is_a_failed_task_and_frees_its_slot() {
    for kind in BOTH {
        let result = result_of(kind, |_| panic!("out of cheese")).await;
        assert_eq!(result.status, Some(ResultStatus::Failed));
        let reason = result.reason_for_incompletion.unwrap();
        assert_eq!(reason, "the worker panicked: out of cheese");
        assert!(TaskContext::current().is_none());
    }
}

#[test]
fn a_thread_has_no_context_after_its_task() {
    // All tasks run on the one thread that looks for a context afterwards.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let works: [fn(Value) -> TaskResponse<Outcome>; 3] = [
        |input| Outcome::output(&input),
        |_| Err(NonRetryable::new("no").into()),
        |_| panic!("out of cheese"),
    ];
    runtime.block_on(async {
        for work in works {
            result_of(RunnerKind::Sync, move |input| {
                assert_eq!(TaskContext::current().unwrap().task_id(), "a");
                work(input)
            })
            .await;
            let left = tokio::task::spawn_blocking(|| TaskContext::current().is_some());
            assert!(!left.await.unwrap());
        }
    });
}

#[tokio::test]
async fn an_input_that_does_not_fit_is_a_failed_task() {
    type Numbers = std::collections::BTreeMap<String, u32>;
    for worker in [
        function("t", |input: Numbers| Ok(input)),
        async_function("t", async |input: Numbers| Ok(input)),
    ] {
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let mut runner = runner(worker.settings(slots(1)), &fake);
        runner.run_once().await;
        runner.drain().await;
        let result = &fake.reported()[0].2;
        assert_eq!(result.status, Some(ResultStatus::Failed));
        let reason = result.reason_for_incompletion.as_deref().unwrap();
        assert!(
            reason.starts_with("the input of the task does not fit: id: invalid type"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_whole_result_is_sent_as_it_is_with_its_ids_filled_in() {
    for kind in BOTH {
        let result = result_of(kind, |_| {
            Ok(Outcome::from(TaskResult {
                status: Some(ResultStatus::Failed),
                reason_for_incompletion: Some("as I say".to_owned()),
                worker_id: Some("me".to_owned()),
                logs: vec![TaskExecLog {
                    log: "mine".to_owned(),
                    ..TaskExecLog::default()
                }],
                ..TaskResult::default()
            }))
        })
        .await;
        assert_eq!(result.status, Some(ResultStatus::Failed));
        assert_eq!(result.reason_for_incompletion.as_deref(), Some("as I say"));
        assert_eq!(
            (&*result.task_id, result.worker_id.as_deref()),
            ("a", Some("me"))
        );
        assert_eq!(result.logs[0].log, "mine");
    }
}

#[tokio::test]
async fn the_context_adds_to_the_result() {
    for kind in BOTH {
        let result = result_of(kind, |_| {
            let context = TaskContext::current().unwrap();
            assert_eq!((context.task_id(), context.retry_count()), ("a", 0));
            context.add_log("first");
            context.set_callback_after(Duration::from_secs(7));
            context.set_output("page", 1);
            context.set_output("kept", true);
            let progress = TaskInProgress::after(Duration::from_secs(90)).output("page", 2);
            Ok(progress.into())
        })
        .await;
        assert_eq!(result.callback_after_seconds, 7);
        assert_eq!(
            Value::Object(result.output_data),
            json!({"page": 2, "kept": true})
        );
        assert_eq!(result.logs[0].log, "first");
        assert_eq!(result.logs[0].task_id.as_deref(), Some("a"));
    }
}

#[tokio::test]
async fn logs_of_a_failed_task_are_kept() {
    for kind in BOTH {
        let result = result_of(kind, |_| {
            TaskContext::current().unwrap().add_log("so far");
            Err(NonRetryable::new("no").into())
        })
        .await;
        let lines: Vec<_> = result.logs.iter().map(|log| &*log.log).collect();
        assert_eq!(lines, ["NonRetryable: no", "so far"]);
    }
}

#[tokio::test]
async fn every_task_sees_its_own_context() {
    let (here, there) = (
        Arc::new(std::sync::Barrier::new(50)),
        Arc::new(Barrier::new(50)),
    );
    let current = || Ok(TaskContext::current().unwrap().task_id().to_owned());
    // All tasks have begun when the first one asks for its context.
    let blocking = function("t", move |_: Value| {
        here.wait();
        current()
    });
    let waiting = async_function("t", move |_: Value| {
        let there = Arc::clone(&there);
        async move {
            there.wait().await;
            current()
        }
    });
    for worker in [blocking, waiting] {
        let fake = FakeTasks::returning(vec![tasks(50)]);
        let mut runner = runner(worker.settings(slots(50)), &fake);
        runner.run_once().await;
        runner.drain().await;
        assert_eq!(fake.reported().len(), 50);
        for (_, _, result) in fake.reported() {
            assert_eq!(result.output_data["result"], *result.task_id);
        }
        assert!(TaskContext::current().is_none());
    }
}

/// Writes down what it hears. It may panic.
#[derive(Clone, Default)]
struct Ear {
    heard: Arc<Mutex<Vec<String>>>,
    panics: bool,
}

impl Ear {
    fn hear(&self, text: String) {
        self.heard.lock().push(text);
        assert!(!self.panics, "a listener of the test panics");
    }
}

impl TaskRunnerEventsListener for Ear {
    fn on_poll_started(&self, event: &PollStarted, _: SystemTime) {
        self.hear(format!("poll {} {}", event.poll_count, event.worker_id));
    }

    fn on_poll_completed(&self, event: &PollCompleted, _: SystemTime) {
        self.hear(format!("polled {}", event.tasks_received));
    }

    fn on_task_execution_started(&self, event: &TaskExecutionStarted, _: SystemTime) {
        self.hear(format!("began {}", event.task_id));
    }

    fn on_task_execution_completed(&self, event: &TaskExecutionCompleted, _: SystemTime) {
        self.hear(format!("completed {} bytes", event.output_size_bytes));
    }

    fn on_task_execution_failure(&self, event: &TaskExecutionFailure, _: SystemTime) {
        self.hear(format!("failed: {}", event.cause));
    }
}

#[tokio::test]
async fn listeners_hear_everything_in_order_also_beside_one_that_panics() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")], vec![task("b")]]);
        let ears = [
            Ear::default(),
            Ear {
                panics: true,
                ..Ear::default()
            },
            Ear::default(),
        ];
        let mut builder = EventDispatcher::builder();
        for ear in &ears {
            builder = builder.register(ear.clone());
        }
        let (events, dispatching) = builder.start().unwrap();
        let worker = worker(kind, |input| match input["id"].as_str() {
            Some("a") => Outcome::output(&json!({"x": 1})),
            Some(_) | None => Err(NonRetryable::new("not b").into()),
        });
        let mut runner = runner_with(worker.settings(slots(2)), &fake, events);
        for _ in 0..2 {
            runner.run_once().await;
            runner.drain().await;
        }
        drop(runner);
        dispatching.ended().await;
        for ear in &ears {
            assert_eq!(
                *ear.heard.lock(),
                [
                    "poll 2 w",
                    "polled 1",
                    "began a",
                    "completed 7 bytes",
                    "poll 2 w",
                    "polled 1",
                    "began b",
                    "failed: not b",
                ]
            );
        }
        assert_eq!(fake.reported().len(), 2);
    }
}

/// Stands in a listener until the test lets it go.
pub(super) struct Stuck(Mutex<std::sync::mpsc::Receiver<()>>);

impl Stuck {
    pub(super) fn new(release: std::sync::mpsc::Receiver<()>) -> Self {
        Self(Mutex::new(release))
    }
}

impl TaskRunnerEventsListener for Stuck {
    fn on_poll_started(&self, _: &PollStarted, _: SystemTime) {
        let _closed = self.0.lock().recv();
    }
}

#[tokio::test]
async fn a_listener_that_blocks_delays_no_task_and_events_are_dropped_at_the_limit() {
    for kind in BOTH {
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let (events, dispatching) = EventDispatcher::builder()
            .register(Stuck::new(stuck))
            .start()
            .unwrap();
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let worker = worker(kind, |input| Outcome::output(&input));
        let mut runner = runner_with(worker.settings(slots(1)), &fake, events.clone());
        runner.run_once().await;
        runner.drain().await;
        assert_eq!(fake.reported().len(), 1);
        for _ in 0..=crate::events::QUEUE_EVENTS_MAX {
            events.publish(crate::events::TaskPaused {
                task_type: "t".into(),
            });
        }
        assert!(events.dropped() > 0);
        drop((release, runner, events));
        dispatching.ended().await;
    }
}
