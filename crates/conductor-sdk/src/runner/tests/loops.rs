//! When a runner polls.

use std::time::Duration;

use longhaul_protocol::conductor::ResultStatus;
use tokio::time::Instant;

use super::fake::FakeTasks;
use super::{BOTH, echo, run_for, runner, slots, task};

#[tokio::test(start_paused = true)]
async fn one_iteration_polls_executes_and_reports_once() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![task("a")]]);
        let mut runner = runner(echo(kind).settings(slots(1)), &fake);
        runner.run_once().await;
        runner.drain().await;
        assert_eq!(fake.polled().len(), 1);
        let reported = fake.reported();
        assert_eq!(reported.len(), 1, "{kind:?}");
        let result = &reported[0].2;
        assert_eq!(result.status, Some(ResultStatus::Completed));
        assert_eq!(
            (&*result.task_id, &*result.workflow_instance_id),
            ("a", "workflow of a")
        );
        assert_eq!(result.worker_id.as_deref(), Some("w"));
        assert_eq!(result.output_data["id"], "a");
    }
}

#[tokio::test(start_paused = true)]
async fn empty_polls_come_later_and_later() {
    let cases = [
        (0, vec![0, 0, 0, 0, 0]),
        (50, vec![1, 2, 4, 8, 16, 32, 50, 50, 50, 50, 50, 50]),
        (100, vec![1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100]),
        // The tenth wait is the interval.
        (
            5000,
            vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 5000, 5000, 5000],
        ),
    ];
    for (interval, gaps) in cases {
        for kind in BOTH {
            let fake = FakeTasks::new();
            let settings = slots(1).poll_interval(Duration::from_millis(interval));
            let mut runner = runner(echo(kind).settings(settings), &fake);
            while fake.polled().len() <= gaps.len() {
                runner.run_once().await;
            }
            assert_eq!(fake.poll_gaps(), gaps, "{kind:?}, {interval} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_the_waiting() {
    for kind in BOTH {
        let fake = FakeTasks::returning(vec![vec![], vec![], vec![], vec![task("a")]]);
        let runner = runner(echo(kind).settings(slots(1)), &fake);
        run_for(runner, Duration::from_millis(40)).await;
        // After the task the count begins again at one.
        assert_eq!(fake.poll_gaps()[..6], [1, 2, 4, 1, 1, 2], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_iteration_that_is_too_early_waits_and_polls_nothing() {
    for kind in BOTH {
        let fake = FakeTasks::new();
        let settings = slots(1).poll_interval(Duration::from_secs(5));
        let mut runner = runner(echo(kind).settings(settings), &fake);
        for wait in [1, 2, 4, 8, 16] {
            let polls = fake.polled().len();
            runner.run_once().await;
            assert_eq!(fake.polled().len(), polls + 1);
            let begun = Instant::now();
            runner.run_once().await;
            assert_eq!(fake.polled().len(), polls + 1, "{kind:?}");
            assert_eq!(begun.elapsed(), Duration::from_millis(wait), "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_an_iteration_waits_a_tenth_of_a_second_at_a_time() {
    for status in [401, 403, 500] {
        for kind in BOTH {
            let fake = FakeTasks::refusing(status, 1);
            let mut runner = runner(echo(kind).settings(slots(1)), &fake);
            runner.run_once().await;
            for _ in 0..20 {
                let begun = Instant::now();
                runner.run_once().await;
                assert_eq!(begun.elapsed(), Duration::from_millis(100), "{kind:?}");
                assert_eq!(fake.polled().len(), 1);
            }
            runner.run_once().await;
            assert_eq!(fake.polled().len(), 2, "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_polls_back_off_up_to_a_minute_and_others_to_two() {
    for (status, gaps) in [
        (401, [2, 4, 8, 16, 32, 60, 60]),
        (403, [2, 4, 8, 16, 32, 60, 60]),
        (500, [2, 4, 8, 16, 32, 64, 120]),
        (404, [2, 4, 8, 16, 32, 64, 120]),
        (405, [2, 4, 8, 16, 32, 64, 120]),
        (409, [2, 4, 8, 16, 32, 64, 120]),
        (429, [2, 4, 8, 16, 32, 64, 120]),
        (502, [2, 4, 8, 16, 32, 64, 120]),
    ] {
        for kind in BOTH {
            let fake = FakeTasks::refusing(status, 8);
            let runner = runner(echo(kind).settings(slots(1)), &fake);
            run_for(runner, Duration::from_secs(500)).await;
            let seconds: Vec<_> = fake
                .poll_gaps()
                .iter()
                .take(7)
                .map(|gap| gap / 1000)
                .collect();
            assert_eq!(seconds, gaps, "{status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_forgets_the_failures() {
    for status in [401, 403, 500, 429] {
        for kind in BOTH {
            let fake = FakeTasks::refusing(status, 3);
            fake.push_poll(Ok(Vec::new()));
            fake.push_poll(Err(status));
            let runner = runner(echo(kind).settings(slots(1)), &fake);
            run_for(runner, Duration::from_secs(20)).await;
            let gaps = fake.poll_gaps();
            assert_eq!(gaps[..5], [2000, 4000, 8000, 1, 2000], "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_runner_makes_no_request_until_it_is_resumed() {
    for kind in BOTH {
        let fake = FakeTasks::new();
        let runner = runner(echo(kind).settings(slots(1).paused(true)), &fake);
        let control = runner.control();
        let runner = run_for(runner, Duration::from_secs(60)).await;
        assert!(fake.polled().is_empty());
        control.resume();
        let runner = run_for(runner, Duration::from_millis(1)).await;
        assert!(!fake.polled().is_empty());
        control.pause();
        let before = fake.polled().len();
        run_for(runner, Duration::from_secs(1)).await;
        assert_eq!(fake.polled().len(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_names_worker_domain_and_timeout() {
    for kind in BOTH {
        for (domain, shown) in [(None, None), (Some(""), None), (Some("eu"), Some("eu"))] {
            let fake = FakeTasks::new();
            let mut settings = slots(3).poll_timeout(Duration::from_millis(250));
            if let Some(domain) = domain {
                settings = settings.domain(domain);
            }
            let mut runner = runner(echo(kind).settings(settings), &fake);
            runner.run_once().await;
            let (_, poll) = &fake.polled()[0];
            assert_eq!(
                poll.shown(),
                ("t", Some("w"), shown, 3, Duration::from_millis(250))
            );
        }
    }
}
