//! `cargo run -p longhaul-examples --example schedule`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{Shown, beside, connect, schedule};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> Shown {
    let client = connect().await?;
    let worker = schedule::worker(Worker::builder(&client, schedule::QUEUE)).build();
    beside(worker, schedule::show(&client)).await
}
