//! The smallest workflow: one activity.

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{ActivityResult, Client, WorkflowContext, WorkflowResult, activity, workflow};

use crate::{Shown, unique};

/// The queue of this example.
pub const QUEUE: &str = "hello";

/// Does the work. An activity may do anything: call services, read files, take its time.
#[activity]
pub async fn greet(name: String) -> ActivityResult<String> {
    Ok(format!("Hello, {name}!"))
}

/// Says what is done in which order. It survives every crash between two awaits.
#[workflow]
pub async fn hello(ctx: WorkflowContext, name: String) -> WorkflowResult<String> {
    Ok(ctx.activity(greet(name)).await?)
}

/// Adds the example to a worker.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder.workflow::<hello>().activity::<greet>()
}

/// Runs it once.
///
/// # Errors
/// As the client fails.
pub async fn show(client: &Client) -> Shown {
    let run = client
        .start(hello("world".to_owned()))
        .id(unique("hello"))
        .queue(QUEUE)
        .await?;
    say!("hello: {}", run.result().await?);
    Ok(())
}
