//! A long task in chunks: it reports what it has done and comes back later, so it never holds a worker for long.

use std::time::Duration;

use longhaul_conductor_sdk::definition::{WorkflowDefBuilder, output_of, simple, workflow_input};
use longhaul_conductor_sdk::model::StartWorkflowRequest;
use longhaul_conductor_sdk::worker::{
    AnyWorker, Outcome, TaskContext, TaskFailure, TaskInProgress, TaskResponse,
};
use longhaul_conductor_sdk::{Client, worker_task};
use serde_json::{Value, json};

use super::execute;
use crate::ExampleResult;

/// Rows that one chunk imports.
const CHUNK: u64 = 400;

/// Imports rows, one chunk for each delivery. The output so far says where the next one begins, whichever worker gets it.
#[worker_task("import_rows", thread_count = 4)]
pub async fn import(rows: u64) -> TaskResponse<Outcome> {
    let context = TaskContext::current().ok_or_else(|| TaskFailure::new("there is no task"))?;
    let done = context.task().output_data.get("done");
    let done = done.and_then(Value::as_u64).unwrap_or(0);
    let now = (done + CHUNK).min(rows);
    context.add_log(format!("imported rows {done} to {now}"));
    if now < rows {
        let rest = TaskInProgress::after(Duration::ZERO).output("done", now);
        return Ok(rest.into());
    }
    Outcome::output(&json!({"done": now, "deliveries": context.poll_count()}))
}

/// Returns the workers of the example.
pub fn workers() -> Vec<AnyWorker> {
    vec![import::worker()]
}

/// Imports a thousand rows.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow ends unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let definition = WorkflowDefBuilder::new("import")
        .then(simple("import_rows", "rows").input("rows", workflow_input("rows")))
        .output("done", output_of("rows", "done"))
        .output("deliveries", output_of("rows", "deliveries"))
        .build()?;
    let metadata = client.metadata();
    metadata.register_or_replace_workflow(&definition).await?;
    let request = StartWorkflowRequest::new("import").input("rows", 1000);
    let run = execute(client, &request).await?;
    let (done, deliveries) = (&run.output["done"], &run.output["deliveries"]);
    say!("conductor chunks: {done} rows in {deliveries} deliveries");
    Ok(())
}
