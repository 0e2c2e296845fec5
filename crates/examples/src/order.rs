//! An order as a saga: it reserves stock and charges a card. If shipping fails, both are undone, newest first.

use std::time::Duration;

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, RetryPolicy, Saga, WorkflowContext,
    WorkflowResult, activity, workflow,
};
use serde::{Deserialize, Serialize};

use crate::{ExampleResult, unique};

/// The task queue of this example.
pub const QUEUE: &str = "orders";

/// An order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The item.
    pub item: String,
    /// The number of items.
    pub count: u32,
    /// The destination.
    pub country: String,
}

/// Reserves items. The idempotency key is the same for every attempt, so a second attempt finds the reservation of the first.
#[activity]
pub async fn reserve(ctx: ActivityContext, order: Order) -> ActivityResult<String> {
    Ok(format!(
        "{} x {} ({})",
        order.count,
        order.item,
        ctx.idempotency_key()
    ))
}

/// Releases a reservation.
#[activity]
pub async fn release(_reservation: String) -> ActivityResult<()> {
    Ok(())
}

/// Charges the card. The first attempt fails, as if the service were not available.
#[activity]
pub async fn charge(ctx: ActivityContext, amount: u32) -> ActivityResult<u32> {
    if ctx.info().attempt_number == 1 {
        return Err(Failure::of_type(
            "ServiceUnavailable",
            "the card service is not available",
        ));
    }
    Ok(amount)
}

/// Refunds the amount.
#[activity]
pub async fn refund(_amount: u32) -> ActivityResult<()> {
    Ok(())
}

/// Ships the order.
#[activity]
pub async fn ship(order: Order) -> ActivityResult<String> {
    if order.country == "Atlantis" {
        return Err(Failure::of_type("Undeliverable", "no courier delivers there").non_retryable());
    }
    Ok(format!("a parcel to {}", order.country))
}

/// Reserves, charges and ships. If a step fails, undoes the steps before it.
#[workflow]
pub async fn place_order(ctx: WorkflowContext, order: Order) -> WorkflowResult<String> {
    let mut saga = Saga::new(&ctx);
    let steps = async {
        let reservation = ctx.activity(reserve(order.clone())).await?;
        saga.undo(move |ctx| async move { Ok(ctx.activity(release(reservation)).await?) });

        let policy =
            RetryPolicy::attempts(5).exponential(Duration::from_secs(1), Duration::from_secs(30));
        let amount = ctx.activity(charge(order.count * 10)).retry(policy).await?;
        saga.undo(move |ctx| async move { Ok(ctx.activity(refund(amount)).await?) });

        Ok(ctx.activity(ship(order)).await?)
    }
    .await;
    saga.finish(steps).await
}

/// Registers the workflows and activities of the example.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder
        .workflow::<place_order>()
        .activity::<reserve>()
        .activity::<release>()
        .activity::<charge>()
        .activity::<refund>()
        .activity::<ship>()
}

/// Places two orders. The second one cannot be shipped.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow fails unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    for country in ["Norway", "Atlantis"] {
        let order = Order {
            item: "tea".to_owned(),
            count: 3,
            country: country.to_owned(),
        };
        let run = client
            .start(place_order(order))
            .id(unique("order"))
            .queue(QUEUE)
            .await?;
        match run.result().await {
            Ok(parcel) => say!("order: {parcel}"),
            Err(error) => say!("order: undone, because {error}"),
        }
    }
    Ok(())
}
