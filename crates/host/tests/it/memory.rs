//! The memory of the host is bounded, whatever clients send.

use std::sync::Arc;

use longhaul_host::clock::ManualClock;
use longhaul_host::{Config, Host};
use longhaul_protocol::Payload;
use longhaul_protocol::id::TaskQueue;
use longhaul_protocol::payload::Value;
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use serde_json::json;

use crate::setup::{Setup, leased, poll_of, register, setup, start_of};

const MEBIBYTE: u64 = 1 << 20;

async fn with_cache(run_cache_bytes: u64) -> Setup {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let config = Config {
        run_cache_bytes,
        ..Config::default()
    };
    let host = Host::start_with_clock(Arc::clone(&store), config, Arc::new(clock.clone()))
        .await
        .unwrap();
    register(&host, "w1").await;
    Setup { host, clock, store }
}

fn large(bytes: usize) -> Payload {
    let text = Value::String("x".repeat(bytes * 3 / 4));
    Payload::encode(&Value::Array(vec![text])).unwrap()
}

#[tokio::test]
async fn runs_in_memory_are_bounded_by_their_bytes() {
    let setup = with_cache(4 * MEBIBYTE).await;
    for number in 0..20 {
        let mut start = start_of(&format!("w{number}"));
        start.arguments = large(500_000);
        setup.host.workflows().start(start).await.unwrap();
        let (_, bytes) = setup.host.cached_runs();
        assert!(bytes <= 4 * MEBIBYTE, "{bytes} after {number}");
    }
    let (runs, bytes) = setup.host.cached_runs();
    assert!((3..10).contains(&runs), "{runs}");
    assert!(bytes >= 500_000 * runs as u64, "{bytes}");
    // Dropped runs are read again.
    for _ in 0..20 {
        let task = setup.task().await;
        assert!(task.claim.spec.arguments.blob().len() > 400_000);
        setup
            .complete(
                &task,
                json!([{"type": "complete_workflow", "result": null}]),
            )
            .await;
    }
    assert!(!setup.has_task().await);
}

/// The weight of a run grows with its signals and shrinks when they are gone.
#[tokio::test]
async fn the_weight_of_a_run_follows_its_size() {
    let setup = with_cache(64 * MEBIBYTE).await;
    setup.start("w").await;
    let before = setup.host.cached_runs().1;
    let target = longhaul_host::CommandTarget {
        namespace: crate::setup::namespace(),
        workflow_id: "w".into(),
        run_id: None,
        request_id: None,
        principal: None,
        context: None,
    };
    let memo = large(200_000);
    let task = setup.task().await;
    let set = json!([{
        "type": "open_condition_wait",
        "condition_key": "k".repeat(200),
    }]);
    setup.complete(&task, set).await;
    for _ in 0..4 {
        let workflows = setup.host.workflows();
        workflows.signal(&target, "go", memo.clone()).await.unwrap();
    }
    let grown = setup.host.cached_runs().1;
    // The rules decide what a signal keeps in the run; this test checks that its weight is complete.
    let fresh = Host::start_with_clock(
        Arc::clone(&setup.store),
        Config::default(),
        Arc::new(setup.clock.clone()),
    );
    let fresh = fresh.await.unwrap();
    fresh
        .workflows()
        .run(&target.namespace, &target.workflow_id, None)
        .await
        .unwrap();
    let read = fresh.cached_runs().1;
    assert!(read.abs_diff(grown) < 2000, "{read} and {grown}");
    assert!(grown > before, "{grown} and {before}");
    setup
        .host
        .workflows()
        .stop(
            &target,
            longhaul_engine::run::message::external::Stop::Terminate,
            None,
        )
        .await
        .unwrap();
    let closed = setup.host.cached_runs().1;
    assert!(closed < before + 10_000, "{closed} and {before}");
}

/// No poll waits at these queues, and their ready tasks are done.
#[tokio::test]
async fn idle_queues_are_removed() {
    let setup = setup().await;
    for number in 0..3000 {
        let mut start = start_of(&format!("w{number}"));
        start.task_queue = TaskQueue::from(format!("queue-{number}"));
        setup.host.workflows().start(start).await.unwrap();
        let target = longhaul_host::CommandTarget {
            namespace: crate::setup::namespace(),
            workflow_id: format!("w{number}").into(),
            run_id: None,
            request_id: None,
            principal: None,
            context: None,
        };
        setup
            .host
            .workflows()
            .stop(
                &target,
                longhaul_engine::run::message::external::Stop::Terminate,
                None,
            )
            .await
            .unwrap();
    }
    // After a minute only their names are left, and the next check removes those.
    setup.clock.advance_seconds(61);
    for number in 0..4000 {
        setup.start(&format!("other-{number}")).await;
    }
    let (queues, tasks) = setup.host.queues_in_memory();
    assert!(queues < 100, "{queues}");
    assert_eq!(tasks, 4000);
}

/// More ready tasks than memory can hold stay in the store, and polls find them there.
#[tokio::test]
async fn ready_tasks_beyond_memory_are_found_in_the_store() {
    let setup = setup().await;
    let long = "t".repeat(200);
    let runs = 40_000;
    for number in 0..runs {
        let mut start = start_of(&format!("w{number}"));
        start.task_queue = TaskQueue::from(format!("queue-{number}"));
        start.workflow_type = format!("{long}-{number}");
        setup.host.workflows().start(start).await.unwrap();
    }
    let (queues, tasks) = setup.host.queues_in_memory();
    assert!(queues < 25_000, "{queues}");
    assert!(tasks < 25_000, "{tasks}");
    // The newest of them cannot be in memory.
    for number in [runs - 1, runs - 2, 0] {
        let worker = format!("worker-{number}");
        let mut registration = crate::setup::registration(&worker);
        registration.task_queue = TaskQueue::from(format!("queue-{number}"));
        setup.host.workers().register(registration).await.unwrap();
        let mut poll = poll_of(&worker, None, 30);
        poll.task_queue = TaskQueue::from(format!("queue-{number}"));
        let task = leased(setup.host.workflow_tasks().poll(&poll, 500).await);
        assert_eq!(task.claim.spec.workflow_id.as_str(), format!("w{number}"));
        let commands = json!([{"type": "complete_workflow", "result": null}]);
        setup.complete(&task, commands).await;
    }
}
