//! An order as a saga: stock is reserved and a card is charged; when shipping fails, both are undone, newest first.

use std::time::Duration;

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, RetryPolicy, Saga, WorkflowContext,
    WorkflowResult, activity, workflow,
};
use serde::{Deserialize, Serialize};

use crate::{Shown, unique};

/// The queue of this example.
pub const QUEUE: &str = "orders";

/// What somebody wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub item: String,
    /// How many.
    pub count: u32,
    /// Where to.
    pub country: String,
}

/// Takes items off the shelf. The idempotency key is the same for every attempt: a second one finds the first one's reservation.
#[activity]
pub async fn reserve(ctx: ActivityContext, order: Order) -> ActivityResult<String> {
    Ok(format!(
        "{} x {} ({})",
        order.count,
        order.item,
        ctx.idempotency_key()
    ))
}

/// Puts them back.
#[activity]
pub async fn release(_reservation: String) -> ActivityResult<()> {
    Ok(())
}

/// Takes the money, at the second try: the first meets a service that is not there.
#[activity]
pub async fn charge(ctx: ActivityContext, amount: u32) -> ActivityResult<u32> {
    if ctx.info().attempt_number == 1 {
        return Err(Failure::of_type(
            "ServiceUnavailable",
            "the card service does not answer",
        ));
    }
    Ok(amount)
}

/// Gives it back.
#[activity]
pub async fn refund(_amount: u32) -> ActivityResult<()> {
    Ok(())
}

/// Sends the parcel.
#[activity]
pub async fn ship(order: Order) -> ActivityResult<String> {
    if order.country == "Atlantis" {
        return Err(Failure::of_type("Undeliverable", "no courier goes there").non_retryable());
    }
    Ok(format!("a parcel to {}", order.country))
}

/// The whole order.
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

/// Adds the example to a worker.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder
        .workflow::<place_order>()
        .activity::<reserve>()
        .activity::<release>()
        .activity::<charge>()
        .activity::<refund>()
        .activity::<ship>()
}

/// Places two orders, one of which cannot be shipped.
///
/// # Errors
/// As the client fails.
pub async fn show(client: &Client) -> Shown {
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
