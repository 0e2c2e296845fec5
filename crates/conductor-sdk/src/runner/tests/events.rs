//! The data of each event, compared with what the server of the test saw and with a clock that jumps.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::fake::{FakeTasks, Update};
use super::gate::Gate;
use super::{BOTH, echo, run_for, runner_with, slots, task, worker};
use crate::events::{
    EventDispatcher, PollCompleted, PollFailure, PollStarted, TaskExecutionCompleted,
    TaskExecutionFailure, TaskExecutionStarted, TaskPaused, TaskRunnerEventsListener,
    TaskUpdateCompleted, TaskUpdateError, TaskUpdateFailure,
};
use crate::metrics::{MetricsCollector, Surface};
use crate::worker::{AnyWorker, TaskFailure};

/// Writes down every event with all its data, and when it was published.
#[derive(Clone, Default)]
struct Scribe(Arc<Mutex<Vec<(String, SystemTime)>>>);

impl Scribe {
    fn write(&self, text: String, at: SystemTime) {
        self.0.lock().push((text, at));
    }

    fn texts(&self) -> Vec<String> {
        let written = self.0.lock();
        written.iter().map(|(text, _)| text.clone()).collect()
    }
}

/// The data that all events about a task have.
macro_rules! about {
    ($event:ident) => {
        format!(
            "{} {} {} of {}",
            $event.task_type, $event.task_id, $event.worker_id, $event.workflow_instance_id
        )
    };
}

impl TaskRunnerEventsListener for Scribe {
    fn on_poll_started(&self, event: &PollStarted, at: SystemTime) {
        let (task_type, worker) = (&event.task_type, &event.worker_id);
        self.write(
            format!("poll {task_type} {worker} {}", event.poll_count),
            at,
        );
    }

    fn on_poll_completed(&self, event: &PollCompleted, at: SystemTime) {
        let (task_type, took) = (&event.task_type, event.duration);
        self.write(
            format!("polled {task_type} {} {took:?}", event.tasks_received),
            at,
        );
    }

    fn on_poll_failure(&self, event: &PollFailure, at: SystemTime) {
        let status = event.cause.refusal().map(|refusal| refusal.status());
        let (task_type, took) = (&event.task_type, event.duration);
        self.write(format!("poll failed {task_type} {status:?} {took:?}"), at);
    }

    fn on_task_execution_started(&self, event: &TaskExecutionStarted, at: SystemTime) {
        self.write(format!("began {}", about!(event)), at);
    }

    fn on_task_execution_completed(&self, event: &TaskExecutionCompleted, at: SystemTime) {
        let (took, bytes) = (event.duration, event.output_size_bytes);
        self.write(
            format!("ended {} {took:?} {bytes} bytes", about!(event)),
            at,
        );
    }

    fn on_task_execution_failure(&self, event: &TaskExecutionFailure, at: SystemTime) {
        let (took, cause) = (event.duration, &event.cause);
        self.write(format!("failed {} {took:?} {cause}", about!(event)), at);
    }

    fn on_task_update_failure(&self, event: &TaskUpdateFailure, at: SystemTime) {
        let (took, count) = (event.duration, event.retry_count);
        self.write(format!("lost {} {took:?} {count}", about!(event)), at);
    }

    fn on_task_update_error(&self, event: &TaskUpdateError, at: SystemTime) {
        let (task_id, attempt) = (&event.task_id, event.attempt);
        self.write(
            format!("report failed {} {task_id} {attempt}", event.task_type),
            at,
        );
    }

    fn on_task_update_completed(&self, event: &TaskUpdateCompleted, at: SystemTime) {
        self.write(
            format!("reported {} {:?}", about!(event), event.duration),
            at,
        );
    }

    fn on_task_paused(&self, event: &TaskPaused, at: SystemTime) {
        self.write(format!("paused {}", event.task_type), at);
    }
}

/// Runs one iteration and returns its events.
async fn events_of(worker: AnyWorker, fake: &FakeTasks) -> Vec<String> {
    let scribe = Scribe::default();
    let (events, dispatching) = EventDispatcher::builder()
        .register(scribe.clone())
        .start()
        .unwrap();
    let before = SystemTime::now();
    let mut runner = runner_with(worker.settings(slots(7)), fake, events);
    runner.run_once().await;
    runner.drain().await;
    drop(runner);
    dispatching.ended().await;
    let written = scribe.0.lock();
    let times: Vec<_> = written.iter().map(|(_, at)| *at).collect();
    assert!(times.iter().all(|at| *at >= before));
    drop(written);
    scribe.texts()
}

#[tokio::test(start_paused = true)]
async fn events_have_exact_ids_counts_and_durations() {
    for kind in BOTH {
        let gate = Gate::new();
        let fake = FakeTasks::returning(vec![vec![task("a")]])
            .slow(Duration::from_millis(40))
            .updates([Update::Broken]);
        let end = async {
            gate.entered(1).await;
            tokio::time::advance(Duration::from_millis(250)).await;
            gate.open(1);
        };
        let (events, ()) = futures::join!(events_of(gate.worker(kind), &fake), end);
        assert_eq!(
            events,
            [
                "poll t w 7",
                "polled t 1 40ms",
                "began t a w of workflow of a",
                "ended t a w of workflow of a 250ms 10 bytes",
                "report failed t a 1",
                "reported t a w of workflow of a 10.08s",
            ],
            "{kind:?}"
        );
        let (_, poll) = &fake.polled()[0];
        assert_eq!(poll.asks_for(), 7);
        // The bytes are those of the output that was reported.
        let output = &fake.reported()[0].2.output_data;
        assert_eq!(serde_json::to_vec(output).unwrap().len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_result_has_its_attempts_and_their_time() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]])
            .slow(Duration::from_millis(5))
            .updates(std::iter::repeat_n(Update::Refused(503), 4));
        let events = events_of(echo(kind), &fake).await;
        assert_eq!(
            events[4..],
            [
                "report failed t a 1",
                "report failed t a 2",
                "report failed t a 3",
                "report failed t a 4",
                "lost t a w of workflow of a 60.02s 4",
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_polls_and_tasks_have_their_cause() {
    for kind in BOTH {
        let fake = FakeTasks::refusing(403, 1).slow(Duration::from_millis(40));
        assert_eq!(
            events_of(echo(kind), &fake).await,
            ["poll t w 7", "poll failed t Some(403) 40ms"]
        );
        let fake = FakeTasks::new();
        let empty = events_of(echo(kind), &fake).await;
        assert_eq!(empty, ["poll t w 7", "polled t 0 0ns"]);

        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let failing = worker(kind, |_| Err(TaskFailure::new("disk full")));
        let events = events_of(failing, &fake).await;
        assert!(events[3].starts_with("failed t a w of workflow of a "));
        assert!(events[3].ends_with(" disk full"));
        assert_eq!(events.len(), 5, "no other end is published: {events:?}");
    }
}

/// Listens to pauses only.
struct Pauses(&'static str, Scribe);

impl TaskRunnerEventsListener for Pauses {
    fn on_task_paused(&self, event: &TaskPaused, at: SystemTime) {
        self.1.write(format!("{} {}", self.0, event.task_type), at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_gets_the_events_it_implements_in_the_order_of_registration() {
    for kind in BOTH {
        let scribe = Scribe::default();
        let (events, dispatching) = EventDispatcher::builder()
            .register(Pauses("first", scribe.clone()))
            .register(Pauses("second", scribe.clone()))
            .register(Pauses("third", scribe.clone()))
            .start()
            .unwrap();
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let runner = runner_with(echo(kind).settings(slots(1)), &fake, events);
        let control = runner.control();
        let runner = run_for(runner, Duration::from_millis(50)).await;
        assert_eq!(scribe.texts().len(), 0);
        control.pause();
        let mut runner = runner;
        runner.run_once().await;
        drop(runner);
        dispatching.ended().await;
        assert_eq!(scribe.texts(), ["first t", "second t", "third t"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_metrics_of_a_runner_are_what_the_server_saw() {
    for kind in BOTH {
        let metrics = MetricsCollector::new(Surface::Guide);
        let (events, dispatching) = EventDispatcher::builder()
            .register(metrics.clone())
            .start()
            .unwrap();
        let fake = FakeTasks::returning(vec![vec![task("a"), task("b")]])
            .without_update_v2()
            .updates(std::iter::repeat_n(Update::Refused(503), 4 + 3));
        let runner = runner_with(echo(kind).settings(slots(1)), &fake, events);
        let runner = run_for(runner, Duration::from_secs(200)).await;
        drop(runner);
        dispatching.ended().await;
        let text = metrics.render();
        let polls = fake.polled().len();
        for line in [
            format!("task_poll_total{{taskType=\"t\"}} {polls}"),
            "task_execution_started_total{taskType=\"t\"} 2".to_owned(),
            "task_update_error_total{taskType=\"t\",exception=\"Refused503\"} 7".to_owned(),
            "task_update_failed_total{taskType=\"t\"} 1".to_owned(),
            "task_update_time_seconds_count{taskType=\"t\"} 1".to_owned(),
            "active_workers{taskType=\"t\"} 0".to_owned(),
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }
}
