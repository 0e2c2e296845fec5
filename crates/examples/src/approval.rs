//! A human in the loop: a request waits for approval by signal, its amount can be changed by an update, and everybody may ask how it
//! stands.

use std::time::Duration;

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    Client, Failure, Query, Signal, Update, WorkflowContext, WorkflowResult, workflow,
};
use serde::{Deserialize, Serialize};

use crate::{Shown, unique};

/// The queue of this example.
pub const QUEUE: &str = "approvals";

/// What the person decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Who says so.
    pub by: String,
}

/// Tells the workflow the decision.
pub const DECIDE: Signal<Decision> = Signal::new("decide");
/// Asks for the amount.
pub const AMOUNT: Query<(), u32> = Query::new("amount");
/// Changes the amount; more than 1000 is refused before it reaches the workflow.
pub const CHANGE: Update<u32, u32> = Update::new("change").validated();

/// Waits for a person, at most for a week.
#[workflow(signals(DECIDE), queries(AMOUNT), updates(CHANGE))]
pub async fn expense(ctx: WorkflowContext, amount: u32) -> WorkflowResult<String> {
    let amount = ctx.state(amount);
    let asked = amount.clone();
    ctx.on_query(&AMOUNT, move |()| asked.get());
    let changed = amount.clone();
    ctx.on_validated_update(
        &CHANGE,
        |new| match new {
            0..=1000 => Ok(()),
            _ => Err(Failure::of_type("TooMuch", "at most 1000")),
        },
        move |new| {
            changed.set(new);
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

/// Adds the example to a worker.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder.workflow::<expense>()
}

/// Asks for an expense, changes it, and approves it.
///
/// # Errors
/// As the client fails.
pub async fn show(client: &Client) -> Shown {
    let run = client
        .start(expense(300))
        .id(unique("expense"))
        .queue(QUEUE)
        .await?;
    say!("approval: changed to {}", run.update(&CHANGE, 250).await?);
    if let Err(error) = run.update(&CHANGE, 5000).await {
        say!("approval: refused: {error}");
    }
    say!("approval: stands at {}", run.query(&AMOUNT, ()).await?);
    let decision = Decision {
        approved: true,
        by: "Ada".to_owned(),
    };
    run.signal(&DECIDE, decision).await?;
    say!("approval: {}", run.result().await?);
    Ok(())
}
