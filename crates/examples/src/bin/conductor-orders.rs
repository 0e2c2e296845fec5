//! `cargo run --release -p longhaul-examples --bin conductor-orders`, with a server on this machine (`longhaul serve`). The variable
//! `CONDUCTOR_SERVER_URL` names another server, such as `http://host:8080/api`.

use longhaul_conductor_sdk::{Client, Configuration, TaskHandler};
use longhaul_examples::{ExampleResult, conductor};

#[tokio::main]
async fn main() -> ExampleResult {
    let configuration = Configuration::from_env()?;
    let client = Client::new(&configuration)?;
    // Finds all functions with `#[worker_task]`, and runs each in a process of its own.
    let workers = TaskHandler::builder(configuration).discover().build()?;
    let mut result = Ok(());
    workers
        .run_until(async { result = conductor::run_examples(&client).await })
        .await?;
    result
}
