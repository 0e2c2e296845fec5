//! A host stops and another starts on the same store: nothing that was confirmed is lost.

use longhaul_engine::change::TaskOutcome;
use longhaul_engine::run::state::Status;
use longhaul_protocol::Payload;
use serde_json::json;

use crate::setup::{Setup, holder, leased, open, poll_of, report, setup};

/// Opens another host on the state of the first one, without a clean stop.
async fn reopen(setup: Setup) -> Setup {
    let host = open(&setup.store, &setup.clock).await;
    Setup {
        host,
        clock: setup.clock,
        store: setup.store,
    }
}

#[tokio::test]
async fn ready_tasks_leases_timers_and_workers_survive() {
    let setup = reopen(setup().await).await;
    setup.start("order-1").await;
    let setup = reopen(setup).await;
    let task = setup.task().await;
    let setup = reopen(setup).await;
    setup.complete(&task, json!([{"type": "schedule_activity", "activity_type": "say"}, {"type": "start_timer", "delay_seconds": 5}])).await;
    let setup = reopen(setup).await;
    let activity = setup.activity().await;
    let setup = reopen(setup).await;
    setup
        .host
        .activity_tasks()
        .complete(&report(&activity), Payload::null())
        .await
        .unwrap();
    let setup = reopen(setup).await;
    let second = setup.task().await;
    setup
        .host
        .workflow_tasks()
        .fail(
            &holder(&second),
            "waiting",
            Some("WorkflowTaskWaitingForHistory"),
            None,
            None,
        )
        .await
        .unwrap();
    let setup = reopen(setup).await;
    setup.clock.advance_seconds(5);
    let third = setup.task().await;
    let outcome = setup
        .complete(&third, json!([{"type": "complete_workflow"}]))
        .await;
    let TaskOutcome::WorkflowTaskCompleted(completed) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(completed.run_status, Status::Completed);
}

#[tokio::test]
async fn work_that_became_due_during_the_downtime_happens_at_the_start() {
    let setup = setup().await;
    setup.start("order-1").await;
    let task = setup.task().await;
    setup
        .complete(&task, json!([{"type": "start_timer", "delay_seconds": 60}]))
        .await;
    setup.host.stop().await;
    setup.clock.advance_seconds(3600);
    let setup = reopen(setup).await;
    let woken = setup.task().await;
    assert_eq!(
        woken.claim.resume.workflow_event_type.as_deref(),
        Some("TimerFired")
    );
}

#[tokio::test]
async fn a_repeated_poll_after_a_restart_gets_its_lease() {
    let setup = setup().await;
    setup.start("order-1").await;
    let poll = poll_of("w1", Some("p1"), 30);
    let first = leased(setup.host.workflow_tasks().poll(&poll, 500).await);
    let setup = reopen(setup).await;
    let again = leased(setup.host.workflow_tasks().poll(&poll, 500).await);
    assert_eq!(
        (first.claim.task_id, first.claim.attempt),
        (again.claim.task_id, again.claim.attempt)
    );
}

#[tokio::test]
async fn a_repeated_report_after_a_restart_gets_the_same_reply() {
    let setup = setup().await;
    setup.start("order-1").await;
    let task = setup.task().await;
    let first = setup
        .complete(&task, json!([{"type": "complete_workflow"}]))
        .await;
    let setup = reopen(setup).await;
    let commands = crate::setup::commands(json!([{"type": "complete_workflow"}]));
    let again = setup
        .host
        .workflow_tasks()
        .complete(&holder(&task), commands)
        .await
        .unwrap();
    assert!(again.duplicate);
    assert_eq!(again.outcome, first);
}
