//! Definition runs of all shapes under kills: with workers of our own over HTTP, which repeat each request until it is answered, and
//! with the published clients.

mod plane;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{LOAD_DEADLINE, Random};
use crate::harness::{Background, Server};
pub(crate) use plane::Plane;
pub(crate) use shape::Shape;

const RUNS: usize = 64;
const KILLS: usize = 12;
const WORKERS: usize = 6;

/// Runs that the client for JavaScript starts, and kills meanwhile.
const RUNS_OF_NODE: usize = 32;
const KILLS_OF_CLIENTS: usize = 3;

/// A claim whose answer was lost with the connection costs one response time-out.
const RESPONSE_SECONDS: u64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definition_runs_survive_kills_under_load() {
    let mut random = Random::from_environment();
    let mut server = Server::start().await;
    let plane = Plane::of(&server);
    plane.register().await;
    let stopping = Arc::new(AtomicBool::new(false));
    let mut working = JoinSet::new();
    for number in 0..WORKERS {
        let takes_next = number % 2 == 0;
        working.spawn(
            plane
                .clone()
                .work("crash_work", Arc::clone(&stopping), takes_next),
        );
    }
    working.spawn(
        plane
            .clone()
            .work("crash_fails_once", Arc::clone(&stopping), false),
    );
    let load = start_load(&plane, RUNS, 12_000, &mut random);
    for _ in 0..KILLS {
        sleep(random.milliseconds(100..1200)).await;
        server.kill().await;
        sleep(random.milliseconds(0..200)).await;
        server.restart().await;
    }
    judge_load(&server, &plane, load).await;
    stopping.store(true, Ordering::Relaxed);
    while let Some(ended) = working.join_next().await {
        ended.expect("a worker");
    }
}

/// The published clients wait ten seconds after a report that was not answered, and longer and longer after polls that failed. The
/// client for JavaScript repeats a start whose answer was lost, so its starts have keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definition_runs_of_the_published_clients_survive_kills() {
    let mut random = Random::from_environment();
    let mut server = Server::start().await;
    let plane = Plane::of(&server);
    plane.register().await;
    let mut python = Background::python("crash_worker.py", &server);
    assert_eq!(python.next_line().await.as_deref(), Some("working"));
    let mut node = Background::node("crash_worker.mjs", &server, &[&RUNS_OF_NODE.to_string()]);
    assert_eq!(node.next_line().await.as_deref(), Some("working"));
    for _ in 0..KILLS_OF_CLIENTS {
        sleep(random.milliseconds(500..2500)).await;
        server.kill().await;
        sleep(random.milliseconds(0..200)).await;
        server.restart().await;
    }
    let everything = async {
        for _ in 0..RUNS_OF_NODE {
            let line = node.next_line().await.expect("a start");
            let started = line
                .strip_prefix("started ")
                .and_then(|rest| rest.split_once(' '));
            let (number, id) = started.unwrap_or_else(|| panic!("{line}"));
            let number: usize = number.parse().expect("a number");
            let shape = Shape::ALL[number % Shape::ALL.len()];
            let run = plane.ended(id).await;
            assert_eq!(plane.start(shape, number).await, id, "one run has the key");
            judge(&server, &plane, shape, &run).await;
        }
        judge_counts(&plane, RUNS_OF_NODE).await;
    };
    timeout(LOAD_DEADLINE, everything)
        .await
        .expect("all runs end after the last kill");
}

/// A run of the load: its number, its shape, and what it was at its end.
type Ended = (usize, Shape, Value);

/// Starts runs of all shapes, each at a random moment within this time.
pub(crate) fn start_load(
    plane: &Plane,
    runs: usize,
    within_ms: u64,
    random: &mut Random,
) -> JoinSet<Ended> {
    let mut load = JoinSet::new();
    for number in 0..runs {
        let (plane, after) = (plane.clone(), random.milliseconds(0..within_ms));
        load.spawn(async move {
            sleep(after).await;
            let shape = Shape::ALL[number % Shape::ALL.len()];
            let id = plane.start(shape, number).await;
            (number, shape, plane.ended(&id).await)
        });
    }
    load
}

/// Waits for all runs of a load, and checks that nothing was lost and nothing happened twice.
pub(crate) async fn judge_load(server: &Server, plane: &Plane, mut load: JoinSet<Ended>) {
    let runs = load.len();
    let everything = async {
        while let Some(ended) = load.join_next().await {
            let (number, shape, run) = ended.expect("a run of the load");
            let again = plane.start(shape, number).await;
            assert_eq!(run["workflowId"], again, "one run has the key");
            judge(server, plane, shape, &run).await;
        }
        judge_counts(plane, runs).await;
    };
    timeout(LOAD_DEADLINE, everything)
        .await
        .expect("all runs end after the last kill");
}

/// Checks that each start of the load made one run.
async fn judge_counts(plane: &Plane, runs: usize) {
    for shape in Shape::ALL {
        // Each run of `Child` starts a run of `Sequence` itself.
        let per_round = if shape == Shape::Sequence { 2 } else { 1 };
        let expected = runs / Shape::ALL.len() * per_round;
        assert_eq!(plane.count(shape).await, expected as u64, "{shape:?}");
    }
}

/// Checks the tasks of a run, its events and its children.
pub(crate) async fn judge(server: &Server, plane: &Plane, shape: Shape, run: &Value) {
    let id = run["workflowId"].as_str().expect("an id");
    assert_eq!(run["status"], "COMPLETED", "{shape:?} {id}: {run}");
    let tasks = run["tasks"].as_array().expect("tasks");
    let mut attempts = BTreeSet::new();
    let mut completed: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        let reference = task["referenceTaskName"].as_str().expect("a reference");
        let attempt = (reference, task["retryCount"].as_u64());
        assert!(attempts.insert(attempt), "{id}: {attempt:?} is there twice");
        match task["status"].as_str() {
            Some("COMPLETED") => *completed.entry(reference).or_default() += 1,
            Some("FAILED" | "TIMED_OUT") => assert_eq!(task["retried"], true, "{id}: {task}"),
            other => panic!("{id}: {reference} is {other:?}"),
        }
        let is_done = task["taskDefName"]
            .as_str()
            .is_some_and(|name| name.starts_with("crash_"));
        if is_done && task["status"] == "COMPLETED" && task["taskType"] != "SUB_WORKFLOW" {
            assert_eq!(task["outputData"]["reference"], reference, "{id}");
        }
        if let Some(child) = task["subWorkflowId"]
            .as_str()
            .filter(|_| task["status"] == "COMPLETED")
        {
            let child = plane.get(&format!("/workflow/{child}")).await;
            Box::pin(judge(server, plane, Shape::Sequence, &child)).await;
        }
    }
    assert!(
        completed.values().all(|count| *count == 1),
        "{id}: {completed:?}"
    );
    let of_workers = tasks
        .iter()
        .filter(|task| task["taskType"] == "crash_work" || task["taskType"] == "crash_fails_once")
        .filter(|task| task["status"] == "COMPLETED");
    assert_eq!(of_workers.count(), shape.completions(), "{shape:?} {id}");
    let history = server.control().history(id, id).await;
    let mut ended = BTreeSet::new();
    for end in history.payloads("ExecutionTaskEnded") {
        let number = end["seq"].as_u64().expect("a number");
        assert!(ended.insert(number), "{id}: task {number} ended twice");
    }
    assert_eq!(history.count("ExecutionStarted"), 1, "{id}");
    assert_eq!(history.count("ExecutionEnded"), 1, "{id}");
}
