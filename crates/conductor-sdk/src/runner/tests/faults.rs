//! What fails outside of the function of a worker: the server, the registration, the listeners. The worker goes on.

use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use longhaul_protocol::conductor::ResultStatus;
use longhaul_transport::{Request, RequestRetry, Response, Transport, TransportError};
use tokio::time::Instant;

use super::fake::{FakeTasks, Update};
use super::{BOTH, echo, run_for, runner, runner_with, slots, task, worker};
use crate::client::Client;
use crate::configuration::Configuration;
use crate::events::{
    EventDispatcher, PollCompleted, PollFailure, PollStarted, TaskExecutionCompleted,
    TaskExecutionFailure, TaskRunnerEventsListener, TaskUpdateError,
};
use crate::worker::{NonRetryable, Outcome, TaskFailure};

/// A server that cannot be reached.
#[derive(Debug)]
struct Down;

impl Transport for Down {
    fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(async { Err(TransportError::Unreachable("refused".to_owned())) })
    }
}

/// Panics at every event.
struct Broken;

impl TaskRunnerEventsListener for Broken {
    fn on_poll_started(&self, _: &PollStarted, _: SystemTime) {
        panic!("a listener of the test panics");
    }
    fn on_poll_completed(&self, _: &PollCompleted, _: SystemTime) {
        panic!("a listener of the test panics");
    }
    fn on_poll_failure(&self, _: &PollFailure, _: SystemTime) {
        panic!("a listener of the test panics");
    }
    fn on_task_execution_completed(&self, _: &TaskExecutionCompleted, _: SystemTime) {
        panic!("a listener of the test panics");
    }
    fn on_task_execution_failure(&self, _: &TaskExecutionFailure, _: SystemTime) {
        panic!("a listener of the test panics");
    }
    fn on_task_update_error(&self, _: &TaskUpdateError, _: SystemTime) {
        panic!("a listener of the test panics");
    }
}

#[tokio::test(start_paused = true)]
async fn no_fault_ends_the_worker() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![
            task("panic"),
            task("error"),
            task("terminal"),
            task("lost"),
        ]])
        .updates([Update::Broken, Update::Refused(500), Update::Refused(401)]);
        for status in [500, 401, 403, 404, 429, 502] {
            fake.push_poll(Err(status));
        }
        fake.push_poll(Ok(vec![task("last")]));
        let worker = worker(kind, |input| match input["id"].as_str() {
            Some("panic") => panic!("a function of the test panics"),
            Some("error") => Err(TaskFailure::new("no")),
            Some("terminal") => Err(NonRetryable::new("never").into()),
            Some(_) | None => Outcome::output(&input),
        });
        let (events, dispatching) = EventDispatcher::builder().register(Broken).start().unwrap();
        let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
        let down = Client::over(&configuration, Down);
        let settings = slots(4).register_task_def(true);
        let runner = runner_with(worker.settings(settings), &fake, events)
            .registering(down.metadata(), down.schemas());
        let control = runner.control();
        let running = tokio::spawn(runner.run());
        let begun = Instant::now();
        let reported = |id: &str, status| {
            let reported = fake.reported();
            let mut results = reported.iter().map(|(_, _, result)| result);
            results.any(|result| result.task_id == id && result.status == Some(status))
        };
        while !reported("last", ResultStatus::Completed) {
            assert!(begun.elapsed() < Duration::from_secs(600), "{kind:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        for (id, status) in [
            ("panic", ResultStatus::Failed),
            ("error", ResultStatus::Failed),
            ("terminal", ResultStatus::FailedWithTerminalError),
            ("lost", ResultStatus::Completed),
        ] {
            assert!(reported(id, status), "{kind:?}: {id}");
        }
        let polls = fake.polled().len();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(fake.polled().len() > polls, "the worker still polls");
        control.stop();
        running.await.unwrap();
        dispatching.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_for_a_minute_gets_few_requests() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]])
            .updates(std::iter::repeat_n(Update::Broken, 3));
        for _ in 0..5 {
            fake.push_poll(Err(503));
        }
        let runner = runner(echo(kind).settings(slots(2)), &fake);
        let runner = run_for(runner, Duration::from_secs(60)).await;
        // The poll with the task, then one at once and after 2, 4, 8 and 16 seconds. The next one comes after 32.
        assert_eq!(fake.polled().len(), 6, "{kind:?}");
        let polled: Vec<_> = fake.polled().iter().map(|(at, _)| at / 1000).collect();
        assert_eq!(polled, [0, 0, 2, 6, 14, 30]);
        assert!(fake.reported().len() <= 4, "{:?}", fake.reported());
        // It is back: the result arrives with the last attempt, and the polls go on.
        run_for(runner, Duration::from_secs(10)).await;
        let reported: Vec<_> = fake.reported().iter().map(|(at, _, _)| at / 1000).collect();
        assert_eq!(reported, [0, 10, 30, 60]);
        assert!(fake.polled().len() > 10);
    }
}
