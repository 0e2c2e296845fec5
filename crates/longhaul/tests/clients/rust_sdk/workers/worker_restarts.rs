//! Workers that come and go: every step of a run is taken by another worker process, as far as the server can tell.

use durable_workflow::{Worker, json};

use crate::harness::ServerOptions;
use crate::rust_sdk::fixture::{Fixture, result};

const STEPS: usize = 3;

fn register_workflow(worker: &mut Worker) {
    worker.register_workflow("steps", |context, _| async move {
        let mut trail = Vec::new();
        for step in 0..STEPS {
            let drawn: u64 = context.side_effect(|| step as u64 * 100)?;
            trail.push(context.activity("step", json!([drawn])).await?);
        }
        Ok(json!(trail))
    });
}

fn register_activity(worker: &mut Worker) {
    worker.register_activity("step", |_, arguments| async move {
        Ok(json!(arguments[0].as_u64().unwrap() + 1))
    });
}

/// Runs the workflow with a fresh worker for each workflow task and each activity; `name` names the n-th.
async fn check_worker_per_step(name: impl Fn(usize) -> String) {
    let fixture = Fixture::with(ServerOptions::new().lease_seconds(5)).await;
    let handle = fixture.start_workflow("steps", "steps", json!([])).await;
    for step in 0..STEPS {
        let decides = fixture.worker_with_id(&name(2 * step), register_workflow);
        fixture
            .wait_for_events("steps", "ActivityScheduled", step + 1)
            .await;
        decides.stop().await;
        let acts = fixture.worker_with_id(&name(2 * step + 1), register_activity);
        fixture
            .wait_for_events("steps", "ActivityCompleted", step + 1)
            .await;
        acts.stop().await;
    }

    let _last = fixture.worker_with_id(&name(2 * STEPS), register_workflow);

    assert_eq!(result(&handle).await.unwrap(), json!([1, 101, 201]));
    let history = fixture.closed_history("steps").await;
    assert_eq!(history.count("SideEffectRecorded"), STEPS);
    assert_eq!(history.count("ActivityStarted"), STEPS);
}

#[tokio::test]
async fn a_new_worker_for_every_step() {
    check_worker_per_step(|number| format!("worker-{number}")).await;
}

#[tokio::test]
async fn the_same_worker_id_for_every_step() {
    check_worker_per_step(|_| "worker".to_owned()).await;
}
