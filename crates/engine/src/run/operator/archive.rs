//! An operator excludes a closed run from retention. No other command changes a closed run.

use longhaul_protocol::history::{ArchiveRequested, EventPayload, WorkflowArchived};
use longhaul_protocol::id::RunId;

use crate::change::CommandType;
use crate::run::draft::{Cause, Draft};
use crate::run::message::external::{Receipt, Request, is_current};
use crate::run::state::{Archived, Run};
use crate::{Command, Decision, Moment, Rejection};

/// Archives the run.
#[derive(Clone, Debug)]
pub struct ArchiveRun {
    pub request: Request,
    pub reason: Option<String>,
}

impl Run {
    /// Returns whether the run can be archived. Only the current run of a workflow can, and only after it is closed.
    pub fn accepts_archive(&self, current_run_id: &RunId) -> bool {
        self.run_id() == current_run_id && self.core.status.is_terminal()
    }
}

impl Command for ArchiveRun {
    type Reply = Receipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Receipt> {
        if let Some(repeat) = self.request.repeat(run, CommandType::Archive, None, None) {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        let Some(closed) = &run.core.closed else {
            // A run past its deadline closes now, and can be archived by the next request.
            draft.time_out_if_due();
            // The request id stays free: nothing changed, and the same request can succeed once the run is closed.
            let request = Request {
                request_id: None,
                ..self.request.clone()
            };
            draft.record_request(
                &request,
                CommandType::Archive,
                None,
                None,
                "rejected_run_not_closed",
                Some("run_not_closed"),
            );
            return draft.finish(Err(Rejection::RunNotClosed));
        };
        let is_first = closed.archived.is_none();
        let outcome = if is_first {
            "archived"
        } else {
            "archive_not_needed"
        };
        let mut command = draft.record_request(
            &self.request,
            CommandType::Archive,
            None,
            None,
            outcome,
            None,
        );
        command.reason.clone_from(&self.reason);
        if let Some(row) = draft.commands.last_mut() {
            row.reason.clone_from(&self.reason);
        }
        if !is_first {
            let receipt = draft.receipt(command);
            return draft.finish(Ok(receipt));
        }
        draft.cause = Cause {
            task_id: None,
            command_id: Some(command.command_id.clone()),
            principal: self.request.principal.clone(),
        };
        draft.append(EventPayload::ArchiveRequested(ArchiveRequested {
            workflow_command_id: command.command_id.clone(),
            workflow_instance_id: draft.spec.workflow_id.clone(),
            workflow_run_id: draft.spec.run_id.clone(),
            command_type: CommandType::Archive.as_str(),
            outcome,
            reason: self.reason.clone(),
        }));
        draft.append(EventPayload::WorkflowArchived(WorkflowArchived {
            workflow_command_id: command.command_id.clone(),
            workflow_instance_id: draft.spec.workflow_id.clone(),
            workflow_run_id: draft.spec.run_id.clone(),
            archive_command_id: command.command_id.clone(),
            reason: self.reason.clone(),
        }));
        let archived = Archived {
            at: draft.now,
            command_id: command.command_id.clone(),
            reason: self.reason.clone(),
        };
        if let Some(closed) = &mut draft.core.closed {
            closed.archived = Some(Box::new(archived));
        }
        let receipt = draft.receipt(command);
        draft.finish(Ok(receipt))
    }
}
