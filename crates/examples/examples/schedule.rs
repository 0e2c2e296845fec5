//! `cargo run -p longhaul-examples --example schedule`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{ExampleResult, connect, schedule};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> ExampleResult {
    let client = connect().await?;
    let worker = schedule::worker(Worker::builder(&client, schedule::QUEUE)).build();
    let mut result = Ok(());
    worker
        .run_until(async { result = schedule::run_example(&client).await })
        .await?;
    result
}
