//! `cargo run -p longhaul-examples --example local`, with a server on this machine (`longhaul serve`).

use longhaul_examples::{Shown, beside, connect, local};
use longhaul_sdk::Worker;

#[tokio::main]
async fn main() -> Shown {
    let client = connect().await?;
    let worker = local::worker(Worker::builder(&client, local::QUEUE)).build();
    beside(worker, local::show(&client)).await
}
