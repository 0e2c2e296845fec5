//! Whether a run would accept a command from outside. Nothing is recorded here; the engine decides again when the command is sent.

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
        self.run.accepts_commands(&self.current_run_id)
    }

    /// Whether the run can be archived.
    pub fn accepts_archive(&self) -> bool {
        self.run.accepts_archive(&self.current_run_id)
    }
}

impl Workflows<'_> {
    /// Returns what would become of a signal.
    pub async fn preview_signal(self, target: &CommandTarget, name: &str) -> Result<SignalPreview> {
        let description = self
            .describe(
                &target.namespace,
                &target.workflow_id,
                target.run_id.as_ref(),
            )
            .await?;
        let run = &description.run;
        let declared = self.declared_handlers(run, Handlers::Signals);
        Ok(SignalPreview {
            would_record: description.accepts_commands() && declared.knows(name),
            run_id: run.spec.run_id.clone(),
            workflow_type: run.spec.workflow_type.clone(),
        })
    }
}
