//! Sticky execution: a worker that keeps a run's history in memory gets its next task first. Purely an
//! optimisation: the lease stays the only fence, and a task waits for its worker a little while at most.

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{RunId, WorkerId};
use serde::{Deserialize, Serialize};

use crate::run::draft::{Draft, WorkflowTasks};

/// How long a ready task is kept for the worker that knows its run. Longer than a worker needs to come back, shorter than
/// anybody notices.
const HOLD_SECONDS: u64 = 5;

/// The worker that knows the run, until it forgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sticky {
    pub worker_id: WorkerId,
    pub until: Timestamp,
}

/// What a worker says at the end of a task: it has kept the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyClaim {
    pub worker_id: WorkerId,
    pub run_id: RunId,
    pub ttl_seconds: u64,
}

/// What a worker may expect of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayMode {
    /// It should know the run.
    StickyHitExpected,
    /// Another worker knows it.
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
    /// Takes note of the claim of the worker that finished a task; without one, the run is nobody's.
    pub(crate) fn remember_sticky(&mut self, owner: &WorkerId, claim: Option<&StickyClaim>) {
        self.draft.core.sticky = claim
            .filter(|claim| claim.worker_id == *owner && claim.run_id == *self.draft.run_id())
            .map(|claim| Sticky {
                worker_id: claim.worker_id.clone(),
                until: self.draft.now.plus_seconds(claim.ttl_seconds),
            });
    }

    /// Its worker did not come: anybody may have the task now.
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
    /// For whom a task that is created now is kept, and until when.
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
