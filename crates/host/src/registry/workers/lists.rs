//! Lists of workers, and which of them could get a task now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskQueue, WorkerId};
use longhaul_store::{PAGE_BYTES_MAX, WorkerRow};
use serde_json::{Map, Value};

use super::RegisteredWorker;
use crate::commit::weight::weight;
use crate::error::{Error, Result};
use crate::views::Workers;

/// A registration with its present state.
#[derive(Clone, Debug)]
pub struct WorkerView {
    pub row: WorkerRow,
    pub is_stale: bool,
    /// Its build drains: it gets nothing new.
    pub is_draining: bool,
}

/// The filter of a list of workers.
#[derive(Clone, Debug)]
pub struct WorkerFilter {
    pub task_queue: Option<TaskQueue>,
    /// `active`, `draining` or `stale`; `None` means those that are not stale.
    pub status: Option<String>,
    /// Only workers whose ids come after this one.
    pub after: Option<WorkerId>,
    pub limit: usize,
}

/// One page of workers.
#[derive(Clone, Debug)]
pub struct WorkerList {
    pub workers: Vec<WorkerView>,
    /// The last one, if there are more.
    pub next: Option<WorkerId>,
}

/// A summary of the live workers of a namespace.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub active: usize,
    pub queues: Vec<TaskQueue>,
    pub build_ids: Vec<String>,
    pub workers: Vec<WorkerView>,
}

impl WorkerView {
    /// Returns `active`, `draining` or `stale`.
    pub fn status(&self) -> &'static str {
        match (self.is_stale, self.is_draining) {
            (true, _) => "stale",
            (false, true) => "draining",
            (false, false) => "active",
        }
    }
}

impl Workers<'_> {
    /// Returns the view of a worker that just sent a sign of life.
    pub(super) fn fresh_view(self, row: WorkerRow) -> WorkerView {
        WorkerView {
            is_draining: self.host.rollouts().is_draining(
                &row.namespace,
                &row.task_queue,
                row.build_id.as_deref(),
            ),
            is_stale: false,
            row,
        }
    }

    pub(crate) fn view(self, known: &RegisteredWorker) -> WorkerView {
        let mut row = known.row.clone();
        let heard = Timestamp::from_micros(known.heard.load(Ordering::Relaxed));
        row.last_heartbeat_at = row.last_heartbeat_at.max(heard);
        WorkerView {
            is_stale: self.is_stale(known, self.host.now()),
            ..self.fresh_view(row)
        }
    }

    /// Returns one worker.
    pub async fn get(self, namespace: &Namespace, worker_id: &WorkerId) -> Result<WorkerView> {
        let known = self.known(namespace, worker_id).await?;
        known
            .map(|known| self.view(&known))
            .ok_or_else(|| Error::WorkerNotRegistered(worker_id.clone()))
    }

    /// Returns the workers that could get a task of this workflow type now: live, on the queue, of the type. This is the only place
    /// that decides which workers may be asked; a reason to skip a worker belongs here.
    pub(crate) fn live(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        workflow_type: &str,
    ) -> Vec<Arc<RegisteredWorker>> {
        let now = self.host.now();
        let known = self.host.inner.workers.known.read();
        known
            .values()
            .filter(|known| {
                known.row.namespace == *namespace
                    && known.row.task_queue == *queue
                    && known.runs_workflow(workflow_type)
                    && !self.is_stale(known, now)
                    && !self.host.rollouts().is_draining(
                        namespace,
                        queue,
                        known.row.build_id.as_deref(),
                    )
            })
            .map(Arc::clone)
            .collect()
    }

    /// Returns the workers that could get an activity of this type now.
    pub(crate) fn serving_activity(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        activity_type: &str,
    ) -> Vec<Arc<RegisteredWorker>> {
        let now = self.host.now();
        let known = self.host.inner.workers.known.read();
        let mut workers: Vec<Arc<RegisteredWorker>> = known
            .values()
            .filter(|known| {
                let types = &known.activity_types;
                known.row.namespace == *namespace
                    && known.row.task_queue == *queue
                    && (types.is_empty() || types.iter().any(|name| name == activity_type))
                    && !self.is_stale(known, now)
                    && !self.host.rollouts().is_draining(
                        namespace,
                        queue,
                        known.row.build_id.as_deref(),
                    )
            })
            .map(Arc::clone)
            .collect();
        workers.sort_by(|left, right| left.row.worker_id.cmp(&right.row.worker_id));
        workers
    }

    /// Returns all workers of a namespace by id.
    pub async fn all(self, namespace: &Namespace) -> Result<Vec<WorkerView>> {
        let known = self.all_known(namespace, |_| true).await?;
        Ok(known.iter().map(|known| self.view(known)).collect())
    }

    /// Returns the registrations of a namespace that match, by id. Other servers may have created some.
    pub(crate) async fn all_known(
        self,
        namespace: &Namespace,
        is_wanted: impl Fn(&RegisteredWorker) -> bool,
    ) -> Result<Vec<Arc<RegisteredWorker>>> {
        if self.host.inner.store.shared().is_some() {
            let rows = self.host.inner.store.list::<WorkerRow>(Some(namespace));
            let rows = rows.await?;
            let stored: BTreeSet<WorkerId> = rows.iter().map(|row| row.worker_id.clone()).collect();
            self.host
                .inner
                .workers
                .known
                .write()
                .retain(|(of, id), _| of != namespace || stored.contains(id));
            for row in rows {
                self.keep(row);
            }
        }
        let known = self.host.inner.workers.known.read();
        let mut wanted: Vec<Arc<RegisteredWorker>> = known
            .values()
            .filter(|known| known.row.namespace == *namespace && is_wanted(known))
            .map(Arc::clone)
            .collect();
        drop(known);
        wanted.sort_by(|left, right| left.row.worker_id.cmp(&right.row.worker_id));
        Ok(wanted)
    }

    /// Returns one page of workers by id. It ends early if they are large.
    pub async fn list(self, namespace: &Namespace, filter: &WorkerFilter) -> Result<WorkerList> {
        let now = self.host.now();
        let is_wanted = |known: &RegisteredWorker| {
            let row = &known.row;
            let status = || match (
                self.is_stale(known, now),
                self.host.rollouts().is_draining(
                    namespace,
                    &row.task_queue,
                    row.build_id.as_deref(),
                ),
            ) {
                (true, _) => "stale",
                (false, true) => "draining",
                (false, false) => "active",
            };
            filter
                .after
                .as_ref()
                .is_none_or(|after| row.worker_id > *after)
                && filter
                    .task_queue
                    .as_ref()
                    .is_none_or(|queue| row.task_queue == *queue)
                && match &filter.status {
                    Some(wanted) => status() == wanted,
                    None => !self.is_stale(known, now),
                }
        };
        let known = self.all_known(namespace, is_wanted).await?;
        let mut workers = Vec::new();
        let mut bytes = 0;
        for known in &known {
            if workers.len() >= filter.limit || bytes > PAGE_BYTES_MAX as u64 {
                break;
            }
            bytes += weight(&known.row);
            workers.push(self.view(known));
        }
        let has_more = workers.len() < known.len();
        Ok(WorkerList {
            next: workers
                .last()
                .filter(|_| has_more)
                .map(|worker| worker.row.worker_id.clone()),
            workers,
        })
    }

    /// Returns a summary of a namespace's live workers: their number, and at most `max` of them and of their queues and builds.
    pub async fn fleet(self, namespace: &Namespace, max: usize) -> Result<Fleet> {
        let now = self.host.now();
        let is_live = |known: &RegisteredWorker| !self.is_stale(known, now);
        let live = self.all_known(namespace, is_live).await?;
        let mut queues: BTreeSet<&TaskQueue> = BTreeSet::new();
        let mut build_ids: BTreeSet<&String> = BTreeSet::new();
        for known in &live {
            queues.insert(&known.row.task_queue);
            build_ids.extend(&known.row.build_id);
        }
        Ok(Fleet {
            active: live.len(),
            queues: queues.into_iter().take(max).cloned().collect(),
            build_ids: build_ids.into_iter().take(max).cloned().collect(),
            workers: live
                .iter()
                .take(max)
                .map(|known| self.view(known))
                .collect(),
        })
    }

    /// Returns whether a live worker of the queue registered the capability.
    pub(crate) fn is_offered(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        capability: &str,
    ) -> bool {
        let now = self.host.now();
        self.host.inner.workers.known.read().values().any(|known| {
            known.row.namespace == *namespace
                && known.row.task_queue == *queue
                && known.can(capability)
                && !self.is_stale(known, now)
        })
    }

    /// Returns whether this worker registered the capability.
    pub(crate) fn can(self, namespace: &Namespace, worker_id: &WorkerId, capability: &str) -> bool {
        let key = (namespace.clone(), worker_id.clone());
        let known = self.host.inner.workers.known.read();
        known.get(&key).is_some_and(|known| known.can(capability))
    }

    /// Returns the handlers that workers of this type and queue declare, as `declared_*` keys; the newest live registration counts.
    pub(crate) fn declared_contract(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        workflow_type: &str,
    ) -> Map<String, Value> {
        let now = self.host.now();
        let known = self.host.inner.workers.known.read();
        let contract = known
            .values()
            .filter(|known| {
                known.row.namespace == *namespace
                    && known.row.task_queue == *queue
                    && !self.is_stale(known, now)
            })
            .filter_map(|known| {
                known
                    .row
                    .workflow_command_contracts
                    .get(workflow_type)
                    .map(|contract| (known.row.registered_at, contract))
            })
            .max_by_key(|(registered_at, _)| *registered_at);
        let Some((_, Value::Object(contract))) = contract else {
            return Map::new();
        };
        let mut declared = Map::new();
        for (from, to) in [
            ("queries", "declared_queries"),
            ("signals", "declared_signals"),
            ("updates", "declared_updates"),
            ("query_contracts", "declared_query_contracts"),
            ("signal_contracts", "declared_signal_contracts"),
            ("update_contracts", "declared_update_contracts"),
            ("update_validators", "declared_update_validators"),
        ] {
            // An empty list declares nothing: one SDK sends it for every workflow.
            if let Some(Value::Array(list)) = contract.get(from)
                && !list.is_empty()
            {
                declared.insert(to.to_owned(), Value::Array(list.clone()));
            }
        }
        declared
    }
}
