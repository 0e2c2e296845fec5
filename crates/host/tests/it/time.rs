//! Effects of a moving clock.

use longhaul_host::Polled;
use longhaul_host::api::Completion;
use longhaul_protocol::{Payload, Reason};
use serde_json::json;

use crate::setup::{holder, poll_of, report, setup};

#[tokio::test]
async fn a_timer_fires_when_its_time_has_come_and_not_before() {
    let setup = setup().await;
    setup.start("order-1").await;
    let task = setup.task().await;
    setup
        .complete(&task, json!([{"type": "start_timer", "delay_seconds": 60}]))
        .await;
    setup.clock.advance_seconds(59);
    assert!(!setup.has_task().await);
    setup.clock.advance_seconds(1);
    let woken = setup.task().await;
    assert_eq!(
        woken.claim.resume.workflow_wait_kind.as_deref(),
        Some("timer")
    );
}

#[tokio::test]
async fn the_task_of_a_lost_lease_goes_to_the_next_poll() {
    let setup = setup().await;
    setup.start("order-1").await;
    let lost = setup.task().await;
    setup.clock.advance_seconds(300);
    let again = setup.task().await;
    assert_eq!(again.claim.task_id, lost.claim.task_id);
    assert_eq!(again.claim.attempt, 2);
    let late = setup
        .host
        .workflow_tasks()
        .complete(&holder(&lost), Completion::default())
        .await
        .unwrap_err();
    assert_eq!(late.reason(), Reason::WorkflowTaskAttemptMismatch);
}

#[tokio::test]
async fn a_failed_activity_is_ready_again_after_its_back_off() {
    let setup = setup().await;
    setup.start("order-1").await;
    let task = setup.task().await;
    let activity = json!([{"type": "schedule_activity", "activity_type": "charge",
        "retry_policy": {"max_attempts": 2, "backoff_seconds": [10]}}]);
    setup.complete(&task, activity).await;
    let first = setup.activity().await;
    let failure = longhaul_engine::run::activity::report::Failure {
        message: "no".into(),
        ..Default::default()
    };
    setup
        .host
        .activity_tasks()
        .fail(&report(&first), failure)
        .await
        .unwrap();
    let early = setup
        .host
        .activity_tasks()
        .poll(&poll_of("w1", None, 0))
        .await
        .unwrap();
    assert!(matches!(early, Polled::Empty));
    setup.clock.advance_seconds(10);
    let second = setup.activity().await;
    assert_eq!(second.attempt.number, 2);
    setup
        .host
        .activity_tasks()
        .complete(&report(&second), Payload::null())
        .await
        .unwrap();
    assert!(setup.has_task().await);
}

#[tokio::test]
async fn a_run_ends_at_its_deadline_without_a_request() {
    let setup = setup().await;
    let mut start = crate::setup::start_of("order-1");
    start.run_timeout_seconds = Some(60);
    let started = setup.host.workflows().start(start).await.unwrap();
    let request = longhaul_host::HistoryRequest {
        namespace: crate::setup::namespace(),
        workflow_id: "order-1".into(),
        run_id: started.run_id,
        after: 2.into(),
        page_size: 10,
        wait: std::time::Duration::from_secs(60),
        until_closed: false,
    };
    let host = setup.host.clone();
    let waiting = tokio::spawn(async move { host.workflows().history(&request).await });
    tokio::task::yield_now().await;
    setup.clock.advance_seconds(60);
    let page = waiting.await.unwrap().unwrap();
    assert_eq!(page.events[0].event_type, "WorkflowTimedOut");
}

#[tokio::test]
async fn a_heartbeat_keeps_the_lease_of_a_task() {
    let setup = setup().await;
    setup.start("order-1").await;
    let task = setup.task().await;
    setup.clock.advance_seconds(299);
    setup
        .host
        .workflow_tasks()
        .heartbeat(&holder(&task))
        .await
        .unwrap();
    setup.clock.advance_seconds(299);
    setup
        .complete(&task, json!([{"type": "complete_workflow"}]))
        .await;
    let after = setup
        .host
        .workflow_tasks()
        .poll(&poll_of("w1", None, 0), 500)
        .await;
    assert!(matches!(after, Ok(Polled::Empty)));
}
