//! The examples of the published Rust crate, unmodified, each run according to its documentation.
//!
//! For programs that start a workflow, the tests check the output and the history. For workers, the test starts the workflow.
//! `examples/trip.rs` registers the workflows of an example that only defines them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use durable_workflow::{Client, Error, Value, Worker, WorkflowHandle, json};

use crate::harness::{Example, History, Server, eventually};
use crate::rust_sdk::fixture::{RunningWorker, result};

/// Returns the history of the closed run of a workflow.
async fn closed_history(server: &Server, workflow_id: &str) -> History {
    let runs = server.control().run_ids(workflow_id).await;
    let run = runs.last().expect("a run");
    let history = server.control().history(workflow_id, run).await;
    history.assert_sound();
    history
}

/// Returns the id of the only workflow on the server.
async fn only_workflow(server: &Server) -> String {
    let (status, page) = server.control().get("/workflows").await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(page["workflows"].as_array().map(Vec::len), Some(1));
    page["workflows"][0]["workflow_id"]
        .as_str()
        .expect("an id")
        .to_owned()
}

async fn start(server: &Server, workflow_type: &str, queue: &str, input: Value) -> WorkflowHandle {
    let client = Client::new(server.url()).expect("a client");
    let started = client
        .start_workflow(workflow_type, queue, workflow_type, input)
        .await;
    started.expect("the workflow starts")
}

#[tokio::test]
async fn hello_world() {
    let server = Server::start().await;
    let printed = Example::new("hello_world", &server)
        .await
        .environment("GREETING_NAME", "Grace")
        .run()
        .await;
    assert!(printed.contains("Hello, Grace!"), "{printed}");
    let history = closed_history(&server, &only_workflow(&server).await).await;
    assert_eq!(history.count("ActivityCompleted"), 1);
    assert_eq!(history.count("ActivityFailed"), 1);
    assert_eq!(history.types().last(), Some(&"WorkflowCompleted"));
}

#[tokio::test]
async fn activity_options() {
    let server = Server::start().await;
    let printed = Example::new("activity_options", &server).await.run().await;
    let printed: Value = serde_json::from_str(&printed).expect("it prints its result");
    assert_eq!(
        printed["retry_result"],
        json!({"attempt": 3, "status": "completed"})
    );
    assert_eq!(printed["terminal_failure"]["kind"], "Failed");
    assert!(printed["terminal_failure"]["activity_attempt_id"].is_string());
    let history = closed_history(&server, &only_workflow(&server).await).await;
    assert_eq!(history.count("ActivityRetryScheduled"), 2);
}

#[tokio::test]
async fn local_activities() {
    let server = Server::start().await;
    let printed = Example::new("local_activities", &server).await.run().await;
    let printed: Value = serde_json::from_str(&printed).expect("it prints its result");
    assert_eq!(printed, json!([{"value": 42, "local_attempt": 2}]));
    let history = closed_history(&server, &only_workflow(&server).await).await;
    assert_eq!(history.count("ActivityRetryScheduled"), 1);
    assert_eq!(history.count("ActivityHeartbeatRecorded"), 2);
    let completed = history.payloads("ActivityCompleted");
    assert_eq!(completed[0]["execution_mode"], "local");
    assert!(completed[1].get("execution_mode").is_none());
}

#[tokio::test]
async fn sticky_execution() {
    let server = Server::start().await;
    let printed = Example::new("sticky_execution", &server).await.run().await;
    let lines: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("it prints JSON"))
        .collect();
    assert_eq!(lines[0], json!({"recorded_value": 42}));
    assert!(lines[1]["hit"].as_u64() >= Some(1), "{printed}");
    let history = closed_history(&server, &only_workflow(&server).await).await;
    assert_eq!(history.count("SideEffectRecorded"), 1);
}

#[tokio::test]
async fn worker_sessions() {
    let server = Server::start().await;
    let printed = Example::new("worker_sessions", &server)
        .await
        .environment("GREETING_NAME", "Grace")
        .run()
        .await;
    let greetings: Value = serde_json::from_str(&printed).expect("it prints its result");
    assert_eq!(greetings[0]["greeting"], "Hello, Grace!");
    assert!(greetings[0]["resource_generation"].is_string(), "{printed}");
    assert_eq!(
        greetings[0]["resource_generation"],
        greetings[1]["resource_generation"]
    );
    let workflow_id = only_workflow(&server).await;
    let history = closed_history(&server, &workflow_id).await;
    assert_eq!(history.count("ActivityCompleted"), 2);
    // The worker closed the session before it left.
    let path = format!("/worker-sessions/{workflow_id}");
    let (status, shown) = server.control().get(&path).await;
    assert_eq!(
        (status, &shown["session"]["status"]),
        (200, &json!("closed"))
    );
}

#[tokio::test]
async fn memo_restart() {
    let server = Server::start().await;
    let printed = Example::new("memo_restart", &server)
        .await
        .environment("DURABLE_WORKFLOW_RUNTIME_URL", server.url())
        .run()
        .await;
    let printed: Value = serde_json::from_str(&printed).expect("it prints its result");
    assert_eq!(printed["worker_restart"], true);
    assert_eq!(printed["memo_event_count"], 1);
}

#[tokio::test]
async fn condition_search_attributes() {
    let server = Server::start().await;
    let worker = Example::new("condition_search_attributes", &server)
        .await
        .wherever_it_dials(&server)
        .spawn(&server);
    let handle = start(&server, "approve-order", "approval-workers", json!([])).await;
    handle.signal("approve", json!([])).await.expect("accepted");
    assert_eq!(
        result(&handle).await.unwrap(),
        json!({"status": "approved"})
    );
    let (_, described) = server.control().get("/workflows/approve-order").await;
    assert_eq!(
        described["search_attributes"],
        json!({"OrderStatus": "approved", "NeedsAttention": false})
    );
    worker.stop().await;
}

#[tokio::test]
async fn continue_as_new() {
    let server = Server::start().await;
    let worker = Example::new("continue_as_new", &server)
        .await
        .wherever_it_dials(&server)
        .spawn(&server);
    let client = Client::new(server.url()).expect("a client");
    let mut activities = Worker::new(client, "batch-workers").poll_timeout(Duration::from_secs(1));
    activities.register_activity("process-item", |_, item| async move { Ok(item) });
    let _activities = RunningWorker::start(activities);
    let handle = start(&server, "bounded-batch", "batch-workers", json!([0, 205])).await;
    let completed = eventually("the last run completes", || async {
        let described = handle.describe().await.expect("a description");
        (described.status.as_deref() == Some("completed")).then_some(described)
    })
    .await;
    assert_eq!(completed.output, Some(json!({"processed": 205})));
    let runs = server.control().run_ids("bounded-batch").await;
    let mut activities = Vec::new();
    for run in &runs {
        let history = server.control().history("bounded-batch", run).await;
        history.assert_sound();
        activities.push(history.count("ActivityCompleted"));
    }
    assert_eq!(activities, [100, 100, 5]);
    worker.stop().await;
}

#[tokio::test]
async fn workflow_pagination() {
    /// More than the example's page of fifty.
    const RUNS: usize = 60;
    /// More than the example's page of a hundred events.
    const SIGNALS: usize = 120;
    let server = Server::start().await;
    let client = Client::new(server.url()).expect("a client");
    for number in 0..RUNS {
        let id = format!("listed-{number}");
        let started = client
            .start_workflow("idle", "no-worker", &id, json!([]))
            .await;
        started.expect("the workflow starts");
    }
    for _ in 0..SIGNALS {
        client
            .signal_workflow("listed-7", "go", json!([]))
            .await
            .expect("the signal is accepted");
    }
    let run = server.control().run_ids("listed-7").await.remove(0);
    let events = server.control().history("listed-7", &run).await.len();
    let printed = Example::new("workflow_pagination", &server)
        .await
        .environment("DURABLE_WORKFLOW_ID", "listed-7")
        .environment("DURABLE_WORKFLOW_RUN_ID", &run)
        .run()
        .await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), RUNS + 2);
    assert_eq!(lines[RUNS], format!("read {RUNS} workflow summaries"));
    assert_eq!(lines[RUNS + 1], format!("read {events} history events"));
    let found = Example::new("workflow_pagination", &server)
        .await
        .environment("DURABLE_WORKFLOW_QUERY", "WorkflowId = 'listed-7'")
        .run()
        .await;
    assert!(found.ends_with("read 1 workflow summaries\n"), "{found}");
}

#[tokio::test]
async fn parallel_saga() {
    let server = Server::start().await;
    let printed = Example::new("parallel_saga", &server).await.run().await;
    assert!(printed.starts_with("register nested_parallel"), "{printed}");

    let workflows = Example::new("trip", &server).await.spawn(&server);
    let no_flights = Arc::new(AtomicBool::new(false));
    let _activities = RunningWorker::start(trip_worker(&server, &no_flights));
    let queue = "trip-workers";
    let nested = start(&server, "nested", queue, json!([])).await;
    assert_eq!(
        result(&nested).await.unwrap(),
        json!({"top_level_members": 2})
    );
    no_flights.store(true, Ordering::SeqCst);
    let inspected = start(&server, "inspected", queue, json!([])).await;
    let inspected = result(&inspected).await.unwrap();
    assert_eq!(inspected["failed_member_path"], json!([0]));

    let saga = start(&server, "saga", queue, json!([])).await;
    result(&saga).await.expect_err("the card is refused");
    let history = closed_history(&server, "saga").await;
    let message = &history.payloads("WorkflowFailed")[0]["message"];
    assert!(
        message
            .as_str()
            .is_some_and(|text| text.contains("card refused")),
        "{message}"
    );
    let scheduled: Vec<&Value> = history
        .payloads("ActivityScheduled")
        .iter()
        .map(|payload| &payload["activity_type"])
        .collect();
    assert_eq!(
        scheduled,
        [
            "trip.reserve-flight",
            "trip.reserve-hotel",
            "trip.charge",
            "trip.cancel-hotel",
            "trip.cancel-flight"
        ]
    );
    workflows.stop().await;
}

/// Registers the activities of the trips. The quote of a flight fails if `no_flights` is set.
fn trip_worker(server: &Server, no_flights: &Arc<AtomicBool>) -> Worker {
    let client = Client::new(server.url()).expect("a client");
    let mut worker = Worker::new(client, "trip-workers").poll_timeout(Duration::from_secs(1));
    worker.register_workflow("trip.quote-hotel", |_, _| async { Ok(json!("hotel")) });
    let no_flights = Arc::clone(no_flights);
    worker.register_activity("trip.quote-flight", move |_, _| {
        let none = no_flights.load(Ordering::SeqCst);
        async move {
            match none {
                true => Err(Error::WorkerLoop("no flights".to_owned())),
                false => Ok(json!("flight")),
            }
        }
    });
    for name in [
        "trip.reserve-flight",
        "trip.reserve-hotel",
        "trip.cancel-flight",
        "trip.cancel-hotel",
    ] {
        worker.register_activity(name, move |_, _| async move { Ok(json!(name)) });
    }
    worker.register_activity("trip.charge", |_, _| async {
        Err(Error::WorkerLoop("card refused".to_owned()))
    });
    worker
}
