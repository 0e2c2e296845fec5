//! Worker registrations. They are rows that outlive restarts and silence, because no published worker registers twice. `signs` has the
//! signs of life, and `lists` what is shown and asked of workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use longhaul_engine::Rejection;
use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::queue::{PollFilter, Requirements, Validators};
use longhaul_engine::rollout::build_fits;
use longhaul_engine::run::workflow_task::claim::SignalDelivery;
use longhaul_engine::run::workflow_task::release::ReleaseWorkflowTask;
use longhaul_engine::run::{cancellation, local_activity};
use longhaul_protocol::id::{Namespace, WorkerId};
use longhaul_protocol::{Ids, Reason, Timestamp};
use longhaul_store::{LeaseFilter, QueueKey, WorkerRow, document};
use parking_lot::RwLock;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::views::Workers;

mod lists;
mod signs;

pub use lists::{Fleet, WorkerFilter, WorkerList, WorkerView};

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

    /// Returns the registration of a worker, or an error if there is none.
    pub(crate) async fn registered(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<Arc<RegisteredWorker>> {
        let known = self.known(namespace, worker_id).await?;
        known.ok_or_else(|| Error::WorkerNotRegistered(worker_id.clone()))
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
}
