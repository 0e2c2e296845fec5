//! Whether a run's pinned build has a worker (control-plane.md §8.2). Most runs are not pinned, so workers are looked up only when
//! one on the page is.

use longhaul_host::engine::rollout::build_fits;
use longhaul_host::{Host, WorkerView};
use longhaul_protocol::id::{Namespace, TaskQueue};
use serde_json::{Map, Value, json};

use crate::gate::Refusal;

/// The workers of a namespace that may be given work, as far as the runs at hand need them.
pub(super) struct Fleet {
    live: Vec<WorkerView>,
}

impl Fleet {
    /// What is needed to judge these pins.
    pub(super) async fn for_pins(
        host: &Host,
        namespace: &Namespace,
        any_pinned: bool,
    ) -> Result<Self, Refusal> {
        if !any_pinned {
            return Ok(Self { live: Vec::new() });
        }
        let mut live = host.workers(namespace).await?;
        live.retain(|worker| !worker.is_stale && !worker.is_draining);
        Ok(Self { live })
    }

    /// Adds the four compatibility fields of one run.
    pub(super) fn judge(
        &self,
        body: &mut Map<String, Value>,
        pin: Option<&str>,
        queue: &TaskQueue,
    ) {
        let supported = pin.is_none_or(|pin| {
            self.live.iter().any(|worker| {
                worker.row.task_queue == *queue
                    && build_fits(Some(pin), worker.row.build_id.as_deref())
            })
        });
        let reason = pin
            .filter(|_| !supported)
            .map(|pin| format!("no live worker on queue {queue} takes work of build {pin}"));
        body.insert("compatibility".to_owned(), json!(pin));
        body.insert(
            "compatibility_status".to_owned(),
            json!(if supported {
                "compatible"
            } else {
                "no_compatible_worker"
            }),
        );
        body.insert(
            "compatibility_supported_in_fleet".to_owned(),
            json!(supported),
        );
        body.insert("compatibility_fleet_reason".to_owned(), json!(reason));
    }
}
