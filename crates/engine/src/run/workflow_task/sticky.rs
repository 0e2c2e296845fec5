//! Sticky execution: a worker that keeps a run's history in memory gets its next task first. This is only an optimisation: the
//! lease stays the only fence, and a task waits for its worker for a short time at most.

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{RunId, WorkerId};
use serde::{Deserialize, Serialize};

use crate::run::draft::{Draft, WorkflowTasks};

/// How long a ready task is reserved for the worker that has its run in memory: longer than a worker needs to poll again, short
/// enough not to be noticed.
const HOLD_SECONDS: u64 = 5;

/// The worker that has the run in memory, until it drops it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sticky {
    pub worker_id: WorkerId,
    pub until: Timestamp,
}

/// A worker's report at the end of a task that it has kept the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyClaim {
    pub worker_id: WorkerId,
    pub run_id: RunId,
    pub ttl_seconds: u64,
}

/// What a worker may expect of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayMode {
    /// It should have the run in memory.
    StickyHitExpected,
    /// Another worker has it in memory.
    ForcedColdReplay,
    ColdReplay,
}

impl ReplayMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StickyHitExpected => "sticky_hit_expected",
            Self::ForcedColdReplay => "forced_cold_replay",
            Self::ColdReplay => "cold_replay",
        }
    }
}

impl WorkflowTasks<'_, '_> {
    /// Records the worker that finished a task as sticky if it kept the history; otherwise the run has no sticky worker.
    pub(crate) fn record_sticky(&mut self, owner: &WorkerId, claim: Option<&StickyClaim>) {
        self.draft.core.sticky = claim
            .filter(|claim| claim.worker_id == *owner && claim.run_id == *self.draft.run_id())
            .map(|claim| Sticky {
                worker_id: claim.worker_id.clone(),
                until: self.draft.now.plus_seconds(claim.ttl_seconds),
            });
    }

    /// Ends the reservation: its worker did not poll, and any worker may lease the task now.
    pub(crate) fn end_reservation(&mut self) {
        let now = self.draft.now;
        let Some(task) = &mut self.draft.core.workflow_task else {
            return;
        };
        if task.lease.is_none() && task.held.as_ref().is_some_and(|held| held.until <= now) {
            task.held = None;
            self.show();
        }
    }
}

impl Draft<'_> {
    /// Returns the worker that a task created now is reserved for, and until when.
    pub(crate) fn sticky_reservation(&self) -> Option<Sticky> {
        let sticky = self.core.sticky.as_ref()?;
        (sticky.until > self.now).then(|| Sticky {
            worker_id: sticky.worker_id.clone(),
            until: sticky.until.min(self.now.plus_seconds(HOLD_SECONDS)),
        })
    }

    pub(crate) fn replay_mode(&self, worker_id: &WorkerId) -> ReplayMode {
        match &self.core.sticky {
            Some(sticky) if sticky.until <= self.now => ReplayMode::ColdReplay,
            Some(sticky) if sticky.worker_id == *worker_id => ReplayMode::StickyHitExpected,
            Some(_) => ReplayMode::ForcedColdReplay,
            None => ReplayMode::ColdReplay,
        }
    }
}
