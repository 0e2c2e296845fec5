//! The decisions of operators about the builds of a queue, and their effect on polls and starts. The rules are in
//! `engine::rollout`; this module supplies rows and workers, and notifies the waiting polls of a change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::rollout::{self, Blockage, Change, Member, Rollout, StartRefusal};
use longhaul_protocol::id::{Namespace, TaskQueue};
use longhaul_store::{Error as StoreError, Together, document};
use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::Host;
use crate::error::{Error, Result};
use crate::registry::workers::WorkerView;
use crate::views::Rollouts;

/// How long starts of a server that is alone use the decisions that were read. Another one may have begun a moment ago.
const STARTS_USE: Duration = Duration::from_secs(1);

/// All decisions about cohorts, by their queue.
type ByQueue = HashMap<(Namespace, TaskQueue), Arc<Vec<Rollout>>>;

/// All decisions about the cohorts of each queue.
pub(crate) struct RolloutTable {
    by_queue: RwLock<ByQueue>,
    /// Notified of every change, so that a waiting poll checks again.
    changed: watch::Sender<()>,
    /// One change at a time: each is decided on the outcome of the one before.
    changing: Mutex<()>,
    /// When all decisions were last read.
    read_at: RwLock<Option<Instant>>,
    /// Starts at the same time share a read.
    reads: Arc<Together<(), ()>>,
}

impl Default for RolloutTable {
    fn default() -> Self {
        Self {
            by_queue: RwLock::default(),
            changed: watch::Sender::new(()),
            changing: Mutex::default(),
            read_at: RwLock::default(),
            reads: Arc::default(),
        }
    }
}

impl RolloutTable {
    fn of(&self, namespace: &Namespace, queue: &TaskQueue) -> Arc<Vec<Rollout>> {
        let key = (namespace.clone(), queue.clone());
        self.by_queue.read().get(&key).cloned().unwrap_or_default()
    }

    /// Returns a receiver that is notified of every change. Subscribe first, check second, wait third.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn replace(&self, rows: Vec<Rollout>) {
        let mut by_queue: HashMap<_, Vec<Rollout>> = HashMap::new();
        for row in rows {
            let key = (row.namespace.clone(), row.task_queue.clone());
            by_queue.entry(key).or_default().push(row);
        }
        let fresh: ByQueue = by_queue
            .into_iter()
            .map(|(key, rows)| (key, Arc::new(rows)))
            .collect();
        let mut known = self.by_queue.write();
        if *known != fresh {
            *known = fresh;
            drop(known);
            self.changed.send_replace(());
        }
    }
}

/// A cohort with its workers.
#[derive(Clone, Debug)]
pub struct Cohort {
    pub rollout: Rollout,
    pub workers: Vec<WorkerView>,
    /// Whether new runs without a build of their own are pinned to this one.
    pub is_selected: bool,
    /// Workflow types of which its live workers have several definitions, and how many.
    pub fingerprint_conflicts: Vec<(String, usize)>,
    /// `pending`, `active`, `promoted`, `draining`, `drained` or `rolled_back`.
    pub state: &'static str,
}

/// Why a change was refused.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub cohort: Cohort,
    pub blockages: Vec<Blockage>,
}

impl Rollouts<'_> {
    pub(crate) async fn load(self) -> Result<()> {
        let began = Instant::now();
        let rows = self.host.inner.store.list::<Rollout>(None).await?;
        self.host.inner.rollouts.replace(rows);
        *self.host.inner.rollouts.read_at.write() = Some(began);
        Ok(())
    }

    /// As [`Self::refresh`], for a start. It follows every decision that was answered before, at any server; a hint may be late. Starts
    /// at the same time share a statement.
    async fn refresh_for_start(self) -> Result<()> {
        if self.host.inner.store.shared().is_some() && self.host.inner.presence.had_others() {
            let host = self.host.clone();
            let read = move |starts: Vec<()>| {
                let host = host.clone();
                async move {
                    let rows = host.inner.store.list::<Rollout>(None).await?;
                    host.inner.rollouts.replace(rows);
                    Ok(starts)
                }
            };
            let reads = Arc::clone(&self.host.inner.rollouts.reads);
            return Ok(reads.ask((), read).await?);
        }
        let read_at = *self.host.inner.rollouts.read_at.read();
        if read_at.is_some_and(|at| at.elapsed() < STARTS_USE) {
            return Ok(());
        }
        self.refresh().await
    }

    /// Reads the decisions that other servers wrote, if there are other servers.
    pub(crate) async fn refresh(self) -> Result<()> {
        if self.host.inner.store.shared().is_some() {
            self.load().await?;
        }
        Ok(())
    }

    /// Returns whether a worker of that build gets nothing now.
    pub(crate) fn is_draining(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        build_id: Option<&str>,
    ) -> bool {
        let rollouts = self.host.inner.rollouts.of(namespace, queue);
        rollout::is_draining(&rollouts, build_id)
    }

    /// Returns every cohort of a queue that has workers or a decision, the one without a build id first.
    pub async fn cohorts(self, namespace: &Namespace, queue: &TaskQueue) -> Result<Vec<Cohort>> {
        self.refresh().await?;
        let workers = self.workers_of(namespace, queue).await?;
        let rollouts = self.host.inner.rollouts.of(namespace, queue);
        let mut builds: Vec<Option<String>> = workers
            .iter()
            .map(|worker| worker.row.build_id.clone())
            .chain(rollouts.iter().map(|rollout| rollout.build_id.clone()))
            .collect();
        builds.sort();
        builds.dedup();
        Ok(builds
            .into_iter()
            .map(|build_id| cohort(&rollouts, &workers, namespace, queue, build_id))
            .collect())
    }

    /// Returns every queue that has cohorts.
    pub async fn cohort_queues(self, namespace: &Namespace) -> Result<Vec<TaskQueue>> {
        self.refresh().await?;
        let known = self.host.workers().all_known(namespace, |_| true).await?;
        let mut queues: Vec<TaskQueue> = known
            .iter()
            .map(|known| known.row.task_queue.clone())
            .collect();
        queues.sort();
        queues.dedup();
        let by_queue = self.host.inner.rollouts.by_queue.read();
        queues.extend(
            by_queue
                .keys()
                .filter(|(of, _)| of == namespace)
                .map(|(_, queue)| queue.clone()),
        );
        queues.sort();
        queues.dedup();
        Ok(queues)
    }

    /// Drains, resumes, promotes or rolls back a cohort. When this returns, the change is durable, and every poll and start follows
    /// it.
    pub async fn change(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        build_id: Option<String>,
        change: Change,
    ) -> Result<std::result::Result<Cohort, Blocked>> {
        let (namespace, queue) = (namespace.clone(), queue.clone());
        let write = |host: Host| async move {
            let write = host.rollouts().write(&namespace, &queue, build_id, change);
            write.await
        };
        self.host.to_the_end(write).await
    }

    async fn write(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        build_id: Option<String>,
        change: Change,
    ) -> Result<std::result::Result<Cohort, Blocked>> {
        let _turn = self.host.inner.rollouts.changing.lock().await;
        self.refresh().await?;
        let workers = self.workers_of(namespace, queue).await?;
        let rollouts = self.host.inner.rollouts.of(namespace, queue);
        let target = Rollout::new(namespace.clone(), queue.clone(), build_id.clone());
        let now = self.host.now();
        let decide = |stored: Option<Rollout>| {
            let others = rollouts.iter().filter(|row| row.build_id != build_id);
            let rollouts: Vec<Rollout> = others.cloned().chain(stored).collect();
            rollout::decide(&rollouts, &members(&workers), &target, change, now)
                .map(Some)
                .map_err(Undecided::Blocked)
        };
        let key = document::key_of(&target);
        match self.host.inner.store.change(key, now, decide).await {
            Ok(_) => {}
            Err(Undecided::Blocked(blockages)) => {
                let cohort = cohort(&rollouts, &workers, namespace, queue, build_id);
                return Ok(Err(Blocked { cohort, blockages }));
            }
            Err(Undecided::Failed(error)) => return Err(error.into()),
        }
        self.load().await?;
        tracing::info!(%namespace, %queue, build_id, ?change, "rollout of a build changed");
        // Workers are read again: their state follows from the row.
        let workers = self.workers_of(namespace, queue).await?;
        let rollouts = self.host.inner.rollouts.of(namespace, queue);
        Ok(Ok(cohort(&rollouts, &workers, namespace, queue, build_id)))
    }

    /// Returns the build that a new run on that queue is pinned to.
    pub(crate) async fn pin_start(
        self,
        namespace: &Namespace,
        queue: &TaskQueue,
        named: Option<String>,
    ) -> Result<Option<String>> {
        self.refresh_for_start().await?;
        let rollouts = self.host.inner.rollouts.of(namespace, queue);
        let validation = self.host.inner.config.fleet_validation;
        // No decision about this queue and no requirement: the usual case costs one lookup.
        if rollouts.is_empty() && (named.is_none() || validation == rollout::FleetValidation::Warn)
        {
            return Ok(named);
        }
        let workers = self.workers_of(namespace, queue).await?;
        rollout::admit_start(&rollouts, &members(&workers), named, validation).map_err(|refusal| {
            match refusal {
                StartRefusal::Draining { build_ids } => {
                    Error::TaskQueueDraining(Box::new(DrainingQueue {
                        task_queue: queue.clone(),
                        stale_workers: workers.iter().filter(|worker| worker.is_stale).count(),
                        draining_workers: workers.iter().filter(|worker| !worker.is_stale).count(),
                        build_ids,
                    }))
                }
                StartRefusal::NoCompatibleWorker { build_id } => Error::CompatibilityBlocked {
                    task_queue: queue.clone(),
                    build_id,
                },
            }
        })
    }

    async fn workers_of(self, namespace: &Namespace, queue: &TaskQueue) -> Result<Vec<WorkerView>> {
        let known = self
            .host
            .workers()
            .all_known(namespace, |known| known.row.task_queue == *queue)
            .await?;
        Ok(known
            .iter()
            .map(|known| self.host.workers().view(known))
            .collect())
    }
}

/// Why a change was not written.
enum Undecided {
    Blocked(Vec<Blockage>),
    Failed(StoreError),
}

impl From<StoreError> for Undecided {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// A queue that refuses starts, and why.
#[derive(Clone, Debug)]
pub struct DrainingQueue {
    pub task_queue: TaskQueue,
    pub build_ids: Vec<Option<String>>,
    pub draining_workers: usize,
    pub stale_workers: usize,
}

fn members(workers: &[WorkerView]) -> Vec<Member<'_>> {
    workers
        .iter()
        .map(|worker| Member {
            build_id: worker.row.build_id.as_deref(),
            is_stale: worker.is_stale,
            fingerprints: &worker.row.workflow_definition_fingerprints,
        })
        .collect()
}

fn cohort(
    rollouts: &[Rollout],
    workers: &[WorkerView],
    namespace: &Namespace,
    queue: &TaskQueue,
    build_id: Option<String>,
) -> Cohort {
    let workers: Vec<WorkerView> = workers
        .iter()
        .filter(|worker| worker.row.build_id == build_id)
        .cloned()
        .collect();
    let rollout = rollouts
        .iter()
        .find(|rollout| rollout.build_id == build_id)
        .cloned()
        .unwrap_or_else(|| Rollout::new(namespace.clone(), queue.clone(), build_id));
    let live = workers.iter().filter(|worker| !worker.is_stale).count();
    Cohort {
        is_selected: rollout::selected(rollouts) == Some(&rollout),
        fingerprint_conflicts: rollout::fingerprint_conflicts(members(&workers).iter()),
        state: rollout::deployment_state(rollouts, &rollout, live),
        rollout,
        workers,
    }
}
