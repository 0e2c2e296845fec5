//! `cargo run -p longhaul-examples --example hello`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{ExampleResult, connect, hello};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> ExampleResult {
    let client = connect().await?;
    let worker = hello::worker(Worker::builder(&client, hello::QUEUE)).build();
    let mut result = Ok(());
    worker
        .run_until(async { result = hello::run_example(&client).await })
        .await?;
    result
}
