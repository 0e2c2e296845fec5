//! `cargo run -p longhaul-examples --example approval`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{Shown, approval, beside, connect};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> Shown {
    let client = connect().await?;
    let worker = approval::worker(Worker::builder(&client, approval::QUEUE)).build();
    beside(worker, approval::show(&client)).await
}
