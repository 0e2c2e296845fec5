//! Worker registrations. They are rows that outlive restarts and silence, because no published worker registers twice. Every poll
//! updates the time of the last sign of life in memory; heartbeats store it. Signs of life at other servers come with their presence.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use longhaul_engine::Rejection;
use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::queue::{PollFilter, Requirements, Validators};
use longhaul_engine::rollout::build_fits;
use longhaul_engine::run::workflow_task::claim::SignalDelivery;
use longhaul_engine::run::workflow_task::release::ReleaseWorkflowTask;
use longhaul_engine::run::{cancellation, local_activity};
use longhaul_protocol::id::{Namespace, TaskQueue, WorkerId};
use longhaul_protocol::{Ids, Reason, Timestamp};
use longhaul_store::{HeardWorker, LeaseFilter, PAGE_BYTES_MAX, QueueKey, WorkerRow, document};
use parking_lot::RwLock;
use serde_json::{Map, Value};

use crate::commit::weight::weight;
use crate::error::{Error, Result};
use crate::matching::poll::Poll;
use crate::views::Workers;

/// Leases released at once when a worker leaves. More than a worker can hold.
const RELEASED_LEASES_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct WorkerTable {
    pub(crate) known: RwLock<HashMap<(Namespace, WorkerId), Arc<RegisteredWorker>>>,
}

pub(crate) struct RegisteredWorker {
    pub(crate) row: WorkerRow,
    pub(crate) workflow_types: Arc<Vec<String>>,
    pub(crate) activity_types: Arc<Vec<String>>,
    /// Workflow types with the updates they validate.
    validators: Arc<Validators>,
    pub(crate) capabilities: Arc<Vec<String>>,
    /// Microseconds of the last sign of life.
    heard: AtomicI64,
    /// The same, of those that came to this server; 0 if none did.
    heard_here: AtomicI64,
}

impl RegisteredWorker {
    /// Returns what it accepts, of these types and by its build.
    pub(crate) fn poll_filter(&self, types: &Arc<Vec<String>>) -> PollFilter {
        PollFilter {
            types: Arc::clone(types),
            build_id: self.row.build_id.clone(),
            capabilities: Arc::clone(&self.capabilities),
            worker_id: self.row.worker_id.clone(),
            validators: Arc::default(),
            max_sessions: self.row.max_concurrent_worker_sessions,
        }
    }

    /// As [`Self::poll_filter`] for workflow tasks, with the validations it declares.
    pub(crate) fn validating_poll_filter(&self) -> PollFilter {
        PollFilter {
            validators: Arc::clone(&self.validators),
            ..self.poll_filter(&self.workflow_types)
        }
    }

    /// Returns which signals the worker may see. The published Rust worker passes any signal it sees to its next wait of that name,
    /// so it may see only one that is due.
    pub(crate) fn signal_delivery(&self) -> SignalDelivery {
        if self.row.runtime == "rust" {
            SignalDelivery::RecordedWaitOnly
        } else {
            SignalDelivery::Any
        }
    }

    pub(crate) fn runs_workflow(&self, workflow_type: &str) -> bool {
        self.workflow_types.is_empty()
            || self.workflow_types.iter().any(|name| name == workflow_type)
    }

    pub(crate) fn validates(&self, workflow_type: &str, update_name: &str) -> bool {
        let key = (workflow_type.to_owned(), update_name.to_owned());
        self.validators.contains(&key)
    }

    pub(crate) fn fits_build(&self, pinned: Option<&str>) -> bool {
        build_fits(pinned, self.row.build_id.as_deref())
    }

    pub(crate) fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }

    /// Refuses a claim of a task that the worker is not able to run.
    pub(crate) fn check_build(&self, row: &TaskRow) -> Result<()> {
        let filter = self.poll_filter(&self.workflow_types);
        if filter.can_run(&Requirements::from(row)) {
            return Ok(());
        }
        Err(Error::Rejected(Rejection::NotClaimable {
            reason: Reason::CompatibilityBlocked,
        }))
    }

    fn new(row: WorkerRow, heard: AtomicI64) -> Self {
        Self {
            workflow_types: Arc::new(row.supported_workflow_types.clone()),
            activity_types: Arc::new(row.supported_activity_types.clone()),
            validators: Arc::new(validators(&row.workflow_command_contracts)),
            capabilities: Arc::new(abilities(&row.capabilities)),
            row,
            heard,
            heard_here: AtomicI64::new(0),
        }
    }

    /// Records a sign of life that came to this server.
    fn hear(&self, now: Timestamp) {
        self.heard.fetch_max(now.as_micros(), Ordering::Relaxed);
        self.heard_here.store(now.as_micros(), Ordering::Relaxed);
    }

    /// Returns the last sign of life that came to this server.
    pub(crate) fn heard_here(&self) -> Option<Timestamp> {
        let heard = self.heard_here.load(Ordering::Relaxed);
        (heard != 0).then(|| Timestamp::from_micros(heard))
    }
}

/// Returns the abilities of a worker, by every name that a task may require. The reply to the registration contains only the names
/// that were sent.
fn abilities(registered: &[String]) -> Vec<String> {
    let mut abilities: Vec<String> = Vec::with_capacity(registered.len());
    for capability in registered.iter().map(|capability| capability.trim()) {
        if !abilities.iter().any(|known| known == capability) {
            abilities.push(capability.to_owned());
        }
    }
    let has = |name: &str| registered.iter().any(|known| known == name);
    if has(local_activity::CAPABILITY) || has(local_activity::CAPABILITY_ALIAS) {
        if !has(local_activity::CAPABILITY) {
            abilities.push(local_activity::CAPABILITY.to_owned());
        }
        if has(cancellation::CAPABILITY) {
            abilities.push(local_activity::CAPABILITY_WITH_CANCELLATION.to_owned());
        }
    }
    abilities
}

/// Returns the updates for which contracts declare a validator.
fn validators(contracts: &Map<String, Value>) -> Validators {
    let mut validators = Validators::new();
    for (workflow_type, contract) in contracts {
        let names = contract.get("update_validators").and_then(Value::as_array);
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            validators.insert((workflow_type.clone(), name.to_owned()));
        }
    }
    validators
}

/// Returns whether the same worker id belongs to another process: everything in the memory of the first one is lost.
fn is_another_process(earlier: &WorkerRow, registration: &WorkerRow) -> bool {
    let differs = |key: &str| {
        let value = |metrics: &Option<Value>| {
            metrics
                .as_ref()
                .and_then(|metrics| metrics.get(key).cloned())
        };
        match (
            value(&earlier.process_metrics),
            value(&registration.process_metrics),
        ) {
            (Some(before), Some(now)) => before != now,
            _ => false,
        }
    };
    differs("process_id") || differs("process_started_at")
}

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
    pub(crate) async fn load(self) -> Result<()> {
        let now = self.host.now();
        let store = &self.host.inner.store;
        let has_others = store.shared().is_some() && self.host.has_others().await?;
        for namespace in self.host.namespaces().list().await? {
            for mut row in self
                .host
                .inner
                .store
                .list::<WorkerRow>(Some(&namespace.name))
                .await?
            {
                if !has_others {
                    // Workers could not reach the server while it was down: their silence means nothing yet.
                    row.last_heartbeat_at = row.last_heartbeat_at.max(now);
                }
                self.keep(row);
            }
        }
        Ok(())
    }

    fn keep(self, row: WorkerRow) {
        let key = (row.namespace.clone(), row.worker_id.clone());
        let stored = row.last_heartbeat_at.as_micros();
        let mut known = self.host.inner.workers.known.write();
        let (heard, heard_here) = known.get(&key).map_or((0, 0), |earlier| {
            (
                earlier.heard.load(Ordering::Relaxed),
                earlier.heard_here.load(Ordering::Relaxed),
            )
        });
        let worker = RegisteredWorker::new(row, AtomicI64::new(heard.max(stored)));
        worker.heard_here.store(heard_here, Ordering::Relaxed);
        known.insert(key, Arc::new(worker));
    }

    /// Keeps the row of a worker that just sent a sign of life.
    fn keep_heard(self, row: WorkerRow, now: Timestamp) {
        let key = (row.namespace.clone(), row.worker_id.clone());
        self.keep(row);
        if let Some(known) = self.host.inner.workers.known.read().get(&key) {
            known.hear(now);
        }
    }

    /// Reads the registration of a worker again: another server changed it.
    pub(crate) async fn reload(self, namespace: &Namespace, worker_id: &WorkerId) -> Result<()> {
        let store = &self.host.inner.store;
        let stored = store.get::<WorkerRow>(namespace, worker_id.as_str());
        let Some(row) = stored.await? else {
            let key = (namespace.clone(), worker_id.clone());
            let removed = self.host.inner.workers.known.write().remove(&key);
            if removed.is_some() {
                self.host.questions().release_all(namespace, worker_id);
            }
            return Ok(());
        };
        self.keep(row.clone());
        self.tell_matching(&row);
        Ok(())
    }

    /// Records a sign of life that came to another server.
    pub(crate) async fn heard_elsewhere(self, heard: &HeardWorker) -> Result<()> {
        let known = self.known(&heard.namespace, &heard.worker_id).await?;
        if let Some(known) = known {
            let at = heard.heard_at.as_micros();
            known.heard.fetch_max(at, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tells matching what a registered worker can do now.
    fn tell_matching(self, row: &WorkerRow) {
        let activities = QueueKey {
            namespace: row.namespace.clone(),
            kind: TaskKind::Activity,
            queue: row.task_queue.clone(),
        };
        self.host.inner.wakes.dispatch.worker_changed(
            &activities,
            &row.worker_id,
            &Arc::new(abilities(&row.capabilities)),
            row.max_concurrent_worker_sessions,
        );
    }

    pub(crate) async fn known(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<Option<Arc<RegisteredWorker>>> {
        let key = (namespace.clone(), worker_id.clone());
        if let Some(known) = self.host.inner.workers.known.read().get(&key) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(row) = self
            .host
            .inner
            .store
            .get::<WorkerRow>(namespace, worker_id.as_str())
            .await?
        else {
            return Ok(None);
        };
        self.keep(row);
        Ok(self.host.inner.workers.known.read().get(&key).cloned())
    }

    /// Returns an id for a worker that brought none.
    pub fn mint_id(self) -> WorkerId {
        Ids::new(self.host.now(), rand::random()).mint()
    }

    /// Registers a worker now, or replaces its registration.
    pub async fn register(self, mut row: WorkerRow) -> Result<WorkerView> {
        let now = self.host.now();
        (row.registered_at, row.last_heartbeat_at, row.updated_at) = (now, now, now);
        let mut taken_over = false;
        if self.host.inner.store.shared().is_some() {
            self.reload(&row.namespace, &row.worker_id).await?;
        }
        if let Some(earlier) = self.known(&row.namespace, &row.worker_id).await? {
            self.check_definitions(&earlier, &row, now)?;
            taken_over = self.is_stale(&earlier, now) || is_another_process(&earlier.row, &row);
        }
        // Before the registration is replaced: the new process must find the old sessions lost, and never mistake them for its own.
        let _lock = self
            .host
            .inner
            .sessions
            .lock_worker(&row.namespace, &row.worker_id)
            .await;
        if taken_over {
            self.host
                .sessions()
                .fail_all(&row.namespace, &row.worker_id)
                .await?;
        }
        self.host.inner.store.put(&row, now).await?;
        self.keep_heard(row.clone(), now);
        self.tell_matching(&row);
        if taken_over {
            self.release_questions(&row.namespace, &row.worker_id)
                .await?;
            self.release_workflow_tasks(&row.namespace, &row.worker_id)
                .await?;
        }
        self.host.rollouts().refresh().await?;
        Ok(self.fresh_view(row))
    }

    /// Returns the view of a worker that just sent a sign of life.
    fn fresh_view(self, row: WorkerRow) -> WorkerView {
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

    /// Checks that a live worker id has one set of definitions; different code needs a different id.
    fn check_definitions(
        self,
        earlier: &RegisteredWorker,
        registration: &WorkerRow,
        now: Timestamp,
    ) -> Result<()> {
        if self.is_stale(earlier, now) {
            return Ok(());
        }
        for (workflow_type, fingerprint) in &registration.workflow_definition_fingerprints {
            let before = earlier
                .row
                .workflow_definition_fingerprints
                .get(workflow_type);
            if before.is_some_and(|before| before != fingerprint) {
                return Err(Error::DefinitionChanged(
                    registration.worker_id.clone(),
                    workflow_type.clone(),
                ));
            }
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

    /// Returns the registration of a worker, or an error if there is none.
    pub(crate) async fn registered(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<Arc<RegisteredWorker>> {
        let known = self.known(namespace, worker_id).await?;
        known.ok_or_else(|| Error::WorkerNotRegistered(worker_id.clone()))
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

    /// Removes a registration and releases its workflow tasks; returns how many. Activities are not released: they may still be
    /// running and may still complete.
    pub async fn deregister(self, namespace: &Namespace, worker_id: &WorkerId) -> Result<u64> {
        let key = document::key::<WorkerRow>(namespace.as_str(), worker_id.as_str(), "");
        let store = &self.host.inner.store;
        if !store.delete::<WorkerRow>(key, self.host.now()).await? {
            return Err(Error::WorkerNotRegistered(worker_id.clone()));
        }
        self.host
            .inner
            .workers
            .known
            .write()
            .remove(&(namespace.clone(), worker_id.clone()));
        self.release_questions(namespace, worker_id).await?;
        self.host
            .sessions()
            .orphan_all(namespace, worker_id)
            .await?;
        self.release_workflow_tasks(namespace, worker_id).await
    }

    /// Releases the questions that the worker holds, here and elsewhere.
    async fn release_questions(self, namespace: &Namespace, worker_id: &WorkerId) -> Result<()> {
        let questions = self.host.questions();
        questions.release_all(namespace, worker_id);
        if self.host.inner.store.shared().is_some() {
            questions.release_passing(namespace, worker_id).await?;
        }
        Ok(())
    }

    /// Releases every workflow task that the worker holds to the next one; returns how many.
    async fn release_workflow_tasks(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<u64> {
        let filter = LeaseFilter {
            namespace: Some(namespace.clone()),
            owner: Some(worker_id.clone()),
            kind: Some(TaskKind::Workflow),
            ..LeaseFilter::default()
        };
        let mut released = 0;
        for row in self
            .host
            .inner
            .store
            .leased_tasks(&filter, RELEASED_LEASES_MAX)
            .await?
        {
            let command = ReleaseWorkflowTask {
                task_id: row.task_id.clone(),
                owner: worker_id.clone(),
            };
            if self
                .host
                .inner
                .executor
                .execute(&row.run_id, &command)
                .await?
                .unwrap_or(false)
            {
                released += 1;
            }
        }
        Ok(released)
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
