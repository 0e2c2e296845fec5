//! What a runner logs: the level of each line, its fields, and what a person can do.

use std::time::Duration;

use longhaul_protocol::conductor::Task;
use longhaul_transport::RequestRetry;
use serde_json::Value;

use super::fake::{FakeTasks, Update};
use super::gate::{Gate, pass, until};
use super::{BOTH, echo, run_for, runner, runner_with, slots, task, worker};
use crate::client::Client;
use crate::configuration::Configuration;
use crate::events::EventDispatcher;
use crate::runner::TaskRunner;
use crate::settings::resolve;
use crate::testing::capture::Log;
use crate::testing::{FakeMetadata, FakeSchemas};
use crate::worker::{AnyWorker, NonRetryable, TaskFailure};

/// Runs one iteration and returns the log.
async fn logged(worker: AnyWorker, fake: &FakeTasks) -> Log {
    let log = Log::default();
    let _capturing = log.begin();
    let mut runner = runner(worker.settings(slots(1).lease_extend_enabled(true)), fake);
    runner.run_once().await;
    runner.drain().await;
    log
}

/// Returns the only line with a text.
#[track_caller]
fn line(log: &Log, text: &str) -> Value {
    let lines = log.with(text);
    assert_eq!(lines.len(), 1, "{text}: {}", log.text());
    lines[0].clone()
}

#[track_caller]
fn check_fields(line: &Value) {
    assert_eq!(line["task_type"], "t", "{line}");
    assert_eq!(line["task_id"], "a", "{line}");
    assert_eq!(line["workflow_instance_id"], "workflow of a", "{line}");
    assert_eq!(line["worker_id"], "w", "{line}");
}

#[tokio::test(start_paused = true)]
async fn the_flow_is_logged_for_debugging_only() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let log = logged(echo(kind), &fake).await;
        for text in ["a task begins", "a task ended", "a task was reported"] {
            let line = line(&log, text);
            assert_eq!(line["level"], "DEBUG", "{line}");
            check_fields(&line);
        }
        let polled = line(&log, "a poll returned tasks");
        assert_eq!(
            (&polled["asked"], &polled["received"]),
            (&1.into(), &1.into())
        );
        let lines = log.json();
        let quiet = lines.iter().all(|line| line["level"] == "DEBUG");
        assert!(quiet, "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_worker_has_an_order() {
    for kind in BOTH {
        let log = Log::default();
        let _capturing = log.begin();
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let worker = echo(kind).settings(slots(1).register_task_def(true));
        let (metadata, schemas) = (FakeMetadata::new(), FakeSchemas::new());
        let runner = runner(worker, &fake).registering(metadata, schemas);
        let control = runner.control();
        let stop = async {
            until(|| !fake.reported().is_empty()).await;
            control.stop();
        };
        futures::join!(runner.run(), stop);
        let lines = log.json();
        let position = |text: &str| {
            let has = |line: &Value| {
                line["message"]
                    .as_str()
                    .is_some_and(|has| has.contains(text))
            };
            lines.iter().position(has)
        };
        let steps = [
            "worker settings",
            "registered the task definition",
            "a poll returned tasks",
            "a task begins",
            "a task ended",
            "a task was reported",
        ];
        let found = steps.map(position);
        assert!(found[0] == Some(0) && found.is_sorted(), "{}", log.text());
        assert!(found.iter().all(Option::is_some), "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_a_warning_and_a_terminal_one_an_error() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let failing = worker(kind, |_| Err(TaskFailure::new("disk full")));
        let failed = line(&logged(failing, &fake).await, "a task failed");
        assert_eq!(
            (&failed["level"], &failed["error"]),
            (&"WARN".into(), &"disk full".into())
        );
        check_fields(&failed);

        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let failing = worker(kind, |_| Err(NonRetryable::new("no such order").into()));
        let failed = line(&logged(failing, &fake).await, "will not be retried");
        assert_eq!(
            (&failed["level"], &failed["error"]),
            (&"ERROR".into(), &"no such order".into())
        );
        check_fields(&failed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_result_is_critical_and_each_attempt_is_counted() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]])
            .updates([503, 401, 403, 429].map(Update::Refused));
        let log = logged(echo(kind), &fake).await;
        for (attempt, setting) in [
            (1, "CONDUCTOR_SERVER_URL"),
            (2, "CONDUCTOR_AUTH_KEY"),
            (3, "CONDUCTOR_AUTH_KEY"),
            (4, "CONDUCTOR_SERVER_URL"),
        ] {
            let failed = line(&log, &format!("(attempt {attempt}/4): check {setting}"));
            assert_eq!(failed["level"], "ERROR");
            check_fields(&failed);
        }
        let lost = line(&log, "is lost after 4 attempts");
        assert_eq!(
            (&lost["level"], &lost["critical"]),
            (&"ERROR".into(), &true.into())
        );
        check_fields(&lost);
        assert!(log.with("a task was reported").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_poll_says_which_setting_to_check() {
    for (status, level, advice) in [
        (401, "ERROR", "CONDUCTOR_AUTH_KEY"),
        (403, "ERROR", "CONDUCTOR_AUTH_SECRET"),
        (404, "WARN", "CONDUCTOR_SERVER_URL"),
        (405, "WARN", "CONDUCTOR_SERVER_URL"),
        (409, "WARN", "CONDUCTOR_SERVER_URL"),
        (429, "WARN", "CONDUCTOR_SERVER_URL"),
        (500, "WARN", "CONDUCTOR_SERVER_URL"),
        (502, "WARN", "CONDUCTOR_SERVER_URL"),
    ] {
        for kind in BOTH {
            let log = Log::default();
            let _capturing = log.begin();
            let fake = FakeTasks::refusing(status, 3);
            let runner = runner(echo(kind).settings(slots(1)), &fake);
            run_for(runner, Duration::from_secs(20)).await;
            let lines = log.with("a poll failed");
            let counts: Vec<_> = lines.iter().map(|line| line["count"].as_u64()).collect();
            assert_eq!(counts, [Some(1), Some(2), Some(3)]);
            for line in lines {
                assert_eq!(line["level"], level);
                assert!(line["message"].as_str().unwrap().contains(advice));
                assert_eq!(
                    (&line["task_type"], &line["worker_id"]),
                    (&"t".into(), &"w".into())
                );
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_names_the_setting() {
    let log = Log::default();
    let _capturing = log.begin();
    // The port was free a moment ago, and this process closed it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let configuration = Configuration::new(format!("http://{address}/api"));
    let client = Client::new(&configuration.retry(RequestRetry::NEVER)).unwrap();
    let worker = echo(BOTH[0]).settings(slots(1));
    let resolved = resolve(worker.task_type(), &worker.settings, &|_| None).unwrap();
    let events = EventDispatcher::silent();
    let mut runner = TaskRunner::with_settings(worker, client.tasks(), events, resolved);
    assert!(runner.batch_poll(1).await.is_empty());
    let failed = line(&log, "a poll failed: check CONDUCTOR_SERVER_URL");
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("the server cannot be reached"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_extended_is_a_warning() {
    for kind in BOTH {
        let long = Task {
            response_timeout_seconds: 10,
            ..task("a")
        };
        let fake = FakeTasks::returning(vec![vec![long]])
            .updates(std::iter::repeat_n(Update::Refused(500), 3));
        let gate = Gate::new();
        let end = async {
            gate.entered(1).await;
            pass(Duration::from_secs(15)).await;
            gate.open(1);
        };
        let (log, ()) = futures::join!(logged(gate.worker(kind), &fake), end);
        assert_eq!(log.with("a heartbeat failed").len(), 2);
        let warned = line(&log, "the lease of a task was not extended");
        assert_eq!(warned["level"], "WARN");
        check_fields(&warned);
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_events_are_a_warning() {
    let log = Log::default();
    let _capturing = log.begin();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let (events, dispatching) = EventDispatcher::builder()
        .register(super::results::Stuck::new(stuck))
        .start()
        .unwrap();
    let fake = FakeTasks::new();
    let mut runner = runner_with(echo(BOTH[1]).settings(slots(1)), &fake, events.clone());
    runner.run_once().await;
    while events.dropped() == 0 {
        let task_type = "t".into();
        events.publish(crate::events::TaskPaused { task_type });
    }
    let warned = line(&log, "events were dropped");
    assert_eq!(
        (&warned["level"], &warned["dropped"]),
        (&"WARN".into(), &1.into())
    );
    drop((release, runner, events));
    dispatching.ended().await;
}
