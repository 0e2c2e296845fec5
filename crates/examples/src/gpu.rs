//! A worker session: one machine renders all frames, because it has the model in its (simulated) graphics memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, WorkerSessionOptions, WorkflowContext,
    WorkflowResult, activity, workflow,
};

use crate::{ExampleResult, unique};

/// The task queue of this example.
pub const QUEUE: &str = "gpu";

/// The capability of the machine.
pub const CAPABILITY: &str = "gpu:simulated";

/// The graphics memory: one model per session. It is lost with the process or the session.
#[derive(Default)]
pub struct Memory(Mutex<HashMap<String, (u64, String)>>);

/// Loads a model into the memory of this machine.
#[activity]
pub async fn load_model(ctx: ActivityContext, model: String) -> ActivityResult<()> {
    let session = ctx
        .session()
        .ok_or_else(|| Failure::new("this activity must run in a session"))?;
    let memory = ctx.data::<Arc<Memory>>();
    let loaded = (session.generation(), model);
    memory
        .0
        .lock()
        .map_err(|_| Failure::new("the graphics memory is poisoned"))?
        .insert(session.id().to_owned(), loaded);
    Ok(())
}

/// Renders with the loaded model. After the session was acquired again, the model must be loaded again.
#[activity]
pub async fn render(ctx: ActivityContext, frame: u32) -> ActivityResult<String> {
    let session = ctx
        .session()
        .ok_or_else(|| Failure::new("this activity must run in a session"))?;
    let memory = ctx.data::<Arc<Memory>>();
    let memory = memory
        .0
        .lock()
        .map_err(|_| Failure::new("the graphics memory is poisoned"))?;
    match memory.get(session.id()) {
        Some((generation, model)) if *generation == session.generation() => {
            Ok(format!("frame {frame} by {model}"))
        }
        _ => Err(Failure::of_type(
            "ModelMissing",
            "the model must be loaded on this machine",
        )),
    }
}

/// Loads the model, renders the frames, and loads the model again if the session moved to another machine.
#[workflow]
pub async fn film(ctx: WorkflowContext, frames: u32) -> WorkflowResult<Vec<String>> {
    let options =
        WorkerSessionOptions::new(format!("film-{}", ctx.info().run_id)).requires(CAPABILITY);
    let gpu = ctx.session(options);
    gpu.activity(load_model("a model".to_owned())).await?;
    let mut rendered = Vec::new();
    for frame in 1..=frames {
        loop {
            match gpu.activity(render(frame)).await {
                Ok(picture) => break rendered.push(picture),
                Err(error) if error.exception_type.as_deref() == Some("ModelMissing") => {
                    gpu.activity(load_model("a model".to_owned())).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(rendered)
}

/// Registers the workflows and activities of the example.
pub fn worker(builder: WorkerBuilder) -> WorkerBuilder {
    builder
        .workflow::<film>()
        .activity::<load_model>()
        .activity::<render>()
        .capability(CAPABILITY)
        .data(Arc::new(Memory::default()))
}

/// Renders three frames.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow fails unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let run = client
        .start(film(3))
        .id(unique("film"))
        .queue(QUEUE)
        .await?;
    say!("gpu: {}", run.result().await?.join(", "));
    Ok(())
}
