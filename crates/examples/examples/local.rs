//! `cargo run -p longhaul-examples --example local`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{ExampleResult, connect, local};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> ExampleResult {
    let client = connect().await?;
    let worker = local::worker(Worker::builder(&client, local::QUEUE)).build();
    let mut result = Ok(());
    worker
        .run_until(async { result = local::run_example(&client).await })
        .await?;
    result
}
