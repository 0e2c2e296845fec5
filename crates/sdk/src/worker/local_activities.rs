//! Runs the local activities of a workflow task under its lease.
//!
//! If the server supports it, every attempt is recorded as it happens (`durable`): a lost worker leaves a record, and no lease is
//! held during the pause between two attempts. Otherwise all attempts are reported with the completion of the task (`inline`).

mod attempt;
mod durable;
mod inline;

use std::sync::Arc;

use super::shared::Shared;
use super::wire::{Capabilities, WorkflowTask};
use super::workflow_tasks::Stopped;
use crate::definition::ActivityDefinition;
use crate::workflow::{Execution, ReplayError};

/// Runs every local activity that the code waits for. The code continues after each one.
pub(super) async fn run(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    execution: &mut Execution,
) -> Result<(), Stopped> {
    if execution.journal().open_local_calls().is_empty() {
        return Ok(());
    }
    let server = shared.capabilities.read().clone();
    if !server.durable_local_activities && !Capabilities::has(&server.local_activities) {
        return Err(Stopped::Replay(ReplayError::MissingCapability {
            capability: "local_activities",
        }));
    }
    if server.durable_local_activities {
        return Box::pin(durable::run(shared, task, execution)).await;
    }
    Box::pin(inline::run(shared, task, execution)).await
}

/// Returns the definition of a local activity: one that is registered for local calls only, or for the task queue as well.
fn definition<'a>(shared: &'a Shared, activity_type: &str) -> Option<&'a ActivityDefinition> {
    let local = shared.local_activities.get(activity_type);
    local.or_else(|| shared.activities.get(activity_type))
}
