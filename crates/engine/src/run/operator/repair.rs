//! An operator repairs a run. Every transition leaves a run with a task, an open call or an alarm, so a run should never be stuck.
//! `health` decides whether it is; this command applies overdue work and creates the missing task.

use longhaul_protocol::history::{EventPayload, RepairRequested};

use crate::change::CommandType;
use crate::run::draft::{Cause, Draft};
use crate::run::health;
use crate::run::message::external::{Receipt, Request, is_current, refuse_closed};
use crate::run::state::Run;
use crate::run::workflow_task::wake::LookAgain;
use crate::{Command, Decision, Moment, Rejection};

/// An operator requests a repair.
#[derive(Clone, Debug)]
pub struct RepairRun {
    pub request: Request,
}

impl Command for RepairRun {
    type Reply = Receipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Receipt> {
        if let Some(repeat) = self.request.repeat(run, CommandType::Repair, None, None) {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            return refuse_closed(draft, &self.request, CommandType::Repair, None, None);
        }
        if health::trouble(run, moment.now).is_none() {
            let outcome = "repair_not_needed";
            let command = draft.record_request(
                &self.request,
                CommandType::Repair,
                None,
                None,
                outcome,
                None,
            );
            let receipt = draft.receipt(command);
            return draft.finish(Ok(receipt));
        }
        if let Err(limit) = run.admit_events(1, moment.limits) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        let outcome = "repair_dispatched";
        let command = draft.record_request(
            &self.request,
            CommandType::Repair,
            None,
            None,
            outcome,
            None,
        );
        let before = std::mem::replace(
            &mut draft.cause,
            Cause {
                task_id: None,
                command_id: Some(command.command_id.clone()),
                principal: self.request.principal.clone(),
            },
        );
        let task_id = run.core.workflow_task.as_ref().map(|task| task.id.clone());
        draft.append(EventPayload::RepairRequested(RepairRequested {
            workflow_command_id: command.command_id.clone(),
            workflow_instance_id: draft.spec.workflow_id.clone(),
            workflow_run_id: draft.spec.run_id.clone(),
            command_type: CommandType::Repair.as_str(),
            outcome,
            liveness_state: "repair_needed",
            wait_kind: health::first_wait(run).map(|wait| wait.kind()),
            task_type: task_id.as_ref().map(|_| "workflow"),
            task_id,
        }));
        draft.cause = before;
        draft.repair();
        let receipt = draft.receipt(command);
        draft.finish(Ok(receipt))
    }
}

impl Draft<'_> {
    /// Applies due work, ends a back-off, and creates the missing task.
    fn repair(&mut self) {
        self.apply_due();
        let now = self.now;
        if let Some(task) = &mut self.core.workflow_task {
            if task.lease.is_none() && task.available_at > now {
                task.failures = 0;
                task.replay_blocked = false;
                self.workflow_task().put_off(now);
            }
            return;
        }
        let has_call = self.has_open_call();
        self.workflow_task().choose_next(LookAgain::when(!has_call));
    }
}
