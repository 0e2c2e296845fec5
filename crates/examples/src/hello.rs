//! The smallest workflow: one activity.
//!
//! The attributes create three things from each function. `greet(..)` is a *call*: a value that `ctx.activity` makes. The *type*
//! `greet` registers the function with a worker. `greet::run(..)` is the *body* as written.

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{ActivityResult, Client, WorkflowContext, WorkflowResult, activity, workflow};

use crate::{ExampleResult, unique};

/// The task queue of this example.
pub const QUEUE: &str = "hello";

/// Does the work. An activity may do anything: call services, read files, take its time. **It has one attempt by default.**
#[activity]
pub async fn greet(name: String) -> ActivityResult<String> {
    Ok(format!("Hello, {name}!"))
}

/// Calls the activity. If the worker crashes, another worker continues the workflow.
#[workflow]
pub async fn hello(ctx: WorkflowContext, name: String) -> WorkflowResult<String> {
    Ok(ctx.activity(greet(name)).await?)
}

/// Registers the workflows and activities of the example.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder.workflow::<hello>().activity::<greet>()
}

/// Runs the workflow once.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow fails unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let run = client
        .start(hello("world".to_owned()))
        .id(unique("hello"))
        .queue(QUEUE)
        .await?;
    say!("hello: {}", run.result().await?);
    Ok(())
}
