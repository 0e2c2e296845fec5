//! Whether a run that is pinned to a build has a worker that can take its tasks.

use longhaul_engine::rollout::build_fits;
use longhaul_protocol::id::{Namespace, TaskQueue};

use super::workers::WorkerView;
use crate::Result;
use crate::views::Workers;

/// The workers of a namespace that are neither stale nor draining, as far as the pins at hand need them.
pub struct PinnedWorkers {
    workers: Vec<WorkerView>,
}

/// Whether a run's tasks have a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildSupport {
    /// The run is not pinned, or a live worker on its queue runs the pinned build.
    Supported,
    /// No live worker on the run's queue runs the pinned build.
    NoWorker,
}

impl PinnedWorkers {
    /// Returns whether a run with this pin on this queue has a worker. `pin` must be one that the list was read for.
    pub fn support(&self, pin: Option<&str>, queue: &TaskQueue) -> BuildSupport {
        let is_supported = pin.is_none()
            || self.workers.iter().any(|worker| {
                worker.row.task_queue == *queue && build_fits(pin, worker.row.build_id.as_deref())
            });
        if is_supported {
            BuildSupport::Supported
        } else {
            BuildSupport::NoWorker
        }
    }
}

impl Workers<'_> {
    /// Returns the workers that decide about these pins. Most runs are not pinned, so workers are read only if one is.
    pub async fn pinned<'a>(
        self,
        namespace: &Namespace,
        pins: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Result<PinnedWorkers> {
        if pins.into_iter().all(|pin| pin.is_none()) {
            return Ok(PinnedWorkers {
                workers: Vec::new(),
            });
        }
        let mut workers = self.all(namespace).await?;
        workers.retain(|worker| !worker.is_stale && !worker.is_draining);
        Ok(PinnedWorkers { workers })
    }
}
