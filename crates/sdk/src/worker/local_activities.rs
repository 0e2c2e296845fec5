//! The local-activity runtime: runs the local calls of a workflow task under its lease (local-activities.md).

use std::sync::Arc;

use super::shared::Shared;
use super::wire::WorkflowTask;
use super::workflow_tasks::Stopped;
use crate::workflow::Execution;

/// Runs every local activity that the code waits for, and the code after each.
pub(super) async fn run(
    _shared: &Arc<Shared>,
    _task: &WorkflowTask,
    execution: &mut Execution,
) -> Result<(), Stopped> {
    assert!(execution.journal().open_local_calls().is_empty());
    Ok(())
}
