//! Conductor workflows with workers in Rust: [`saga`], [`chunks`] and [`fan_out`].
//!
//! Each module declares its workers with `#[worker_task]`, registers a definition that it builds, and runs it.
//! `cargo run --release -p longhaul-examples --bin conductor-orders` runs all of them against a server on this machine, each worker in
//! a process of its own; `longhaul demo` runs them in its own process.

pub mod chunks;
pub mod fan_out;
pub mod saga;

use std::time::Duration;

use longhaul_conductor_sdk::Client;
use longhaul_conductor_sdk::client::Execute;
use longhaul_conductor_sdk::model::{StartWorkflowRequest, WorkflowRun};
use longhaul_conductor_sdk::worker::AnyWorker;

use crate::ExampleResult;

/// The longest wait for an example.
const WAIT: Duration = Duration::from_secs(60);

/// Returns the workers of all examples.
pub fn workers() -> Vec<AnyWorker> {
    let all = [saga::workers(), chunks::workers(), fan_out::workers()];
    all.into_iter().flatten().collect()
}

/// Runs every example once. Their workers must run.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow ends unexpectedly.
pub async fn run_examples(client: &Client) -> ExampleResult {
    saga::run_example(client).await?;
    chunks::run_example(client).await?;
    fan_out::run_example(client).await
}

/// Starts a workflow and waits for its end.
async fn execute(
    client: &Client,
    request: &StartWorkflowRequest,
) -> Result<WorkflowRun, Box<dyn std::error::Error + Send + Sync>> {
    let executed = client
        .workflows()
        .execute(request, &Execute::new().wait(WAIT))
        .await?;
    let run = executed.workflow().ok_or("a task was returned")?;
    if !run.status.is_terminal() {
        return Err(format!("{} does not end: do its workers run?", request.name).into());
    }
    Ok(run)
}
