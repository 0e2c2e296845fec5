//! Whether a run would accept a command from outside. Nothing is recorded here; the engine decides again when the command is sent.

use longhaul_engine::run::state::Run;
use longhaul_protocol::id::RunId;

use super::workflows::{CommandTarget, Description, Handlers};
use crate::Result;
use crate::views::Workflows;

/// What would become of a signal.
#[derive(Clone, Debug)]
pub struct SignalPreview {
    /// The run that the signal would reach.
    pub run_id: RunId,
    pub workflow_type: String,
    /// Whether the signal would be recorded: the run is current and open, and the workflow declares the signal.
    pub would_record: bool,
}

impl Description {
    /// Whether the run accepts signals, updates, stops and repairs.
    pub fn accepts_commands(&self) -> bool {
        accepts_commands(&self.run, self.is_current)
    }

    /// Whether the run can be archived.
    pub fn accepts_archive(&self) -> bool {
        self.is_current && self.run.core.status.is_terminal()
    }
}

/// Only the current run of a workflow accepts commands, and only while it is open.
fn accepts_commands(run: &Run, is_current: bool) -> bool {
    is_current && !run.core.status.is_terminal()
}

impl Workflows<'_> {
    /// Returns what would become of a signal.
    pub async fn preview_signal(self, target: &CommandTarget, name: &str) -> Result<SignalPreview> {
        let (run, is_current) = self
            .run(
                &target.namespace,
                &target.workflow_id,
                target.run_id.as_ref(),
            )
            .await?;
        let declared = self.declared_handlers(&run, Handlers::Signals);
        Ok(SignalPreview {
            would_record: accepts_commands(&run, is_current) && declared.knows(name),
            run_id: run.spec.run_id.clone(),
            workflow_type: run.spec.workflow_type.clone(),
        })
    }
}
