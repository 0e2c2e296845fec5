//! Heartbeats while a function runs.

use std::time::Duration;

use longhaul_protocol::conductor::{ResultStatus, Task, TaskResult};

use super::fake::{FakeTasks, Update};
use super::gate::{Gate, pass};
use super::{BOTH, runner, slots, task};
use crate::settings::CodeSettings;
use crate::worker::RunnerKind;

fn long() -> Task {
    Task {
        response_timeout_seconds: 10,
        ..task("long")
    }
}

/// Runs a task for some seconds. Returns the reports, and the number of those that came before its end.
async fn run(
    kind: RunnerKind,
    settings: CodeSettings,
    task: Task,
    seconds: u64,
    updates: Vec<Update>,
) -> (Vec<(u128, &'static str, TaskResult)>, usize) {
    let fake = FakeTasks::returning(vec![vec![task]]).updates(updates);
    let gate = Gate::new();
    let mut runner = runner(gate.worker(kind).settings(settings), &fake);
    runner.run_once().await;
    gate.entered(1).await;
    pass(Duration::from_secs(seconds)).await;
    let before = fake.reported().len();
    gate.open(1);
    runner.drain().await;
    // Nothing keeps the lease after the end.
    pass(Duration::from_secs(60)).await;
    (fake.reported(), before)
}

fn extending() -> CodeSettings {
    slots(1).lease_extend_enabled(true)
}

#[tokio::test(start_paused = true)]
async fn leases_are_extended_at_four_fifths_while_the_function_runs() {
    for kind in BOTH {
        let (reports, before) = run(kind, extending(), long(), 30, Vec::new()).await;
        assert_eq!((before, reports.len()), (3, 4), "{kind:?}");
        for (report, millis) in reports.iter().zip([8000, 16_000, 24_000]) {
            let (at, by, heartbeat) = report;
            assert_eq!((*at, *by), (millis, "tasks"), "{kind:?}");
            assert_eq!(heartbeat.status, Some(ResultStatus::InProgress));
            assert!(heartbeat.extend_lease);
            assert_eq!(
                (&*heartbeat.task_id, &*heartbeat.workflow_instance_id),
                ("long", "workflow of long")
            );
            assert!(heartbeat.output_data.is_empty() && heartbeat.logs.is_empty());
        }
        let (_, by, result) = &reports[3];
        assert_eq!((*by, result.extend_lease), ("update-v2", false));
    }
}

#[tokio::test(start_paused = true)]
async fn leases_are_not_extended_unless_that_is_asked_for_and_useful() {
    for kind in BOTH {
        let short = |seconds| Task {
            response_timeout_seconds: seconds,
            ..task("short")
        };
        for (settings, task) in [
            (slots(1), long()),
            (extending(), short(0)),
            (extending(), short(1)),
        ] {
            let (reports, before) = run(kind, settings, task, 30, Vec::new()).await;
            assert_eq!((before, reports.len()), (0, 1), "{kind:?}");
        }
        // The shortest lease that is extended.
        let (_, before) = run(kind, extending(), short(2), 4, Vec::new()).await;
        assert_eq!(before, 2, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_fails_is_sent_three_times() {
    for kind in BOTH {
        let updates = vec![Update::Broken, Update::Refused(500), Update::Refused(401)];
        let (reports, before) = run(kind, extending(), long(), 20, updates).await;
        let at: Vec<_> = reports.iter().map(|(at, _, _)| *at).collect();
        // The next one comes after a whole interval.
        assert_eq!(at[..before], [8000, 9000, 10_500, 18_500], "{kind:?}");
        // The task ends as if nothing had happened.
        let (_, _, result) = reports.last().unwrap();
        assert_eq!(result.status, Some(ResultStatus::Completed));
    }
}
