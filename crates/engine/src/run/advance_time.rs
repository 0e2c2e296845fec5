//! Time passes: everything of a run that is due by itself. One command serves timers, deadlines, leases and retries, because
//! all of them are moments at which the run must be looked at; the store keeps the earliest as the run's alarm.
//!
//! Invariant: after this, nothing in the run is due at `now`, so the alarm lies in the future or is none.

use longhaul_protocol::Timestamp;

use crate::run::draft::{Draft, WorkflowTasks};
use crate::run::state::Run;
use crate::{Command, Decision, Moment};

/// Does whatever is due at the moment of the decision.
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
}

/// When time next does something to the run. The alarm that is stored with it may be earlier.
pub fn next_due(run: &Run, moment: Moment<'_>) -> Option<Timestamp> {
    Draft::of(run, moment).next_due()
}

impl WorkflowTasks<'_, '_> {
    /// The worker is taken for lost: the same task goes to the next one, and what arrived meanwhile enters history.
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

    /// A task that was put off is ready now.
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
    /// Everything of an open run that is due, but for its deadlines and letters.
    pub(crate) fn apply_due(&mut self) {
        self.workflow_task().expire_lease();
        self.workflow_task().offer();
        self.workflow_task().end_reservation();
        self.timers().fire_due();
        self.activities().expire_due();
        self.elapse_locals();
    }
}
