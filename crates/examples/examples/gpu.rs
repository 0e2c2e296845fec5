//! `cargo run -p longhaul-examples --example gpu`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{Shown, beside, connect, gpu};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> Shown {
    let client = connect().await?;
    let worker = gpu::worker(Worker::builder(&client, gpu::QUEUE)).build();
    beside(worker, gpu::show(&client)).await
}
