//! Builds of Rust workers: a drained worker ends by itself and cleanly, a pinned run goes to its build only.

use durable_workflow::{Worker, json};
use serde_json::Value;

use crate::harness::Server;
use crate::rust_sdk::fixture::{Fixture, QUEUE, RunningWorker, new_worker, result};

/// A worker of that build, which is also what its workflow answers.
fn worker_of(fixture: &Fixture, build_id: &'static str) -> RunningWorker {
    let mut worker: Worker =
        new_worker(fixture.client.clone(), &format!("worker-{build_id}")).build_id(build_id);
    worker.register_workflow("which", move |context, _| async move {
        let acted = context.activity("which", json!([])).await?;
        Ok(json!([build_id, acted]))
    });
    worker.register_activity("which", move |_, _| async move { Ok(json!(build_id)) });
    RunningWorker::start(worker)
}

async fn change(server: &Server, action: &str, build_id: &str) -> Value {
    let path = format!("/task-queues/{QUEUE}/build-ids/{action}");
    let body = serde_json::json!({"build_id": build_id});
    let (status, answer) = server.control().post(&path, &body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Runs one workflow. Returns the builds of its workflow worker and of its activity worker.
async fn which(fixture: &Fixture, id: &str) -> durable_workflow::Value {
    let handle = fixture.start_workflow("which", id, json!([])).await;
    result(&handle).await.expect("the workflow completes")
}

#[tokio::test]
async fn a_drained_worker_ends_cleanly_and_others_continue() {
    let fixture = Fixture::start().await;
    let mut drained = worker_of(&fixture, "a");
    which(&fixture, "before").await;
    let _other = worker_of(&fixture, "b");

    change(&fixture.server, "drain", "a").await;

    drained.ended().await.expect("a drain is no error");
    assert_eq!(which(&fixture, "after").await, json!(["b", "b"]));
    let (_, gone) = fixture.server.control().get("/workers/worker-a").await;
    assert_eq!(gone["reason"], "worker_not_found", "it said goodbye");
}

#[tokio::test]
async fn runs_stay_with_the_build_they_were_started_on() {
    let mut fixture = Fixture::start().await;
    let first = worker_of(&fixture, "a");
    which(&fixture, "unpinned").await;
    let second = worker_of(&fixture, "b");
    which(&fixture, "either").await;
    change(&fixture.server, "promote", "a").await;
    for number in 0..3 {
        let ran = which(&fixture, &format!("on-a-{number}")).await;
        assert_eq!(ran, json!(["a", "a"]));
    }
    first.stop().await;
    let waiting = fixture.start_workflow("which", "waits", json!([])).await;
    let (_, shown) = fixture.server.control().get("/workflows/waits").await;
    assert_eq!(shown["compatibility"], "a");
    assert_eq!(shown["compatibility_status"], "no_compatible_worker");
    second.stop().await;

    fixture.server.kill().await;
    fixture.server.restart().await;

    let _second = worker_of(&fixture, "b");
    let _first = worker_of(&fixture, "a");
    assert_eq!(result(&waiting).await.unwrap(), json!(["a", "a"]));
    assert_eq!(which(&fixture, "after").await, json!(["a", "a"]));
}
