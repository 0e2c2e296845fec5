//! A worker that stops returns its workflow task.

use longhaul_protocol::id::{TaskId, WorkerId};

use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::{Command, Decision, Moment};

/// The worker has stopped: its workflow task is ready for others at once.
#[derive(Clone, Debug)]
pub struct ReleaseWorkflowTask {
    pub task_id: TaskId,
    pub owner: WorkerId,
}

impl Command for ReleaseWorkflowTask {
    /// Whether there was a lease to end.
    type Reply = bool;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<bool> {
        let held = run.core.workflow_task.as_ref().is_some_and(|task| {
            task.id == self.task_id
                && task
                    .lease
                    .as_ref()
                    .is_some_and(|lease| lease.owner == self.owner)
        });
        if !held {
            return Decision::unchanged(false);
        }
        let mut draft = Draft::of(run, moment);
        draft.signals().flush_undecided();
        let now = draft.now;
        draft.workflow_task().put_back(now);
        draft.finish(Ok(true))
    }
}
