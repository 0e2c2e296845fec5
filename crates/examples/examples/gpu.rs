//! `cargo run -p longhaul-examples --example gpu`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{ExampleResult, connect, gpu};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> ExampleResult {
    let client = connect().await?;
    let worker = gpu::worker(Worker::builder(&client, gpu::QUEUE)).build();
    let mut result = Ok(());
    worker
        .run_until(async { result = gpu::run_example(&client).await })
        .await?;
    result
}
