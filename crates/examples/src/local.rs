//! Local activities: short steps that run in the worker of their workflow, without a queue. Every attempt is recorded.

use std::time::Duration;

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, RetryPolicy, WorkflowContext, WorkflowResult,
    activity, workflow,
};

use crate::{ExampleResult, unique};

/// The task queue of this example.
pub const QUEUE: &str = "local";

/// Looks up a price. The step is too short for a queue.
#[activity]
pub async fn look_up(item: String) -> ActivityResult<u32> {
    match item.as_str() {
        "tea" => Ok(4),
        "cake" => Ok(7),
        _ => Err(Failure::of_type("NoSuchItem", item).non_retryable()),
    }
}

/// Succeeds at its second attempt. The pause between the attempts survives a crash of the worker.
#[activity]
pub async fn stamp(ctx: ActivityContext) -> ActivityResult<String> {
    match ctx.info().attempt_number {
        1 => Err(Failure::new("the ink is dry")),
        attempt => Ok(format!("stamped at attempt {attempt}")),
    }
}

/// Adds up the prices and stamps the bill.
#[workflow]
pub async fn bill(ctx: WorkflowContext, items: Vec<String>) -> WorkflowResult<(u32, String)> {
    let mut sum = 0;
    for item in items {
        sum += ctx.local_activity(look_up(item)).await?;
    }
    let policy = RetryPolicy::attempts(3).backoff([Duration::from_secs(1)]);
    let stamp = ctx
        .local_activity(stamp())
        .retry(policy)
        .start_to_close(Duration::from_secs(5))
        .await?;
    Ok((sum, stamp))
}

/// Registers the workflows and activities of the example. The worker does not poll for activities that are only called locally.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder
        .workflow::<bill>()
        .local_activity::<look_up>()
        .local_activity::<stamp>()
}

/// Runs one bill.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow fails unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let items = vec!["tea".to_owned(), "cake".to_owned()];
    let run = client
        .start(bill(items))
        .id(unique("bill"))
        .queue(QUEUE)
        .await?;
    let (sum, stamp) = run.result().await?;
    say!("local: {sum}, {stamp}");
    Ok(())
}
