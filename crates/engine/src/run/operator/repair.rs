//! Is something stuck that should not be, and what puts it right (engine.md §12.4). By construction nothing is: every transition
//! leaves a run with a task, an open call or an alarm. This is the second look, for operators (`repair`) and for the day on which
//! that is not true.

use longhaul_protocol::history::{EventPayload, RepairRequested};

use crate::run::draft::{Cause, Draft};
use crate::run::message::external::{Receipt, Request, is_current, refuse_closed};
use crate::run::operator::view::waits_for;
use crate::run::state::{Part, Run};
use crate::{Command, Decision, Moment, Rejection};

/// What an open run lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A workflow task failed and waits for its next try.
    BackingOff,
    /// Something is due and was not done.
    Overdue,
    /// The workflow was to look at something and has no task for it.
    MissedWake,
    /// No task and no open call: nothing would ever happen.
    NothingOpen,
}

impl Need {
    /// For people and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BackingOff => "task_backing_off",
            Self::Overdue => "work_overdue",
            Self::MissedWake => "missed_wake",
            Self::NothingOpen => "nothing_open",
        }
    }

    /// Whether time alone will not help.
    pub fn is_stuck(self) -> bool {
        match self {
            Self::BackingOff => false,
            Self::Overdue | Self::MissedWake | Self::NothingOpen => true,
        }
    }
}

/// What the run lacks at `now`, if anything.
pub fn need(run: &Run, now: longhaul_protocol::Timestamp) -> Option<Need> {
    if run.core.closed.is_some() {
        return None;
    }
    let is_leased = match &run.core.workflow_task {
        Some(task) => match &task.lease {
            Some(lease) if lease.expires_at <= now => return Some(Need::Overdue),
            Some(_) => true,
            None if task.available_at > now => return Some(Need::BackingOff),
            None if !task.offered => return Some(Need::Overdue),
            None => false,
        },
        None => false,
    };
    let mut has_call = false;
    for part in run.parts.values() {
        match part {
            Part::Activity(activity) => {
                has_call = true;
                let waits = activity.attempt.is_none() && !activity.offered;
                if waits && activity.available_at <= now {
                    return Some(Need::Overdue);
                }
            }
            Part::LocalActivity(local) => {
                has_call = true;
                let due = local.next_due(is_leased);
                if due.is_some_and(|due| due <= now) {
                    return Some(Need::Overdue);
                }
            }
            Part::Timer(timer) => {
                has_call = true;
                // While the workflow decides, what fires is kept for later.
                if timer.fire_at <= now && !is_leased {
                    return Some(Need::Overdue);
                }
            }
            Part::Wait(_) | Part::Child(_) => has_call = true,
            Part::Update(_) if run.core.workflow_task.is_none() => return Some(Need::MissedWake),
            Part::Update(_)
            | Part::Arguments(_)
            | Part::Signal(_)
            | Part::Buffered(_)
            | Part::Adopted(_)
            | Part::Outbox(_)
            | Part::Group(_)
            | Part::Member(_)
            | Part::Outcome(_) => {}
        }
    }
    if run.core.workflow_task.is_some() {
        None
    } else if run.core.next_wake.is_some() {
        Some(Need::MissedWake)
    } else if has_call {
        None
    } else {
        Some(Need::NothingOpen)
    }
}

/// An operator asks for a second look.
#[derive(Clone, Debug)]
pub struct RepairRun {
    pub request: Request,
}

impl Command for RepairRun {
    type Reply = Receipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Receipt> {
        if let Some(repeat) = self.request.repeat(run, "repair", None, None) {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            return refuse_closed(draft, &self.request, "repair", None, None);
        }
        if need(run, moment.now).is_none() {
            let outcome = "repair_not_needed";
            let command = draft.record_request(&self.request, "repair", None, None, outcome, None);
            let receipt = draft.receipt(command);
            return draft.finish(Ok(receipt));
        }
        if let Err(limit) = run.admit_events(1, moment.limits) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        let outcome = "repair_dispatched";
        let command = draft.record_request(&self.request, "repair", None, None, outcome, None);
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
            command_type: "repair",
            outcome,
            liveness_state: "repair_needed",
            wait_kind: waits_for(run).map(|(kind, _)| kind),
            task_type: task_id.as_ref().map(|_| "workflow"),
            task_id,
        }));
        draft.cause = before;
        draft.put_right();
        let receipt = draft.receipt(command);
        draft.finish(Ok(receipt))
    }
}

impl Draft<'_> {
    /// Does what is due, ends a back-off, and makes the task that is missing.
    fn put_right(&mut self) {
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
        self.workflow_task().choose_next(!has_call);
    }
}
