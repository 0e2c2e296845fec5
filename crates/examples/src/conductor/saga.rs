//! An order as a saga: it reserves stock, charges a card and ships. If a step fails for good, a second workflow undoes the others.

use std::time::{Duration, Instant};

use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, output_of, simple, workflow_input,
};
use longhaul_conductor_sdk::model::{RetryLogic, StartWorkflowRequest, WorkflowStatus};
use longhaul_conductor_sdk::worker::{
    AnyWorker, NonRetryable, TaskContext, TaskFailure, TaskResponse,
};
use longhaul_conductor_sdk::{Client, worker_task};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{WAIT, execute};
use crate::ExampleResult;

/// A payment that was made.
#[derive(Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The amount.
    pub cents: i64,
    /// Who paid.
    pub card: String,
}

/// Reserves items. The order id makes a second attempt find the reservation of the first.
#[worker_task("order_reserve", thread_count = 10)]
pub async fn reserve(order_id: String, count: u32) -> String {
    format!("{count} items for {order_id}")
}

/// Charges the card. The first attempt fails, as if the service were not available.
#[worker_task("order_charge", thread_count = 10)]
pub async fn charge(card: String, count: u32) -> TaskResponse<Receipt> {
    let attempt = TaskContext::current().map_or(0, |context| context.retry_count());
    if attempt == 0 {
        return Err(TaskFailure::new("the card service is not available"));
    }
    let cents = i64::from(count) * 1000;
    Ok(Receipt { cents, card })
}

/// Ships the order. Where no courier delivers, no further attempt helps.
#[worker_task("order_ship", thread_count = 10)]
pub async fn ship(country: String) -> TaskResponse<String> {
    if country == "Atlantis" {
        return Err(NonRetryable::new("no courier delivers to Atlantis").into());
    }
    Ok(format!("a parcel to {country}"))
}

/// Gives the money back and releases the items of an order that failed.
#[worker_task("order_undo")]
pub async fn undo(order_id: String, reason: String) -> Value {
    json!({"undone": order_id, "because": reason})
}

/// Returns the workers of the example.
pub fn workers() -> Vec<AnyWorker> {
    vec![
        reserve::worker(),
        charge::worker(),
        ship::worker(),
        undo::worker(),
    ]
}

/// Places two orders. The second one cannot be shipped.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow ends unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let retried = TaskDefBuilder::new("order_charge")
        .retries(5)
        .retry_logic(RetryLogic::Fixed)
        .retry_delay(Duration::from_secs(1))
        .build()?;
    let metadata = client.metadata();
    metadata.register_tasks(&[retried]).await?;
    // Its input is that of the order, and the reason.
    let undo = WorkflowDefBuilder::new("undo_order")
        .then(
            simple("order_undo", "undo")
                .input("order_id", workflow_input("order_id"))
                .input("reason", workflow_input("reason")),
        )
        .build()?;
    let order = WorkflowDefBuilder::new("place_order")
        .failure_workflow("undo_order")
        .then(
            simple("order_reserve", "reserve")
                .input("order_id", workflow_input("order_id"))
                .input("count", workflow_input("count")),
        )
        .then(
            simple("order_charge", "charge")
                .input("card", workflow_input("card"))
                .input("count", workflow_input("count")),
        )
        .then(simple("order_ship", "ship").input("country", workflow_input("country")))
        .output("parcel", output_of("ship", "result"))
        .output("cents", output_of("charge", "cents"))
        .build()?;
    metadata.register_or_replace_workflow(&undo).await?;
    metadata.register_or_replace_workflow(&order).await?;
    for (number, country) in ["Norway", "Atlantis"].into_iter().enumerate() {
        let request = StartWorkflowRequest::new("place_order")
            .input("order_id", format!("order-{number}"))
            .input("card", "ada")
            .input("count", 3)
            .input("country", country);
        let run = execute(client, &request).await?;
        if run.status == WorkflowStatus::Completed {
            let (parcel, cents) = (&run.output["parcel"], &run.output["cents"]);
            say!(
                "conductor saga: {} for {cents} cents",
                parcel.as_str().unwrap_or_default()
            );
        } else {
            let reason = undone(client, &run.workflow_id).await?;
            say!("conductor saga: undone, because {reason}");
        }
    }
    Ok(())
}

/// Waits until an order is undone. Returns the reason.
async fn undone(
    client: &Client,
    order_id: &str,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let workflows = client.workflows();
    let begun = Instant::now();
    while begun.elapsed() < WAIT {
        // Some servers start the second workflow a moment after the end of the first.
        let order = workflows.get_without_tasks(order_id).await?;
        let undo = order.output.get("conductor.failure_workflow");
        if let Some(id) = undo.and_then(Value::as_str) {
            let undo = workflows.get_without_tasks(id).await?;
            if undo.status == WorkflowStatus::Completed {
                let because = undo.output.get("because").and_then(Value::as_str);
                return Ok(because.unwrap_or_default().to_owned());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("the order is not undone: do the workers run?".into())
}
