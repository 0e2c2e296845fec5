//! How results are reported, and what happens if that fails.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_protocol::conductor::ResultStatus;
use parking_lot::Mutex;

use super::fake::{FakeTasks, Update};
use super::{BOTH, echo, runner, runner_with, slots, task, worker};
use crate::events::{EventDispatcher, TaskRunnerEventsListener, TaskUpdateFailure};
use crate::runner::RunnerControl;
use crate::worker::{Outcome, RunnerKind};

/// Runs one task with answers to its reports. Returns when and by which request it was reported.
async fn report(kind: RunnerKind, answers: &[Update]) -> Vec<(u128, &'static str)> {
    let fake = FakeTasks::returning(vec![vec![task("a")]]).updates(answers.to_vec());
    let mut runner = runner(echo(kind).settings(slots(1)), &fake);
    runner.run_once().await;
    runner.drain().await;
    assert_eq!(fake.polled().len(), 1);
    let reported = fake.reported().into_iter();
    reported.map(|(at, by, _)| (at, by)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_result_is_sent_four_times_with_growing_waits() {
    let at = [0, 10_000, 30_000, 60_000].map(|at| (at, "update-v2"));
    let (broken, refused) = (|| Update::Broken, Update::Refused);
    for kind in BOTH {
        for answers in [
            [broken(), refused(500), refused(409), refused(400)],
            [refused(401), refused(403), refused(429), refused(502)],
        ] {
            assert_eq!(report(kind, &answers).await, at, "{kind:?}");
        }
        // A success ends the attempts.
        for failures in 0..4 {
            let answers = vec![broken(); failures];
            assert_eq!(report(kind, &answers).await, at[..=failures], "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn plain_updates_have_the_same_attempts() {
    for kind in BOTH {
        let answers = [404, 500, 500, 500, 500].map(Update::Refused);
        let (first, plain) = ((0, "update-v2"), "tasks");
        assert_eq!(
            report(kind, &answers).await,
            // Also an update that the server does not know in the second form is no attempt.
            [
                first,
                (0, plain),
                (10_000, plain),
                (30_000, plain),
                (60_000, plain)
            ],
            "{kind:?}"
        );
        // The server loses the second form between two attempts.
        let answers = [500, 405].map(Update::Refused);
        assert_eq!(
            report(kind, &answers).await,
            [first, (10_000, "update-v2"), (10_000, plain)],
            "{kind:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_update_v2_gets_plain_updates_for_good() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")], vec![task("b")]]).without_update_v2();
        let mut runner = runner(echo(kind).settings(slots(1)), &fake);
        for _ in 0..2 {
            runner.run_once().await;
            runner.drain().await;
        }
        let reported: Vec<_> = fake
            .reported()
            .into_iter()
            .map(|(at, by, _)| (at, by))
            .collect();
        // The same result is sent again at once, and that is not a further attempt.
        assert_eq!(reported, [(0, "update-v2"), (0, "tasks"), (0, "tasks")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_gone_does_not_end_the_use_of_update_v2() {
    for kind in BOTH {
        // Four attempts, each with both requests.
        let gone = std::iter::repeat_n(Update::Refused(404), 8);
        let fake = FakeTasks::returning(vec![vec![task("gone")], vec![task("b")]]).updates(gone);
        let mut runner = runner(echo(kind).settings(slots(1)), &fake);
        for _ in 0..2 {
            runner.run_once().await;
            runner.drain().await;
        }
        let (_, by, result) = fake.reported().pop().unwrap();
        assert_eq!((by, &*result.task_id), ("update-v2", "b"), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_task_runs_in_the_same_slot_without_a_poll() {
    for kind in BOTH {
        let next = |id| Update::Next(Box::new(task(id)));
        let fake = FakeTasks::returning(vec![vec![task("a")]]).updates([next("b"), next("c")]);
        let mut runner = runner(echo(kind).settings(slots(1)), &fake);
        runner.run_once().await;
        runner.drain().await;
        let ids: Vec<_> = fake
            .reported()
            .into_iter()
            .map(|(_, _, result)| result.task_id)
            .collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert_eq!(fake.polled().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_or_paused_runner_asks_for_no_further_task() {
    for hold_back in [RunnerControl::stop, RunnerControl::pause] {
        for kind in BOTH {
            let fake = FakeTasks::returning(vec![vec![task("a")]])
                .updates([Update::Broken, Update::Next(Box::new(task("b")))]);
            let mut runner = runner(echo(kind).settings(slots(1)), &fake);
            let control = runner.control();
            runner.run_once().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            hold_back(&control);
            runner.drain().await;
            // The second attempt asks for no task.
            let by: Vec<_> = fake.reported().iter().map(|(_, by, _)| *by).collect();
            assert_eq!(by, ["update-v2", "tasks"], "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_during_a_stop_is_given_back() {
    for kind in BOTH {
        let mut begun = task("b");
        begun.output_data.insert("page".to_owned(), 3.into());
        let fake =
            FakeTasks::returning(vec![vec![task("a")]]).updates([Update::Next(Box::new(begun))]);
        let mut runner = runner(echo(kind).settings(slots(1)), &fake);
        fake.stop_at_update(runner.control());
        runner.run_once().await;
        runner.drain().await;
        let reported = fake.reported();
        assert_eq!(reported.len(), 2);
        assert_eq!((reported[0].1, &*reported[0].2.task_id), ("update-v2", "a"));
        // It is delivered again at once, with what it had.
        let (_, by, given_back) = &reported[1];
        assert_eq!((*by, &*given_back.task_id), ("tasks", "b"));
        assert_eq!(given_back.status, Some(ResultStatus::InProgress));
        assert_eq!(given_back.callback_after_seconds, 0);
        assert_eq!(given_back.output_data["page"], 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_in_progress_is_reported() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let progress = crate::worker::TaskInProgress::after(Duration::from_millis(29_001));
        let progress = progress.output("page", 3);
        let worker = worker(kind, move |_| Ok(Outcome::from(progress.clone())));
        let mut runner = runner(worker.settings(slots(1)), &fake);
        runner.run_once().await;
        runner.drain().await;
        let (_, _, result) = &fake.reported()[0];
        assert_eq!(result.status, Some(ResultStatus::InProgress));
        assert_eq!(result.callback_after_seconds, 30);
        assert_eq!(result.output_data["page"], 3);
    }
}

/// Keeps lost results.
#[derive(Clone, Default)]
struct Lost(Arc<Mutex<Vec<TaskUpdateFailure>>>);

impl TaskRunnerEventsListener for Lost {
    fn on_task_update_failure(&self, event: &TaskUpdateFailure, _at: SystemTime) {
        self.0.lock().push(event.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_result_is_published_for_recovery_and_the_worker_goes_on() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")], vec![task("b")]])
            .updates(std::iter::repeat_n(Update::Refused(503), 4));
        let lost = Lost::default();
        let (events, dispatching) = EventDispatcher::builder()
            .register(lost.clone())
            .start()
            .unwrap();
        let mut runner = runner_with(echo(kind).settings(slots(1)), &fake, events);
        for _ in 0..2 {
            runner.run_once().await;
            runner.drain().await;
        }
        drop(runner);
        dispatching.ended().await;
        let lost = lost.0.lock();
        assert_eq!(lost.len(), 1);
        assert_eq!((lost[0].retry_count, &*lost[0].task_id), (4, "a"));
        assert_eq!(lost[0].task_result.output_data["id"], "a");
        let last = fake.reported().pop().unwrap();
        assert_eq!(last.2.task_id, "b");
    }
}
