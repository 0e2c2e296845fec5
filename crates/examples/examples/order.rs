//! `cargo run -p longhaul-examples --example order`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{Shown, beside, connect, order};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> Shown {
    let client = connect().await?;
    let worker = order::worker(Worker::builder(&client, order::QUEUE)).build();
    beside(worker, order::show(&client)).await
}
