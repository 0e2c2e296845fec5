//! Worker sessions: handles, limits, lost holders, parallel groups, replay by another worker, a killed server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use durable_workflow::{ParallelOperation, Value, Worker, WorkerSessionOptions, json};
use tokio::sync::Semaphore;

use crate::harness::{ServerOptions, eventually};
use crate::rust_sdk::fixture::{Fixture, RunningWorker, new_worker, result};

/// A worker that takes part in sessions and has what they require.
fn session_worker(fixture: &Fixture, id: &str) -> Worker {
    new_worker(fixture.client.clone(), id)
        .worker_sessions(true)
        .capabilities(["gpu:a100"])
}

fn options(id: &str) -> WorkerSessionOptions {
    WorkerSessionOptions::new(id).requirements(["gpu:a100"])
}

/// The session as an operator sees it.
async fn seen(fixture: &Fixture, id: &str) -> Option<Value> {
    let path = format!("/worker-sessions/{id}");
    let (status, body) = fixture.server.control().get(&path).await;
    (status == 200).then(|| body["session"].clone())
}

/// Waits until the session has that status.
async fn with_status(fixture: &Fixture, id: &str, status: &str) -> Value {
    eventually(&format!("session {id} is {status}"), || async {
        let session = seen(fixture, id).await;
        session.filter(|session| session["status"] == status)
    })
    .await
}

/// An activity that returns the worker it ran in.
fn register_where(worker: &mut Worker, id: &'static str) {
    worker.register_activity("where", move |context, _| async move {
        let session = context.worker_session().expect("it runs in a session");
        assert!(session.active());
        Ok(json!(id))
    });
}

fn register_steps(worker: &mut Worker, options: WorkerSessionOptions) {
    worker.register_workflow("steps", move |context, _| {
        let options = options.clone();
        async move {
            let mut trail = Vec::new();
            for _ in 0..3 {
                let call = context.activity("where", json!([]));
                trail.push(call.in_worker_session(options.clone()).await?);
            }
            Ok(json!(trail))
        }
    });
}

#[tokio::test]
async fn a_handle_creates_renews_and_closes() {
    let fixture = Fixture::start().await;
    let worker = session_worker(&fixture, "worker-1");
    // The published worker makes handles only after the server has confirmed everything it registered.
    worker.register().await.expect("it is registered");
    let session = worker.worker_session(options("s")).expect("a handle");
    let created = session.create().await.expect("created");
    assert_eq!(created["outcome"], "created");
    assert!(session.active());
    let again = session.create().await.expect("used again");
    assert_eq!(again["outcome"], "reused");
    let renewed = session.renew().await.expect("renewed");
    assert_eq!(renewed["outcome"], "heartbeat_recorded");
    assert_eq!(
        renewed["session"]["ttl_expires_at"],
        created["session"]["ttl_expires_at"]
    );
    let closed = session.close("done").await.expect("closed");
    assert_eq!(closed["outcome"], "closed");
    assert_eq!(session.close("done").await.expect("closed"), closed);
    assert_eq!(seen(&fixture, "s").await.unwrap()["status"], "closed");
}

#[tokio::test]
async fn all_steps_run_in_one_worker_and_its_end_closes_the_session() {
    let fixture = Fixture::start().await;
    let mut workers = Vec::new();
    for id in ["worker-1", "worker-2", "worker-3"] {
        let mut worker = session_worker(&fixture, id);
        register_where(&mut worker, id);
        register_steps(&mut worker, options("s"));
        workers.push(RunningWorker::start(worker));
    }
    let trail = fixture.run("steps", json!([])).await;
    assert_eq!((&trail[0], &trail[0]), (&trail[1], &trail[2]), "{trail}");
    let session = seen(&fixture, "s").await.unwrap();
    assert_eq!(
        (&session["status"], &session["lease_owner"]),
        (&json!("active"), &trail[0])
    );
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(seen(&fixture, "s").await.unwrap()["status"], "closed");
}

#[tokio::test]
async fn a_parallel_group_in_one_session_runs_one_by_one() {
    let fixture = Fixture::start().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut worker = session_worker(&fixture, "worker-1");
    let counts = (Arc::clone(&now), Arc::clone(&most));
    worker.register_activity("count", move |_, arguments| {
        let (now, most) = counts.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(arguments[0].clone())
        }
    });
    worker.register_workflow("group", |context, _| async move {
        let calls = (0..10).map(|number| ParallelOperation::activity("count", json!([number])));
        let group = context.parallel(calls.collect());
        Ok(json!(group.in_worker_session(options("s")).await?.len()))
    });
    let _worker = RunningWorker::start(worker);
    assert_eq!(fixture.run("group", json!([])).await, json!(10));
    assert_eq!(most.load(Ordering::SeqCst), 1);
    let history = fixture.closed_history("group").await;
    assert_eq!(history.count("ActivityCompleted"), 10);
}

#[tokio::test]
async fn a_worker_with_one_session_slot_serves_sessions_in_turn() {
    let fixture = Fixture::start().await;
    let mut worker = session_worker(&fixture, "worker-1").max_concurrent_worker_sessions(1);
    register_where(&mut worker, "worker-1");
    worker.register_workflow("in", |context, arguments| async move {
        let id = arguments[0].as_str().unwrap().to_owned();
        let call = context.activity("where", json!([]));
        // Short, because the worker keeps a session until its lease ends.
        call.in_worker_session(options(&id).lease_seconds(1)).await
    });
    let _worker = RunningWorker::start(worker);
    let first = fixture.start_workflow("in", "w1", json!(["s1"])).await;
    let second = fixture.start_workflow("in", "w2", json!(["s2"])).await;
    assert_eq!(result(&first).await.unwrap(), json!("worker-1"));
    assert_eq!(result(&second).await.unwrap(), json!("worker-1"));
    let (one, two) = (
        seen(&fixture, "s1").await.unwrap(),
        seen(&fixture, "s2").await.unwrap(),
    );
    let (earlier, later) = if one["created_at"].as_str() < two["created_at"].as_str() {
        (one, two)
    } else {
        (two, one)
    };
    assert!(earlier["lease_expires_at"].as_str() <= later["created_at"].as_str());
}

#[tokio::test]
async fn a_lost_holder_is_replaced_and_the_absolute_end_does_not_move() {
    let fixture = Fixture::with(ServerOptions::new().lease_seconds(2)).await;
    let begun = Arc::new(Semaphore::new(0));
    let mut doomed = session_worker(&fixture, "doomed");
    let signal = Arc::clone(&begun);
    doomed.register_activity("where", move |_, _| {
        let begun = Arc::clone(&signal);
        async move {
            begun.add_permits(1);
            std::future::pending().await
        }
    });
    let mut decides = new_worker(fixture.client.clone(), "decides");
    register_steps(&mut decides, options("s").lease_seconds(1));
    let _decides = RunningWorker::start(decides);
    let running = RunningWorker::start(doomed);
    let handle = fixture.start_workflow("steps", "steps", json!([])).await;
    begun.acquire().await.unwrap().forget();
    let before = seen(&fixture, "s").await.unwrap();
    // Ends without deregistering, like a killed process.
    drop(running);
    let mut heir = session_worker(&fixture, "heir");
    register_where(&mut heir, "heir");
    let _heir = RunningWorker::start(heir);
    assert_eq!(
        result(&handle).await.unwrap(),
        json!(["heir", "heir", "heir"])
    );
    let after = seen(&fixture, "s").await.unwrap();
    assert_eq!(after["lease_owner"], "heir");
    assert_eq!(after["ttl_expires_at"], before["ttl_expires_at"]);
    assert_eq!(after["created_at"], before["created_at"]);
    let history = fixture.closed_history("steps").await;
    assert_eq!(history.count("ActivityCompleted"), 3);
    assert_eq!(history.count("ActivityStarted"), 4);
}

#[tokio::test]
async fn another_worker_replays_the_sessions_that_history_names() {
    let fixture = Fixture::with(ServerOptions::new().lease_seconds(5)).await;
    let register = |worker: &mut Worker, id: &'static str, seconds: u64| {
        register_where(worker, id);
        worker.register_workflow("replayed", move |context, _| async move {
            let session = options("s")
                .lease_seconds(seconds)
                .max_concurrent_activities(2);
            let call = context.activity("where", json!([]));
            let first = call.in_worker_session(session).await?;
            context.wait_signal("go").await?;
            Ok(first)
        });
    };
    let handle = {
        let mut worker = session_worker(&fixture, "worker-1");
        register(&mut worker, "worker-1", 60);
        let running = RunningWorker::start(worker);
        let handle = fixture
            .start_workflow("replayed", "replayed", json!([]))
            .await;
        fixture
            .wait_for_events("replayed", "SignalWaitOpened", 1)
            .await;
        running.stop().await;
        handle
    };
    fixture.signal("replayed", "go", json!([])).await;
    // Other options are other code: the run waits for code that fits.
    {
        let mut changed = session_worker(&fixture, "changed");
        register(&mut changed, "changed", 61);
        let mut running = RunningWorker::start(changed);
        eventually("the mismatch is reported", || async {
            let (_, shown) = fixture
                .server
                .control()
                .get("/workflows/replayed/debug")
                .await;
            let task = &shown["pending_workflow_tasks"][0];
            let failed =
                task["consecutive_failures"].as_u64() >= Some(1) || task["replay_blocked"] == true;
            failed.then_some(())
        })
        .await;
        let _how = running.finish().await;
    }
    let mut worker = session_worker(&fixture, "worker-2");
    register(&mut worker, "worker-2", 60);
    let _worker = RunningWorker::start(worker);
    assert_eq!(result(&handle).await.unwrap(), json!("worker-1"));
}

#[tokio::test]
async fn sessions_survive_a_killed_server() {
    let mut fixture = Fixture::with(ServerOptions::new().lease_seconds(3)).await;
    let begun = Arc::new(Semaphore::new(0));
    let mut worker = session_worker(&fixture, "worker-1");
    let signal = Arc::clone(&begun);
    worker.register_activity("where", move |_, _| {
        let begun = Arc::clone(&signal);
        async move {
            begun.add_permits(1);
            std::future::pending().await
        }
    });
    register_steps(&mut worker, options("s").lease_seconds(2));
    let mut running = RunningWorker::start(worker);
    let handle = fixture.start_workflow("steps", "steps", json!([])).await;
    begun.acquire().await.unwrap().forget();
    let before = seen(&fixture, "s").await.unwrap();
    assert_eq!(before["active_activity_count"], 1);
    fixture.server.kill().await;
    // The published worker ends with the outage.
    let _outage = running.finish().await;
    fixture.server.restart().await;
    let after = seen(&fixture, "s").await.unwrap();
    for field in [
        "session_id",
        "lease_owner",
        "ttl_expires_at",
        "created_at",
        "requirements",
    ] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let mut heir = session_worker(&fixture, "heir");
    register_where(&mut heir, "heir");
    register_steps(&mut heir, options("s").lease_seconds(2));
    let _heir = RunningWorker::start(heir);
    assert_eq!(
        result(&handle).await.unwrap(),
        json!(["heir", "heir", "heir"])
    );
    let session = with_status(&fixture, "s", "active").await;
    assert_eq!(session["ttl_expires_at"], before["ttl_expires_at"]);
    let history = fixture.closed_history("steps").await;
    assert_eq!(history.count("ActivityCompleted"), 3);
}
