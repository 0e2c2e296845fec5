//! A worker with the workflows of the published example `parallel_saga`, which shows them and leaves registering to the reader.
//!
//! Built by `examples.rs`, which names that example's file in `PARALLEL_SAGA`.

mod published {
    #![allow(dead_code, reason = "its main only prints")]

    include!(env!("PARALLEL_SAGA"));

    pub(super) fn register(worker: &mut durable_workflow::Worker) {
        worker.register_workflow("nested", |ctx, _| nested_parallel(ctx));
        worker.register_workflow("inspected", |ctx, _| inspect_parallel_failure(ctx));
        worker.register_workflow("saga", |ctx, _| trip_saga(ctx));
    }
}

#[tokio::main]
async fn main() -> durable_workflow::Result<()> {
    let url = std::env::var("DURABLE_WORKFLOW_SERVER_URL").expect("DURABLE_WORKFLOW_SERVER_URL");
    let client = durable_workflow::Client::new(url)?;
    let mut worker = durable_workflow::Worker::new(client, "trip-workers").worker_id("trips");
    published::register(&mut worker);
    worker.run().await
}
