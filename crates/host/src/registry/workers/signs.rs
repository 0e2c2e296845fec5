//! Signs of life. Every poll updates the time of the last one in memory; heartbeats store it. Those that came to other servers arrive with
//! the presence of these servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkerId};
use longhaul_store::{HeardWorker, WorkerRow, document};
use serde_json::Value;

use super::{RegisteredWorker, WorkerView};
use crate::error::{Error, Result};
use crate::matching::poll::Poll;
use crate::views::Workers;

impl RegisteredWorker {
    /// Records a sign of life that came to this server.
    pub(super) fn hear(&self, now: Timestamp) {
        self.heard.fetch_max(now.as_micros(), Ordering::Relaxed);
        self.heard_here.store(now.as_micros(), Ordering::Relaxed);
    }

    /// Returns the last sign of life that came to this server.
    pub(crate) fn heard_here(&self) -> Option<Timestamp> {
        let heard = self.heard_here.load(Ordering::Relaxed);
        (heard != 0).then(|| Timestamp::from_micros(heard))
    }
}

impl Workers<'_> {
    /// Records a sign of life that came to another server.
    pub(crate) async fn heard_elsewhere(self, heard: &HeardWorker) -> Result<()> {
        let known = self.known(&heard.namespace, &heard.worker_id).await?;
        if let Some(known) = known {
            let at = heard.heard_at.as_micros();
            known.heard.fetch_max(at, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn is_stale(self, known: &RegisteredWorker, now: Timestamp) -> bool {
        let heard = Timestamp::from_micros(known.heard.load(Ordering::Relaxed));
        heard.plus_seconds(self.host.inner.config.worker_stale_seconds) < now
    }

    /// Returns when the worker becomes stale, without another sign of life.
    pub(crate) fn stale_from(self, known: &RegisteredWorker) -> Timestamp {
        let heard = known.heard.load(Ordering::Relaxed);
        let last =
            Timestamp::from_micros(heard).plus_seconds(self.host.inner.config.worker_stale_seconds);
        Timestamp::from_micros(last.as_micros().saturating_add(1))
    }

    /// Returns when the worker is deleted, without another sign of life.
    pub(crate) fn removed_from(self, known: &RegisteredWorker) -> Timestamp {
        let config = &self.host.inner.config;
        let heard = Timestamp::from_micros(known.heard.load(Ordering::Relaxed));
        let silence = config.worker_stale_seconds;
        heard.plus_seconds(silence.saturating_add(config.worker_forget_seconds))
    }

    /// Returns the registration for a poll, which must match it. A poll is a sign of life.
    pub(crate) async fn polling(self, poll: &Poll) -> Result<Arc<RegisteredWorker>> {
        let known = self.known(&poll.namespace, &poll.worker_id).await?;
        let known = known.ok_or_else(|| Error::WorkerNotRegistered(poll.worker_id.clone()))?;
        known.hear(self.host.now());
        let row = &known.row;
        if row.task_queue != poll.task_queue {
            return Err(Error::TaskQueueMismatch {
                registered: row.task_queue.clone(),
                requested: poll.task_queue.clone(),
            });
        }
        if poll.build_id.is_some() && poll.build_id != row.build_id {
            return Err(Error::BuildIdMismatch {
                registered: row.build_id.clone(),
                requested: poll.build_id.clone(),
            });
        }
        Ok(known)
    }

    /// Records a heartbeat, which may contain the load of the worker.
    pub async fn heartbeat(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
        task_slots: Option<Value>,
        process_metrics: Option<Value>,
    ) -> Result<WorkerView> {
        let now = self.host.now();
        let not_registered = || Error::WorkerNotRegistered(worker_id.clone());
        let change = |stored: Option<WorkerRow>| {
            let mut row = stored.ok_or_else(not_registered)?;
            row.last_heartbeat_at = now;
            row.task_slots = task_slots.clone().or(row.task_slots);
            row.process_metrics = process_metrics.clone().or(row.process_metrics);
            Ok::<_, Error>(Some(row))
        };
        let key = document::key::<WorkerRow>(namespace.as_str(), worker_id.as_str(), "");
        // Other servers hear of the worker by the presence of this one.
        let store = &self.host.inner.store;
        let changed = store.change_quietly(key, now, change).await?;
        let row = changed.ok_or_else(not_registered)?;
        self.keep_heard(row.clone(), now);
        Ok(self.fresh_view(row))
    }
}
