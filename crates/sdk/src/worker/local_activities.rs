//! The local-activity runtime: runs the local calls of a workflow task under its lease (local-activities.md).
//!
//! A server that can writes every attempt down as it happens (`durable`): a lost worker leaves a trace, and pauses between
//! attempts cost no lease. Any other server hears the whole story with the completion (`inline`).

mod attempt;
mod durable;
mod inline;

use std::sync::Arc;

use super::shared::Shared;
use super::wire::{Capabilities, WorkflowTask};
use super::workflow_tasks::Stopped;
use crate::definition::ActivityDefinition;
use crate::workflow::{Execution, ReplayError};

/// Runs every local activity that the code waits for, and the code after each.
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

/// The function behind a local call: registered for this worker's workflows only, or for its queue as well.
fn definition<'a>(shared: &'a Shared, activity_type: &str) -> Option<&'a ActivityDefinition> {
    let local = shared.local_activities.get(activity_type);
    local.or_else(|| shared.activities.get(activity_type))
}
