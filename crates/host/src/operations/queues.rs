//! How busy task queues are, for operators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::queue::{Caps, Usage};
use longhaul_protocol::id::{Namespace, TaskQueue};
use longhaul_store::{LeaseFilter, QueueCount, QueueKey};

use crate::error::Result;
use crate::matching::dispatch::FairnessView;
use crate::registry::workers::{RegisteredWorker, WorkerView};
use crate::views::TaskQueues;

/// Leases shown for one queue.
const SHOWN_LEASES_MAX: usize = 50;

/// One queue with its workers.
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

/// The rates of one kind of task in the last minute, on this server.
#[derive(Clone, Copy, Debug)]
pub struct QueueRates {
    pub kind: TaskKind,
    pub added: u64,
    pub dispatched: u64,
}

impl TaskQueues<'_> {
    /// Returns the queues that have tasks or workers and whose names come after `after`, at most `limit`, by name; and whether
    /// there are more.
    pub async fn list(
        self,
        namespace: &Namespace,
        after: Option<&TaskQueue>,
        limit: usize,
    ) -> Result<(Vec<QueueView>, bool)> {
        let is_after = |name: &TaskQueue| after.is_none_or(|after| name > after);
        let mut counts: BTreeMap<TaskQueue, Vec<QueueCount>> = BTreeMap::new();
        for count in self.host.inner.store.queue_counts(namespace).await? {
            // Open tasks of operators have queues too, but no worker gets them.
            if is_after(&count.queue) && count.ready + count.leased > 0 {
                counts.entry(count.queue.clone()).or_default().push(count);
            }
        }
        let mut workers: BTreeMap<TaskQueue, Vec<Arc<RegisteredWorker>>> = BTreeMap::new();
        for known in self
            .host
            .workers()
            .all_known(namespace, |known| is_after(&known.row.task_queue))
            .await?
        {
            let queue = known.row.task_queue.clone();
            workers.entry(queue).or_default().push(known);
        }
        let names: BTreeSet<TaskQueue> = counts.keys().chain(workers.keys()).cloned().collect();
        let has_more = names.len() > limit;
        let views = names.into_iter().take(limit).map(|name| {
            let counts = counts.remove(&name).unwrap_or_default();
            let known = workers.remove(&name).unwrap_or_default();
            self.view(namespace, name, counts, &known)
        });
        Ok((views.collect(), has_more))
    }

    fn view(
        self,
        namespace: &Namespace,
        name: TaskQueue,
        counts: Vec<QueueCount>,
        workers: &[Arc<RegisteredWorker>],
    ) -> QueueView {
        QueueView {
            rates: self.rates(namespace, &name),
            workflow_tasks: self.admission(namespace, &name, TaskKind::Workflow),
            activity_tasks: self.admission(namespace, &name, TaskKind::Activity),
            counts,
            workers: workers
                .iter()
                .map(|known| self.host.workers().view(known))
                .collect(),
            name,
        }
    }

    /// Returns one queue and its current leases. An unknown queue is an empty one.
    pub async fn describe(
        self,
        namespace: &Namespace,
        name: &TaskQueue,
    ) -> Result<(QueueView, Vec<TaskRow>)> {
        let mut counts = self.host.inner.store.queue_counts(namespace).await?;
        counts.retain(|count| count.queue == *name);
        let workers = self
            .host
            .workers()
            .all_known(namespace, |known| known.row.task_queue == *name)
            .await?;
        let view = self.view(namespace, name.clone(), counts, &workers);
        let filter = LeaseFilter {
            namespace: Some(namespace.clone()),
            queue: Some(name.clone()),
            ..LeaseFilter::default()
        };
        let leases = self
            .host
            .inner
            .store
            .leased_tasks(&filter, SHOWN_LEASES_MAX)
            .await?;
        Ok((view, leases))
    }

    /// Returns the order of the ready tasks of a queue.
    pub fn fairness(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        kind: TaskKind,
    ) -> FairnessView {
        let key = QueueKey {
            namespace: namespace.clone(),
            kind,
            queue: queue.clone(),
        };
        self.host.inner.wakes.dispatch.fairness(&key)
    }

    fn admission(self, namespace: &Namespace, queue: &TaskQueue, kind: TaskKind) -> QueueAdmission {
        let key = QueueKey {
            namespace: namespace.clone(),
            kind,
            queue: queue.clone(),
        };
        let (caps, usage) = self.host.inner.wakes.dispatch.admission(&key);
        QueueAdmission { caps, usage }
    }

    fn rates(self, namespace: &Namespace, queue: &TaskQueue) -> Vec<QueueRates> {
        let rates = |kind| {
            let key = QueueKey {
                namespace: namespace.clone(),
                kind,
                queue: queue.clone(),
            };
            let (added, dispatched) = self.host.inner.wakes.dispatch.last_minute(&key);
            QueueRates {
                kind,
                added,
                dispatched,
            }
        };
        vec![rates(TaskKind::Workflow), rates(TaskKind::Activity)]
    }
}
