//! How workflows end, from the point of view of a caller.

use std::time::Duration;

use longhaul_sdk::client::{Error, ResultError};
use longhaul_sdk::{Failure, Signal, WorkflowCall, WorkflowContext, WorkflowResult, workflow};
use serde_json::json;

use crate::support::{Bench, QUEUE, Scripted, eventually};

#[workflow]
async fn double(_ctx: WorkflowContext, number: i64) -> WorkflowResult<i64> {
    Ok(number * 2)
}

#[workflow]
async fn decline(_ctx: WorkflowContext) -> WorkflowResult<()> {
    Err(Failure::of_type("CardDeclined", "no money").non_retryable())?
}

#[workflow]
async fn count_down(ctx: WorkflowContext, from: u32) -> WorkflowResult<String> {
    match from {
        0 => Ok("lift-off".to_owned()),
        _ => ctx.continue_as_new(count_down(from - 1)),
    }
}

const NEVER: Signal<()> = Signal::new("never");

#[workflow]
async fn wait(ctx: WorkflowContext) -> WorkflowResult<()> {
    ctx.signals(&NEVER).recv().await?;
    Ok(())
}

async fn bench() -> Bench {
    Bench::staffed(|worker| {
        worker
            .workflow::<double>()
            .workflow::<decline>()
            .workflow::<count_down>()
            .workflow::<wait>()
    })
    .await
}

#[tokio::test]
async fn a_result_is_waited_for_and_stays_readable() {
    let bench = bench().await;
    let handle = bench.client.start(double(21)).queue(QUEUE).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 42);
    assert_eq!(handle.result().await.unwrap(), 42);
    let run = handle.describe().await.unwrap();
    assert_eq!(run.output::<i64>().unwrap(), Some(42));
    assert_eq!(run.closed_reason.as_deref(), Some("completed"));
    let untyped = bench.client.workflow::<serde_json::Value>(handle.id());
    assert_eq!(untyped.result().await.unwrap(), 42);
    let misread = bench.client.workflow::<String>(handle.id());
    let error = misread.result().await.unwrap_err();
    assert!(
        matches!(error, ResultError::Client(Error::Payload(_))),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "invalid type: integer `42`, expected a string"
    );
}

#[tokio::test]
async fn a_failure_keeps_its_name() {
    let bench = bench().await;
    let handle = bench.client.start(decline()).queue(QUEUE).await.unwrap();
    let error = handle.result().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the workflow failed: CardDeclined: no money"
    );
    let ResultError::Failed(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.exception_type.as_deref(), Some("CardDeclined"));
    assert_eq!(failure.message, "no money");
    assert!(failure.non_retryable);
}

#[tokio::test]
async fn a_workflow_that_continues_as_new_is_followed() {
    let bench = bench().await;
    let handle = bench
        .client
        .start(count_down(3))
        .queue(QUEUE)
        .await
        .unwrap();
    assert_eq!(handle.result().await.unwrap(), "lift-off");
    let runs = handle.runs().await.unwrap();
    assert_eq!(
        runs.iter().map(|run| run.run_number).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(Some(runs[0].run_id.as_str()), handle.run_id());
    assert!(runs[3].is_current_run && !runs[0].is_current_run);
    // The result of an earlier run is the result of the last run.
    let first = handle.of_run(runs[0].run_id.as_str());
    assert_eq!(first.result().await.unwrap(), "lift-off");
    let closed_reason = first.describe().await.unwrap().closed_reason;
    assert_eq!(closed_reason.as_deref(), Some("continued"));
}

#[tokio::test]
async fn every_way_to_end_reaches_the_waiting_caller() {
    let bench = bench().await;
    let waiting = || bench.client.start(wait()).queue(QUEUE);

    let cancelled = waiting().await.unwrap();
    let (result, _) = tokio::join!(cancelled.result(), async {
        cancelled.cancel(Some("not needed")).await.unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "the workflow was cancelled: not needed");

    let terminated = waiting().await.unwrap();
    terminated.terminate(None).await.unwrap();
    let error = terminated.result().await.unwrap_err();
    assert!(matches!(error, ResultError::Terminated(None)), "{error:?}");
    assert_eq!(error.to_string(), "the workflow was terminated");

    let asked = waiting().await.unwrap();
    eventually("the workflow waits", async || {
        let events = asked.history().all().await.unwrap().len();
        (events >= 3).then_some(())
    })
    .await;
    let request = asked
        .request_cancellation(Some("please"), Some(Duration::from_millis(29_001)))
        .await
        .unwrap();
    assert_eq!(
        request.cleanup_deadline_at,
        request.requested_at.plus_seconds(30)
    );
    let error = asked.result().await.unwrap_err();
    assert!(matches!(error, ResultError::Cancelled(_)), "{error:?}");
}

#[tokio::test]
async fn a_workflow_that_does_not_exist_has_no_result() {
    let bench = Bench::new().await;
    let missing = bench.client.workflow::<()>("missing");
    let ResultError::Client(error) = missing.result().await.unwrap_err() else {
        panic!("it has a result");
    };
    assert!(error.is_not_found());
    assert_eq!(error.refusal().unwrap().reason(), "instance_not_found");
    let handle = bench
        .client
        .start(WorkflowCall::<()>::named("x"))
        .await
        .unwrap();
    let error = handle.of_run("01k").describe().await.unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), "run_not_found");
}

#[tokio::test]
async fn results_are_polled_if_the_server_returns_no_sequence() {
    let run = |status: &str, closed: Option<&str>, run_id: &str, is_current: bool| {
        let output = json!({"codec": "avro", "blob": "wwHioz3/VYAiNwQO"});
        let body = json!({
            "workflow_id": "w", "run_id": run_id, "workflow_type": "t", "namespace": "default", "status": status,
            "closed_reason": closed, "task_queue": "q", "run_number": 1, "run_count": 1,
            "is_current_run": is_current, "output_envelope": closed.map(|_| output), "a new field": {},
        });
        (200, body)
    };
    let (client, server) = Scripted::client([
        run("waiting", None, "1", true),
        run("completed", Some("continued"), "1", false),
        run("a new status", None, "2", true),
        run("completed", Some("completed"), "2", true),
    ])
    .await;
    let handle = client.workflow::<i64>("w").of_run("1");
    assert_eq!(handle.result().await.unwrap(), 7);
    let paths: Vec<_> = server
        .asked()
        .into_iter()
        .map(|(_, path, _)| path)
        .collect();
    let (first, newest) = ("/api/workflows/w/runs/1", "/api/workflows/w");
    assert_eq!(paths, [first, first, newest, newest]);
}
