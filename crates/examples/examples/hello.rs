//! `cargo run -p longhaul-examples --example hello`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{Shown, beside, connect, hello};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> Shown {
    let client = connect().await?;
    let worker = hello::worker(Worker::builder(&client, hello::QUEUE)).build();
    beside(worker, hello::show(&client)).await
}
