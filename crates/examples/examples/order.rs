//! `cargo run -p longhaul-examples --example order`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{ExampleResult, connect, order};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> ExampleResult {
    let client = connect().await?;
    let worker = order::worker(Worker::builder(&client, order::QUEUE)).build();
    let mut result = Ok(());
    worker
        .run_until(async { result = order::run_example(&client).await })
        .await?;
    result
}
