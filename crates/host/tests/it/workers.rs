//! Registrations of workers that stay silent, and lists of many.

use longhaul_host::{Error, WorkerFilter};
use longhaul_protocol::id::WorkerId;
use longhaul_store::WorkerRow;

use crate::setup::{Setup, namespace, open, poll_of, register, setup};

fn all() -> WorkerFilter {
    WorkerFilter {
        task_queue: None,
        status: None,
        after: None,
        limit: 1000,
    }
}

async fn ids(setup: &Setup, filter: &WorkerFilter) -> Vec<String> {
    let page = setup
        .host
        .workers()
        .list(&namespace(), filter)
        .await
        .unwrap();
    let workers = page.workers.iter();
    workers
        .map(|worker| worker.row.worker_id.to_string())
        .collect()
}

#[tokio::test]
async fn a_worker_that_is_stale_for_an_hour_is_deleted() {
    let setup = setup().await;
    register(&setup.host, "silent").await;
    let heartbeat = async |worker: &str| {
        let (namespace, worker) = (namespace(), WorkerId::from(worker));
        let host = &setup.host;
        host.workers()
            .heartbeat(&namespace, &worker, None, None)
            .await
    };
    setup.clock.advance_seconds(60 + 3599);
    assert_eq!(setup.host.workers().remove_silent().await.unwrap(), 0);
    let stale = WorkerFilter {
        status: Some("stale".to_owned()),
        ..all()
    };
    assert_eq!(ids(&setup, &stale).await, ["silent", "w1"]);
    heartbeat("w1").await.unwrap();
    setup.clock.advance_seconds(2);
    // The sweep may have been quicker.
    setup.host.workers().remove_silent().await.unwrap();
    assert_eq!(ids(&setup, &stale).await, [""; 0]);
    assert_eq!(ids(&setup, &all()).await, ["w1"]);
    let rows = setup
        .store
        .list::<WorkerRow>(Some(&namespace()))
        .await
        .unwrap();
    assert_eq!(rows.len(), 1, "the row is gone too");
    // As for any worker that is not registered: published workers stop or wait to be restarted.
    assert!(matches!(
        heartbeat("silent").await,
        Err(Error::WorkerNotRegistered(_))
    ));
    let poll = poll_of("silent", None, 0);
    let polled = setup.host.workflow_tasks().poll(&poll, 500).await;
    assert!(matches!(polled, Err(Error::WorkerNotRegistered(_))));
}

/// A server that does not run cannot receive signs of life.
#[tokio::test]
async fn workers_are_not_deleted_for_the_downtime_of_the_server() {
    let setup = setup().await;
    setup.host.stop().await;
    setup.clock.advance_seconds(30 * 86_400);
    let host = open(&setup.store, &setup.clock).await;
    assert_eq!(host.workers().remove_silent().await.unwrap(), 0);
    let poll = poll_of("w1", None, 0);
    assert!(host.workflow_tasks().poll(&poll, 500).await.is_ok());
}

/// A test moves the clock by days while the worker waits for a task: the worker still counts as alive.
#[tokio::test]
async fn a_worker_with_a_waiting_poll_is_not_deleted() {
    let setup = setup().await;
    let host = setup.host.clone();
    let waiting = tokio::spawn(async move {
        let poll = poll_of("w1", None, 30);
        host.workflow_tasks().poll(&poll, 500).await
    });
    while setup
        .host
        .idle()
        .await
        .unwrap()
        .is_none_or(|idle| idle.polls_waiting == 0)
    {
        tokio::task::yield_now().await;
    }
    setup.clock.advance_seconds(10 * 86_400);
    assert_eq!(setup.host.workers().remove_silent().await.unwrap(), 0);
    setup.start("w").await;
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn workers_are_listed_in_pages() {
    let setup = setup().await;
    for number in 0..25 {
        register(&setup.host, &format!("x{number:02}")).await;
    }
    let mut filter = WorkerFilter { limit: 10, ..all() };
    let mut seen = Vec::new();
    loop {
        let page = setup
            .host
            .workers()
            .list(&namespace(), &filter)
            .await
            .unwrap();
        assert!(page.workers.len() <= 10);
        seen.extend(page.workers.into_iter().map(|worker| worker.row.worker_id));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 26);
    assert!(seen.is_sorted());
    let fleet = setup.host.workers().fleet(&namespace(), 5).await.unwrap();
    assert_eq!((fleet.active, fleet.workers.len()), (26, 5));
}
