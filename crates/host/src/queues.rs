//! How busy task queues are, for operators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::queue::{Caps, Usage};
use longhaul_protocol::id::{Namespace, TaskQueue};
use longhaul_store::{LeaseFilter, QueueCount, QueueKey};

use crate::Host;
use crate::dispatch::FairnessView;
use crate::error::Result;
use crate::workers::WorkerView;

/// Leases shown for one queue.
const SHOWN_LEASES_MAX: usize = 50;

/// One queue with who works on it.
#[derive(Clone, Debug)]
pub struct QueueView {
    pub name: TaskQueue,
    /// At most one per kind of task.
    pub counts: Vec<QueueCount>,
    pub workers: Vec<WorkerView>,
    /// At most one per kind of task.
    pub rates: Vec<QueueRates>,
    pub workflow_tasks: QueueAdmission,
    pub activity_tasks: QueueAdmission,
}

/// The server's caps on one kind of task of a queue, and what counts against them.
#[derive(Clone, Debug)]
pub struct QueueAdmission {
    pub caps: Arc<Caps>,
    pub usage: Usage,
}

/// What happened to one kind of task in the last minute, on this server.
#[derive(Clone, Copy, Debug)]
pub struct QueueRates {
    pub kind: TaskKind,
    pub added: u64,
    pub dispatched: u64,
}

impl Host {
    /// Every queue that has tasks or workers.
    pub async fn task_queues(&self, namespace: &Namespace) -> Result<Vec<QueueView>> {
        let mut counts: BTreeMap<TaskQueue, Vec<QueueCount>> = BTreeMap::new();
        for count in self.inner.store.queue_counts(namespace).await? {
            counts.entry(count.queue.clone()).or_default().push(count);
        }
        let workers = self.workers(namespace).await?;
        let names: BTreeSet<TaskQueue> = counts
            .keys()
            .cloned()
            .chain(workers.iter().map(|worker| worker.row.task_queue.clone()))
            .collect();
        Ok(names
            .into_iter()
            .map(|name| QueueView {
                rates: self.queue_rates(namespace, &name),
                workflow_tasks: self.admission(namespace, &name, TaskKind::Workflow),
                activity_tasks: self.admission(namespace, &name, TaskKind::Activity),
                counts: counts.remove(&name).unwrap_or_default(),
                workers: workers
                    .iter()
                    .filter(|worker| worker.row.task_queue == name)
                    .cloned()
                    .collect(),
                name,
            })
            .collect())
    }

    /// One queue and its current leases. An unknown queue is an empty one.
    pub async fn task_queue(
        &self,
        namespace: &Namespace,
        name: &TaskQueue,
    ) -> Result<(QueueView, Vec<TaskRow>)> {
        let all = self.task_queues(namespace).await?;
        let view = all.into_iter().find(|view| view.name == *name);
        let view = view.unwrap_or_else(|| QueueView {
            name: name.clone(),
            counts: Vec::new(),
            workers: Vec::new(),
            rates: self.queue_rates(namespace, name),
            workflow_tasks: self.admission(namespace, name, TaskKind::Workflow),
            activity_tasks: self.admission(namespace, name, TaskKind::Activity),
        });
        let filter = LeaseFilter {
            namespace: Some(namespace.clone()),
            owner: None,
            queue: Some(name.clone()),
            kind: None,
        };
        let leases = self
            .inner
            .store
            .leased_tasks(&filter, SHOWN_LEASES_MAX)
            .await?;
        Ok((view, leases))
    }

    /// How ready tasks of a queue stand in line.
    pub fn queue_fairness(
        &self,
        namespace: &Namespace,
        queue: &TaskQueue,
        kind: TaskKind,
    ) -> FairnessView {
        let key = QueueKey {
            namespace: namespace.clone(),
            kind,
            queue: queue.clone(),
        };
        self.inner.hub.dispatch.fairness(&key)
    }

    fn admission(
        &self,
        namespace: &Namespace,
        queue: &TaskQueue,
        kind: TaskKind,
    ) -> QueueAdmission {
        let key = QueueKey {
            namespace: namespace.clone(),
            kind,
            queue: queue.clone(),
        };
        let (caps, usage) = self.inner.hub.dispatch.admission(&key);
        QueueAdmission { caps, usage }
    }

    fn queue_rates(&self, namespace: &Namespace, queue: &TaskQueue) -> Vec<QueueRates> {
        let rates = |kind| {
            let key = QueueKey {
                namespace: namespace.clone(),
                kind,
                queue: queue.clone(),
            };
            let (added, dispatched) = self.inner.hub.dispatch.last_minute(&key);
            QueueRates {
                kind,
                added,
                dispatched,
            }
        };
        vec![rates(TaskKind::Workflow), rates(TaskKind::Activity)]
    }
}
