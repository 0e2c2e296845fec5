//! Time passes: applies everything in a run that is due. One command serves timers, deadlines, leases and retries, because all of
//! them are times at which the run must be checked; the store keeps the earliest as the alarm of the run.
//!
//! Invariant: after this, nothing in the run is due at `now`, so the alarm is in the future or `None`.

use longhaul_protocol::Timestamp;

use crate::conductor::execution::command::control;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::run::draft::{Draft, WorkflowTasks};
use crate::run::state::{Program, Run};
use crate::{Command, Decision, Moment};

/// Applies everything that is due at the time of the decision.
#[derive(Clone, Copy, Debug)]
pub struct AdvanceTime;

impl Command for AdvanceTime {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        if run.core.alarm.is_none_or(|alarm| alarm > moment.now) {
            return Decision::unchanged(());
        }
        let mut draft = Draft::of(run, moment);
        draft.outbox().redeliver_due();
        if run.core.closed.is_some()
            || draft.time_out_if_due()
            || draft.cancellation().close_if_cleanup_is_over()
        {
            return draft.finish(Ok(()));
        }
        draft.apply_due();
        draft.finish(Ok(()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        if run.core.alarm.is_none_or(|alarm| alarm > moment.now) {
            return Step::Decided(Decision::unchanged(()));
        }
        match run.spec.program {
            Program::Code => Step::Decided(self.decide(run, moment)),
            Program::Definition => control::advance(run, moment, found),
        }
    }
}

/// Returns the next time at which time changes the run. The stored alarm may be earlier.
pub fn next_due(run: &Run, moment: Moment<'_>) -> Option<Timestamp> {
    Draft::of(run, moment).next_due()
}

impl WorkflowTasks<'_, '_> {
    /// Treats the worker as lost: the same task becomes ready for the next one, and messages that arrived meanwhile enter history.
    pub(crate) fn expire_lease(&mut self) {
        let expired = self
            .draft
            .core
            .workflow_task
            .as_ref()
            .and_then(|task| task.lease.as_ref())
            .is_some_and(|lease| lease.expires_at <= self.draft.now);
        if expired {
            self.draft.signals().flush_undecided();
            if let Some(task) = &mut self.draft.core.workflow_task {
                task.expired = task.lease.clone().map(Box::new);
            }
            let now = self.draft.now;
            self.put_back(now);
        }
    }

    /// Makes a postponed task ready.
    fn offer(&mut self) {
        let now = self.draft.now;
        let Some(task) = &mut self.draft.core.workflow_task else {
            return;
        };
        if task.lease.is_none() && !task.offered && task.available_at <= now {
            task.offered = true;
            self.show();
        }
    }
}

impl Draft<'_> {
    /// Applies everything of an open run that is due, except its deadlines and outbox messages.
    pub(crate) fn apply_due(&mut self) {
        self.workflow_task().expire_lease();
        self.workflow_task().offer();
        self.workflow_task().end_reservation();
        self.timers().fire_due();
        self.activities().expire_due();
        self.elapse_locals();
    }
}
