//! The test environment: a clock that jumps over every wait, fakes, and errors instead of hangs.

mod definitions;
mod fakes;
mod time;
mod trouble;

use std::time::Duration;

use longhaul_sdk::{
    ActivityCall, ActivityResult, RetryPolicy, Signal, WorkflowContext, WorkflowResult, activity,
    workflow,
};
use serde::{Deserialize, Serialize};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const GO: Signal<u32> = Signal::new("go");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

fn order() -> Order {
    Order {
        item: "pen".to_owned(),
        count: 2,
    }
}

/// An activity of another program.
fn ship(order: Order) -> ActivityCall<String> {
    ActivityCall::named("ship").argument(order)
}

#[activity]
async fn double(number: u32) -> ActivityResult<u32> {
    Ok(number * 2)
}

#[workflow]
async fn sleeper(ctx: WorkflowContext, days: u32) -> WorkflowResult<u32> {
    ctx.sleep(DAY * days).await?;
    Ok(ctx.activity(double(days)).await?)
}

#[workflow]
async fn delivery(ctx: WorkflowContext, order: Order) -> WorkflowResult<String> {
    let retry = RetryPolicy::attempts(3).backoff([HOUR, DAY]);
    Ok(ctx.activity(ship(order)).retry(retry).await?)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
