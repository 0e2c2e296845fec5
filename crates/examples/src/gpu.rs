//! A worker session: frames are rendered on one machine that keeps a model in its (pretended) graphics memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, Failure, WorkerSessionOptions, WorkflowContext,
    WorkflowResult, activity, workflow,
};

use crate::{Shown, unique};

/// The queue of this example.
pub const QUEUE: &str = "gpu";

/// What the machine offers.
pub const CAPABILITY: &str = "gpu:pretended";

/// What is in graphics memory: a model per session. It is gone with the process, and with the session.
#[derive(Default)]
pub struct Memory(Mutex<HashMap<String, (u64, String)>>);

/// Loads a model into this machine's memory.
#[activity]
pub async fn load_model(ctx: ActivityContext, model: String) -> ActivityResult<()> {
    let session = ctx
        .session()
        .ok_or_else(|| Failure::new("there is no session"))?;
    let memory = ctx.data::<Arc<Memory>>();
    let loaded = (session.generation(), model);
    memory
        .0
        .lock()
        .map_err(|_| Failure::new("the memory is broken"))?
        .insert(session.id().to_owned(), loaded);
    Ok(())
}

/// Renders with the model that is there. A session that came here anew has none: the author is told to load it again.
#[activity]
pub async fn render(ctx: ActivityContext, frame: u32) -> ActivityResult<String> {
    let session = ctx
        .session()
        .ok_or_else(|| Failure::new("there is no session"))?;
    let memory = ctx.data::<Arc<Memory>>();
    let memory = memory
        .0
        .lock()
        .map_err(|_| Failure::new("the memory is broken"))?;
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

/// Loads once, renders many times, and loads again where the session had to move to another machine.
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

/// Adds the example to a worker.
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
/// As the client fails.
pub async fn show(client: &Client) -> Shown {
    let run = client
        .start(film(3))
        .id(unique("film"))
        .queue(QUEUE)
        .await?;
    say!("gpu: {}", run.result().await?.join(", "));
    Ok(())
}
