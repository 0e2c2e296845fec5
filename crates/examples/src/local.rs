//! Local activities: short steps that run in the worker of their workflow, without a queue, each written down before and after.

use std::time::Duration;

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, RetryPolicy, WorkflowContext, WorkflowResult,
    activity, workflow,
};

use crate::{Shown, unique};

/// The queue of this example.
pub const QUEUE: &str = "local";

/// Looks a price up: too short a step for a queue.
#[activity]
pub async fn look_up(item: String) -> ActivityResult<u32> {
    match item.as_str() {
        "tea" => Ok(4),
        "cake" => Ok(7),
        _ => Err(Failure::of_type("NoSuchItem", item).non_retryable()),
    }
}

/// Works at its second attempt; the pause between the two outlives a crash of this worker.
#[activity]
pub async fn stamp(ctx: ActivityContext) -> ActivityResult<String> {
    match ctx.info().attempt_number {
        1 => Err(Failure::new("the ink is dry")),
        attempt => Ok(format!("stamped at attempt {attempt}")),
    }
}

/// Adds prices up and stamps the bill.
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

/// Adds the example to a worker. Activities that are only called locally need not be polled for.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder
        .workflow::<bill>()
        .local_activity::<look_up>()
        .local_activity::<stamp>()
}

/// Makes out one bill.
///
/// # Errors
/// As the client fails.
pub async fn show(client: &Client) -> Shown {
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
