//! Child workflows: results, failures, retries, timeouts, close policies, stopped from outside, continued, in parallel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use durable_workflow::{
    ChildWorkflowOptions, ChildWorkflowRetryPolicy, Error, ParallelOperation, ParallelResult,
    ParentClosePolicy, Value, Worker, WorkflowCommandOptions, json,
};

use crate::harness::eventually;
use crate::rust_sdk::fixture::{Fixture, QUEUE, result};

/// Registers several children, and `parent`, which starts the child of its first argument and returns how it ended.
fn register(worker: &mut Worker, options: ChildWorkflowOptions) {
    worker.register_workflow("double", |_, arguments| async move {
        Ok(json!(arguments[0].as_u64().unwrap() * 2))
    });
    worker.register_workflow("failing", |_, _| async {
        Err(Error::WorkerLoop("no stock".to_owned()))
    });
    worker.register_workflow("patient", |context, _| async move {
        Ok(json!(context.wait_signal("go").await?))
    });
    worker.register_workflow("countdown", |context, arguments| async move {
        match arguments[0].as_u64() {
            Some(0) => Ok(json!("zero")),
            left => context.continue_as_new(json!([left.unwrap_or(1) - 1])),
        }
    });
    worker.register_workflow("parent", move |context, arguments| {
        let options = options.clone();
        async move {
            let child_type = arguments[0].as_str().unwrap_or_default().to_owned();
            let child = context.start_child_workflow(child_type, options, arguments[1].clone());
            match child.await {
                Ok(child) => Ok(json!({"result": child.result, "child": child.child.workflow_id})),
                Err(Error::ChildWorkflowFailed(failure)) => Ok(json!({
                    "kind": format!("{:?}", failure.kind),
                    "message": failure.message,
                    "category": failure.failure_category,
                })),
                Err(error) => Err(error),
            }
        }
    });
}

fn options() -> ChildWorkflowOptions {
    ChildWorkflowOptions::new(QUEUE)
}

/// Returns the id of the only child that `parent` has started so far.
async fn child_of(fixture: &Fixture, parent: &str) -> String {
    let history = fixture.wait_for_events(parent, "ChildRunStarted", 1).await;
    let id = &history.payloads("ChildRunStarted")[0]["child_workflow_instance_id"];
    id.as_str().expect("a child has an id").to_owned()
}

async fn wait_for_status(fixture: &Fixture, workflow_id: &str, status: &str) {
    eventually(&format!("{workflow_id} is {status}"), || async {
        let described = fixture.describe(workflow_id).await;
        (described.status.as_deref() == Some(status)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_child_returns_its_result() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| register(worker, options()));
    let outcome = fixture.run("parent", json!(["double", [21]])).await;
    assert_eq!(outcome["result"], json!(42));
    let history = fixture.closed_history("parent").await;
    for event in [
        "ChildWorkflowScheduled",
        "ChildRunStarted",
        "ChildRunCompleted",
    ] {
        assert_eq!(history.count(event), 1, "{event}");
    }
    let child = outcome["child"].as_str().expect("the child's id");
    let child = fixture.closed_history(child).await;
    let started = child.payloads("WorkflowStarted")[0];
    assert_eq!(
        started["child_call_id"],
        history.payloads("ChildRunStarted")[0]["child_call_id"]
    );
}

#[tokio::test]
async fn a_failing_child_fails_in_its_parent() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| register(worker, options()));
    let outcome = fixture.run("parent", json!(["failing", []])).await;
    assert_eq!(outcome["kind"], "Failed");
    let message = outcome["message"].as_str().unwrap_or_default();
    assert!(message.contains("no stock"), "{outcome}");
    assert_eq!(
        fixture
            .closed_history("parent")
            .await
            .count("ChildRunFailed"),
        1
    );
}

#[tokio::test]
async fn a_failed_child_is_retried() {
    let fixture = Fixture::start().await;
    let retried = options().retry_policy(ChildWorkflowRetryPolicy {
        max_attempts: Some(5),
        backoff_seconds: vec![0, 1],
        non_retryable_error_types: Vec::new(),
    });
    let attempts = Arc::new(AtomicU64::new(0));
    let _worker = fixture.worker(|worker| {
        register(worker, retried);
        worker.register_activity("count", move |_, _| {
            let attempt = attempts.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(json!(attempt)) }
        });
        worker.register_workflow("third-time-lucky", |context, _| async move {
            match context.activity("count", json!([])).await?.as_u64() {
                Some(attempt) if attempt >= 3 => Ok(json!(attempt)),
                _ => Err(Error::WorkerLoop("not yet".to_owned())),
            }
        });
    });
    let outcome = fixture.run("parent", json!(["third-time-lucky", []])).await;
    assert_eq!(outcome["result"], json!(3));
    let history = fixture.closed_history("parent").await;
    let started = history.payloads("ChildRunStarted");
    let numbers: Vec<&Value> = started.iter().map(|run| &run["child_run_number"]).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[tokio::test]
async fn attempts_of_a_child_are_bounded() {
    let fixture = Fixture::start().await;
    let twice = options().retry_policy(ChildWorkflowRetryPolicy {
        max_attempts: Some(2),
        backoff_seconds: vec![0],
        non_retryable_error_types: Vec::new(),
    });
    let _worker = fixture.worker(|worker| register(worker, twice));
    let outcome = fixture.run("parent", json!(["failing", []])).await;
    assert_eq!(outcome["kind"], "Failed");
    assert_eq!(
        fixture
            .closed_history("parent")
            .await
            .count("ChildRunStarted"),
        2
    );
}

#[tokio::test]
async fn a_child_times_out() {
    let fixture = Fixture::start().await;
    let brief = options().run_timeout_seconds(1);
    let _worker = fixture.worker(|worker| register(worker, brief));
    let outcome = fixture.run("parent", json!(["patient", []])).await;
    assert_eq!(outcome["kind"], "Failed");
    assert_eq!(outcome["category"], "timeout");
}

#[tokio::test]
async fn the_outcome_of_a_stopped_child_names_how_it_was_stopped() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| register(worker, options()));
    for kind in ["Cancelled", "Terminated"] {
        let parent = fixture
            .start_workflow("parent", kind, json!(["patient", []]))
            .await;
        let child = child_of(&fixture, kind).await;
        let stopped = match kind {
            "Cancelled" => {
                fixture
                    .client
                    .cancel_workflow(&child, WorkflowCommandOptions::new())
                    .await
            }
            _ => {
                fixture
                    .client
                    .terminate_workflow(&child, WorkflowCommandOptions::new())
                    .await
            }
        };
        stopped.expect("the child is stopped");
        assert_eq!(result(&parent).await.unwrap()["kind"], kind);
        fixture.closed_history(kind).await;
    }
}

#[tokio::test]
async fn a_child_that_continues_as_new_returns_one_result() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| register(worker, options()));
    let outcome = fixture.run("parent", json!(["countdown", [3]])).await;
    assert_eq!(outcome["result"], "zero");
    let history = fixture.closed_history("parent").await;
    assert_eq!(history.count("ChildRunStarted"), 4);
    assert_eq!(history.count("ChildRunCompleted"), 1);
}

#[tokio::test]
async fn children_run_in_parallel() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        register(worker, options());
        worker.register_workflow("family", |context, _| async move {
            let children = (0..5)
                .map(|number| {
                    ParallelOperation::child_workflow("double", options(), json!([number]))
                })
                .collect();
            let results = context.join(children).await?;
            let results = results.into_iter().map(|result| match result {
                ParallelResult::ChildWorkflow(child) => child.result,
                other => json!(format!("{other:?}")),
            });
            Ok(json!(results.collect::<Vec<Value>>()))
        });
    });
    assert_eq!(
        fixture.run("family", json!([])).await,
        json!([0, 2, 4, 6, 8])
    );
    assert_eq!(
        fixture
            .closed_history("family")
            .await
            .count("ChildRunCompleted"),
        5
    );
}

#[tokio::test]
async fn closing_a_parent_follows_each_policy() {
    for (policy, status) in [
        (ParentClosePolicy::Abandon, "waiting"),
        (ParentClosePolicy::RequestCancel, "cancelled"),
        (ParentClosePolicy::Terminate, "terminated"),
    ] {
        let fixture = Fixture::start().await;
        let chosen = options().parent_close_policy(policy);
        let _worker = fixture.worker(|worker| register(worker, chosen));
        let parent = fixture
            .start_workflow("parent", "parent", json!(["patient", []]))
            .await;
        let child = child_of(&fixture, "parent").await;
        wait_for_status(&fixture, &child, "waiting").await;
        parent
            .terminate(WorkflowCommandOptions::new())
            .await
            .expect("the parent is terminated");
        if policy == ParentClosePolicy::Abandon {
            fixture.signal(&child, "go", json!(["on"])).await;
            wait_for_status(&fixture, &child, "completed").await;
            continue;
        }
        wait_for_status(&fixture, &child, status).await;
        fixture
            .wait_for_events("parent", "ParentClosePolicyApplied", 1)
            .await;
    }
}
