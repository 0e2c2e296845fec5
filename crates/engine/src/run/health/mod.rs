//! Why does this run not move? This module answers for the debug view, repair, the audit and the test environment: what an open run
//! waits for ([`waits`]), whether it is in trouble ([`trouble`], [`stuck`]), and what an operator should know ([`findings`]).
//! Everything here only reads.

mod definition;
mod findings;
mod waits;

pub use findings::{
    Blocked, Finding, HasPoller, NextEvent, diagnostic_status, findings, next_event,
};
pub use waits::{OpenWait, first_wait, waits};

use longhaul_protocol::Timestamp;

use crate::Moment;
use crate::conductor::execution::state::Execution;
use crate::run::draft::Draft;
use crate::run::state::{Part, Run};

/// How long something may be due before the alarm counts as missed.
const GRACE_SECONDS: u64 = 60;

/// What prevents an open run from moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A workflow task failed and waits for its next try.
    BackingOff,
    /// Something is due and was not applied.
    Overdue,
    /// The workflow must look at something and has no task for it.
    MissedWake,
    /// No task and no open call: nothing would ever happen.
    NothingOpen,
}

impl Trouble {
    /// Returns the name in logs and findings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BackingOff => "task_backing_off",
            Self::Overdue => "work_overdue",
            Self::MissedWake => "missed_wake",
            Self::NothingOpen => "nothing_open",
        }
    }

    /// Returns whether the run needs more than time.
    pub fn is_stuck(self) -> bool {
        match self {
            Self::BackingOff => false,
            Self::Overdue | Self::MissedWake | Self::NothingOpen => true,
        }
    }
}

/// Returns what prevents the run from moving at `now`, if anything. For operators: it also names what the next alarm would do.
pub fn trouble(run: &Run, now: Timestamp) -> Option<Trouble> {
    if run.core.closed.is_some() {
        return None;
    }
    let is_leased = match &run.core.workflow_task {
        Some(task) => match &task.lease {
            Some(lease) if lease.expires_at <= now => return Some(Trouble::Overdue),
            Some(_) => true,
            None if task.available_at > now => return Some(Trouble::BackingOff),
            None if !task.offered => return Some(Trouble::Overdue),
            None => false,
        },
        None => false,
    };
    // A paused run keeps what it has to decide; otherwise the next pass is due.
    let has_backlog = |execution: &Execution| execution.is_new || !execution.backlog.is_empty();
    let mut has_call = run.core.execution.as_deref().is_some_and(has_backlog);
    for part in run.parts.values() {
        match part {
            Part::Activity(activity) => {
                has_call = true;
                let waits = activity.attempt.is_none() && !activity.offered;
                if waits && activity.available_at <= now {
                    return Some(Trouble::Overdue);
                }
            }
            Part::LocalActivity(local) => {
                has_call = true;
                let due = local.next_due(is_leased);
                if due.is_some_and(|due| due <= now) {
                    return Some(Trouble::Overdue);
                }
            }
            Part::Timer(timer) => {
                has_call = true;
                // While a workflow task is leased, timers that fire are kept for later.
                if timer.fire_at <= now && !is_leased {
                    return Some(Trouble::Overdue);
                }
            }
            Part::Wait(_) | Part::Child(_) => has_call = true,
            Part::Update(_) if run.core.workflow_task.is_none() => {
                return Some(Trouble::MissedWake);
            }
            Part::Update(_)
            | Part::Arguments(_)
            | Part::Signal(_)
            | Part::Buffered(_)
            | Part::Adopted(_)
            | Part::Outbox(_)
            | Part::Group(_)
            | Part::Member(_)
            | Part::Outcome(_)
            | Part::Past(_)
            | Part::Value(_)
            | Part::Inbox(_) => {}
            Part::Task(task) => {
                has_call |= task.is_open();
                if task.next_due().is_some_and(|due| due <= now) {
                    return Some(Trouble::Overdue);
                }
            }
        }
    }
    if run.core.workflow_task.is_some() {
        None
    } else if run.core.next_wake.is_some() {
        Some(Trouble::MissedWake)
    } else if has_call {
        None
    } else {
        Some(Trouble::NothingOpen)
    }
}

/// Returns why an open run is stuck, or `None` if it is not: something due was not applied for a minute, or the workflow must run
/// and has no task. For the audit, which repairs the run: a run that only waits for its next alarm is healthy.
pub fn stuck(run: &Run, moment: Moment<'_>) -> Option<Trouble> {
    if run.core.closed.is_some() {
        return None;
    }
    let due = Draft::of(run, moment).next_due();
    if due.is_some_and(|due| due.plus_seconds(GRACE_SECONDS) <= moment.now) {
        return Some(Trouble::Overdue);
    }
    let has_update = || {
        run.parts
            .values()
            .any(|part| matches!(part, Part::Update(_)))
    };
    let is_idle = run.core.workflow_task.is_none();
    (is_idle && (run.core.next_wake.is_some() || has_update())).then_some(Trouble::MissedWake)
}
