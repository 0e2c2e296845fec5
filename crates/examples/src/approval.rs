//! An expense waits for a person: a signal approves it, an update changes its amount, and a query returns the amount.

use std::time::Duration;

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    Client, Failure, Query, Signal, State, Update, ValidatedUpdate, WorkflowContext,
    WorkflowResult, workflow,
};
use serde::{Deserialize, Serialize};

use crate::{ExampleResult, unique};

/// The task queue of this example.
pub const QUEUE: &str = "approvals";

/// The decision of the person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether the expense is approved.
    pub approved: bool,
    /// The name of the person.
    pub by: String,
}

/// Sends the decision to the workflow.
pub const DECIDE: Signal<Decision> = Signal::new("decide");
/// Returns the amount.
pub const AMOUNT: Query<(), u32> = Query::new("amount");
/// Changes the amount. The validator refuses more than 1000.
pub const CHANGE: ValidatedUpdate<u32, u32> = Update::validated("change");

/// Waits for the decision for at most a week.
#[workflow(signals(DECIDE), queries(AMOUNT), updates(CHANGE))]
pub async fn expense(ctx: WorkflowContext, amount: u32) -> WorkflowResult<String> {
    let amount = State::new(amount);
    ctx.on_query(&AMOUNT, &amount, |amount, ()| *amount);
    ctx.on_validated_update(
        &CHANGE,
        &amount,
        |_, new| match new {
            0..=1000 => Ok(()),
            _ => Err(Failure::of_type("TooMuch", "at most 1000")),
        },
        |amount, new| {
            *amount = new;
            Ok(new)
        },
    );
    let decisions = ctx.signals(&DECIDE);
    Ok(
        match decisions
            .recv_timeout(Duration::from_secs(7 * 24 * 3600))
            .await?
        {
            Some(Decision { approved: true, by }) => format!("{} paid, says {by}", amount.get()),
            Some(Decision { by, .. }) => format!("refused by {by}"),
            None => "forgotten".to_owned(),
        },
    )
}

/// Registers the workflows and activities of the example.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder.workflow::<expense>()
}

/// Starts an expense, changes its amount, and approves it.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow fails unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let run = client
        .start(expense(300))
        .id(unique("expense"))
        .queue(QUEUE)
        .await?;
    say!("approval: changed to {}", run.update(&CHANGE, 250).await?);
    if let Err(error) = run.update(&CHANGE, 5000).await {
        say!("approval: refused: {error}");
    }
    say!("approval: the amount is {}", run.query(&AMOUNT, ()).await?);
    let decision = Decision {
        approved: true,
        by: "Ada".to_owned(),
    };
    run.signal(&DECIDE, decision).await?;
    say!("approval: {}", run.result().await?);
    Ok(())
}
