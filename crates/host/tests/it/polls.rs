//! Long polls: which poll gets which task, and when.

use longhaul_host::{Error, Polled};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{TaskQueue, WorkerId};
use serde_json::json;

use crate::setup::{holder, leased, namespace, poll_of, register, setup};

#[tokio::test]
async fn a_waiting_poll_is_woken_by_a_start() {
    let setup = setup().await;
    let host = setup.host.clone();
    let waiting = tokio::spawn(async move {
        host.workflow_tasks()
            .poll(&poll_of("w1", None, 60), 500)
            .await
    });
    tokio::task::yield_now().await;
    setup.start("order-1").await;
    let task = leased(waiting.await.unwrap());
    assert_eq!(task.claim.spec.workflow_id.as_str(), "order-1");
    assert_eq!(task.history.events.len(), 2);
}

#[tokio::test]
async fn each_poll_gets_one_task_and_each_task_goes_to_one_poll() {
    let setup = setup().await;
    setup.start("order-1").await;
    setup.start("order-2").await;
    let first = setup.task().await;
    let second = setup.task().await;
    assert_ne!(first.claim.task_id, second.claim.task_id);
    assert!(!setup.has_task().await);
}

#[tokio::test]
async fn an_abandoned_poll_takes_no_task() {
    let setup = setup().await;
    let host = setup.host.clone();
    let gone = tokio::spawn(async move {
        host.workflow_tasks()
            .poll(&poll_of("w1", None, 60), 500)
            .await
    });
    tokio::task::yield_now().await;
    gone.abort();
    let _ = gone.await;
    setup.start("order-1").await;
    assert!(setup.has_task().await);
}

#[tokio::test]
async fn a_repeated_poll_gets_the_same_lease() {
    let setup = setup().await;
    setup.start("order-1").await;
    setup.start("order-2").await;
    let poll = poll_of("w1", Some("p1"), 30);
    let first = leased(setup.host.workflow_tasks().poll(&poll, 500).await);
    let again = leased(setup.host.workflow_tasks().poll(&poll, 500).await);
    assert_eq!(first.claim.task_id, again.claim.task_id);
    assert_eq!(first.claim.attempt, again.claim.attempt);
    assert_eq!(first.claim.lease_expires_at, again.claim.lease_expires_at);
    setup
        .complete(&first, json!([{"type": "complete_workflow"}]))
        .await;
    let next = leased(setup.host.workflow_tasks().poll(&poll, 500).await);
    assert_ne!(
        next.claim.task_id, first.claim.task_id,
        "after the lease ends, the id belongs to a new poll"
    );
}

#[tokio::test]
async fn simultaneous_polls_with_one_id_get_the_same_reply() {
    let setup = setup().await;
    let poll = |host: longhaul_host::Host| {
        tokio::spawn(async move {
            host.workflow_tasks()
                .poll(&poll_of("w1", Some("p1"), 60), 500)
                .await
        })
    };
    let (left, right) = (poll(setup.host.clone()), poll(setup.host.clone()));
    tokio::task::yield_now().await;
    setup.start("order-1").await;
    setup.start("order-2").await;
    let (left, right) = (leased(left.await.unwrap()), leased(right.await.unwrap()));
    assert_eq!(left.claim.task_id, right.claim.task_id);
    assert_eq!(left.claim.attempt, right.claim.attempt);
    assert!(setup.has_task().await, "the other task is still ready");
}

#[tokio::test]
async fn a_poll_must_match_its_registration() {
    let setup = setup().await;
    let host = &setup.host;
    let refused = |poll| async move {
        host.workflow_tasks()
            .poll(&poll, 500)
            .await
            .unwrap_err()
            .reason()
    };
    let mut stranger = poll_of("w1", None, 0);
    stranger.worker_id = WorkerId::from("stranger");
    assert_eq!(refused(stranger).await, Reason::WorkerNotRegistered);
    let mut elsewhere = poll_of("w1", None, 0);
    elsewhere.task_queue = TaskQueue::from("other");
    assert_eq!(refused(elsewhere).await, Reason::TaskQueueMismatch);
    let mut rebuilt = poll_of("w1", None, 0);
    rebuilt.build_id = Some("v2".to_owned());
    assert_eq!(refused(rebuilt).await, Reason::BuildIdMismatch);
}

#[tokio::test]
async fn stopping_ends_the_waiting_polls() {
    let setup = setup().await;
    let host = setup.host.clone();
    let waiting = tokio::spawn(async move {
        host.workflow_tasks()
            .poll(&poll_of("w1", None, 60), 500)
            .await
    });
    tokio::task::yield_now().await;
    setup.host.stop().await;
    assert!(matches!(waiting.await.unwrap(), Ok(Polled::Empty)));
}

#[tokio::test]
async fn the_tasks_of_a_worker_that_leaves_go_to_the_next() {
    let setup = setup().await;
    register(&setup.host, "w2").await;
    setup.start("order-1").await;
    let held = setup.task().await;
    let released = setup
        .host
        .workers()
        .deregister(&namespace(), &WorkerId::from("w1"))
        .await
        .unwrap();
    assert_eq!(released, 1);
    let taken = leased(
        setup
            .host
            .workflow_tasks()
            .poll(&poll_of("w2", None, 30), 500)
            .await,
    );
    assert_eq!(taken.claim.task_id, held.claim.task_id);
    assert_eq!(taken.claim.attempt, 2);
    let late = setup
        .host
        .workflow_tasks()
        .heartbeat(&holder(&held))
        .await
        .unwrap_err();
    assert_eq!(late.reason(), Reason::LeaseOwnerMismatch);
    let unknown = setup
        .host
        .workers()
        .deregister(&namespace(), &WorkerId::from("w1"))
        .await
        .unwrap_err();
    assert!(matches!(unknown, Error::WorkerNotRegistered(_)));
}
