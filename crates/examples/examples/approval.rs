//! `cargo run -p longhaul-examples --example approval`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{ExampleResult, approval, connect};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> ExampleResult {
    let client = connect().await?;
    let worker = approval::worker(Worker::builder(&client, approval::QUEUE)).build();
    let mut result = Ok(());
    worker
        .run_until(async { result = approval::run_example(&client).await })
        .await?;
    result
}
