//! The model: everything in sorted maps under one lock, each method in the plainest form. Other stores are compared with it, and
//! the simulator uses it as its disk. A commit applies when it is called.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{self, FutureExt as _};
use longhaul_engine::change::{
    Changes, CommandRow, InstanceChange, KeyClaim, LogKey, LogLine, RunChange, TaskKind, TaskRow,
    TaskStatus,
};
use longhaul_engine::conductor::execution::summary::ExecutionSummary;
use longhaul_engine::run::state::{Program, Run, Spec, Status};
use longhaul_engine::session::{self, Session};
use longhaul_engine::visibility::Facts;
use longhaul_engine::visibility::execution::{FoundTask, Order};
use longhaul_protocol::Timestamp;
use longhaul_protocol::history::Event;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskId, WorkflowId};
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use parking_lot::Mutex;

use crate::{
    CommandKey, CommandRows, Document, DocumentChange, DocumentKey, DocumentKind, Due, DueLimits,
    Error, ExecutionPage, ExecutionSearch, Instance, LeaseFilter, LeasedIn, PAGE_BYTES_MAX, Page,
    QueueCount, QueueKey, Registry, RunFilter, RunRead, RunStore, RunSummary, SessionFilter,
    SessionStore, Shared, StatusFilter, Store, StoreFuture, StoredEvent, TaskPage, TaskPlace,
    TaskResults, TaskSearch, TaskStore, shape,
};

mod cluster;
mod sessions;

pub use self::cluster::{Cluster, Delivery};
use self::cluster::{Server, Taken, TakenKey};

/// A store that loses everything when it is dropped.
#[derive(Default)]
pub struct Memory {
    tables: Arc<Mutex<Tables>>,
    fault: Option<Box<Fault>>,
    /// `None` if only one server uses the store.
    server: Option<Server>,
}

/// Called before every operation. An error is the result of the operation; a panic is a bug of the store.
pub type Fault = dyn Fn() -> Result<(), Error> + Send + Sync;

#[derive(Default)]
struct Tables {
    runs: BTreeMap<RunId, Run>,
    /// Alarms of runs.
    alarms: BTreeMap<RunId, Timestamp>,
    /// Runs of each workflow by number; the last is current.
    workflows: BTreeMap<(Namespace, WorkflowId), BTreeMap<u64, RunId>>,
    events: BTreeMap<RunId, BTreeMap<HistorySeq, StoredEvent>>,
    commands: BTreeMap<RunId, BTreeMap<RequestSeq, CommandRow>>,
    requests: BTreeMap<(Namespace, WorkflowId, String), (RunId, RequestSeq)>,
    /// Runs by namespace, workflow type and idempotency key.
    keys: BTreeMap<(Namespace, String, String), RunId>,
    tasks: BTreeMap<TaskId, TaskRow>,
    logs: BTreeMap<RunId, BTreeMap<LogKey, LogLine>>,
    /// Versions and bodies.
    documents: BTreeMap<DocumentKey, (u64, String)>,
    sessions: BTreeMap<(Namespace, SessionId), Session>,
    /// Work that servers took for a moment.
    taken: BTreeMap<TakenKey, Taken>,
}

impl Memory {
    /// Returns an empty store for one server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty store for one server that can fail.
    pub fn with_fault(fault: impl Fn() -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self {
            fault: Some(Box::new(fault)),
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.fault.as_ref().map_or(Ok(()), |fault| fault())
    }

    /// Reads under the lock. Nothing here waits, so every result is ready at once.
    fn read<'a, T: Send + 'a>(&self, read: impl FnOnce(&Tables) -> T) -> StoreFuture<'a, T> {
        future::ready(self.check().map(|()| read(&self.tables.lock()))).boxed()
    }

    fn write<'a, T: Send + 'a>(
        &self,
        write: impl FnOnce(&mut Tables) -> Result<T, Error>,
    ) -> StoreFuture<'a, T> {
        let written = self.check().and_then(|()| write(&mut self.tables.lock()));
        future::ready(written).boxed()
    }
}

impl Tables {
    fn commit(&mut self, changes: &Changes) -> Result<(), Error> {
        shape::check(changes)?;
        changes.runs().try_for_each(|change| self.check(change))?;
        let mut sessions = changes.sessions.iter();
        sessions.try_for_each(|session| self.check_session(session))?;
        let mut documents = changes.documents.iter();
        documents.try_for_each(|change| self.check_document(change))?;
        self.check_caps(changes)?;
        // After all conflicts: the second commit may have numbered its events like the first.
        changes
            .runs()
            .try_for_each(|change| self.check_events(change))?;
        self.give_back(changes);
        changes.runs().for_each(|change| self.apply(change));
        for session in &changes.sessions {
            let key = (session.namespace.clone(), session.session_id.clone());
            self.sessions.insert(key, session.clone());
        }
        for change in &changes.documents {
            match &change.body {
                Some(body) => {
                    let stored = (change.version, body.clone());
                    self.documents.insert(change.key.clone(), stored);
                }
                None => drop(self.documents.remove(&change.key)),
            }
        }
        Ok(())
    }

    fn check_document(&self, change: &DocumentChange) -> Result<(), Error> {
        let stored = self.documents.get(&change.key);
        if stored.map(|(version, _)| *version) == change.base_version {
            Ok(())
        } else {
            Err(Error::Conflict)
        }
    }

    fn check(&self, change: &RunChange) -> Result<(), Error> {
        let spec = &change.spec;
        if self.runs.get(&spec.run_id).map(|run| run.version) != change.base_version {
            return Err(Error::Conflict);
        }
        let workflow = (spec.namespace.clone(), spec.workflow_id.clone());
        let newest = self
            .workflows
            .get(&workflow)
            .and_then(|runs| runs.keys().last().copied());
        match change.instance {
            Some(InstanceChange::Create) if newest.is_some() => return Err(Error::Conflict),
            Some(InstanceChange::MoveCurrent { run_number })
                if newest.map(|newest| newest + 1) != Some(run_number) =>
            {
                return Err(Error::Conflict);
            }
            Some(_) | None => {}
        }
        if let Some(claim) = &change.key_claim
            && self.keys.get(&key_of(change, claim)) != claim.earlier.as_ref()
        {
            return Err(Error::Conflict);
        }
        let mut requests = self.requests.clone();
        for command in &change.commands {
            let Some(request_id) = &command.request_id else {
                continue;
            };
            let key = (
                spec.namespace.clone(),
                spec.workflow_id.clone(),
                request_id.clone(),
            );
            let own = (spec.run_id.clone(), command.sequence);
            if requests.entry(key).or_insert(own).1 != command.sequence {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }

    fn check_events(&self, change: &RunChange) -> Result<(), Error> {
        let Some(stored) = self.events.get(&change.spec.run_id) else {
            return Ok(());
        };
        match change
            .events
            .iter()
            .find(|event| stored.contains_key(&event.sequence))
        {
            Some(event) => Err(Error::Corrupt(format!(
                "event {} of run {} is there",
                event.sequence, change.spec.run_id
            ))),
            None => Ok(()),
        }
    }

    fn apply(&mut self, change: &RunChange) {
        let spec = &change.spec;
        let run_id = spec.run_id.clone();
        let run = change.apply(self.runs.remove(&run_id));
        self.runs.insert(run_id.clone(), run);
        match shape::alarm(change) {
            Some(alarm) => self.alarms.insert(run_id.clone(), alarm),
            None => self.alarms.remove(&run_id),
        };
        if change.instance.is_some() {
            let workflow = (spec.namespace.clone(), spec.workflow_id.clone());
            self.workflows
                .entry(workflow)
                .or_default()
                .insert(spec.run_number, run_id.clone());
        }
        if let Some(claim) = &change.key_claim {
            self.keys.insert(key_of(change, claim), run_id.clone());
        }
        let events = change
            .events
            .iter()
            .map(|event| (event.sequence, stored(event)));
        self.events
            .entry(run_id.clone())
            .or_default()
            .extend(events);
        for task_id in &change.deleted_tasks {
            self.tasks.remove(task_id);
        }
        let tasks = change
            .tasks
            .iter()
            .map(|task| (task.task_id.clone(), task.clone()));
        self.tasks.extend(tasks);
        for (key, line) in &change.logs {
            let logs = self.logs.entry(run_id.clone()).or_default();
            match line {
                Some(line) => logs.insert(*key, line.clone()),
                None => logs.remove(key),
            };
        }
        for sequence in &change.deleted_commands {
            self.delete_command(spec, *sequence);
        }
        for command in &change.commands {
            if let Some(request_id) = &command.request_id {
                let key = (
                    spec.namespace.clone(),
                    spec.workflow_id.clone(),
                    request_id.clone(),
                );
                self.requests
                    .insert(key, (run_id.clone(), command.sequence));
            }
            self.commands
                .entry(run_id.clone())
                .or_default()
                .insert(command.sequence, command.clone());
        }
    }

    /// Deletes a command and, if it had one, its request id.
    fn delete_command(&mut self, spec: &Spec, sequence: RequestSeq) {
        let commands = self.commands.get_mut(&spec.run_id);
        let deleted = commands.and_then(|commands| commands.remove(&sequence));
        let Some(request_id) = deleted.and_then(|command| command.request_id) else {
            return;
        };
        let key = (spec.namespace.clone(), spec.workflow_id.clone(), request_id);
        if self.requests.get(&key) == Some(&(spec.run_id.clone(), sequence)) {
            self.requests.remove(&key);
        }
    }

    /// Removes a run with all its rows.
    fn remove(&mut self, run_id: &RunId, version: u64) -> Result<(), Error> {
        let run = self.runs.get(run_id).filter(|run| run.version == version);
        let spec = Arc::clone(&run.ok_or(Error::Conflict)?.spec);
        self.runs.remove(run_id);
        self.alarms.remove(run_id);
        self.events.remove(run_id);
        self.commands.remove(run_id);
        self.logs.remove(run_id);
        self.requests.retain(|_, (owner, _)| owner != run_id);
        self.keys.retain(|_, owner| owner != run_id);
        self.tasks.retain(|_, task| task.run_id != *run_id);
        let workflow = (spec.namespace.clone(), spec.workflow_id.clone());
        if let Some(runs) = self.workflows.get_mut(&workflow) {
            runs.remove(&spec.run_number);
            if runs.is_empty() {
                self.workflows.remove(&workflow);
            }
        }
        Ok(())
    }

    /// Returns a page of runs.
    fn listed(&self, filter: &RunFilter) -> Vec<&Run> {
        let runs = self.runs.values();
        let mut runs: Vec<&Run> = runs.filter(|run| is_listed(run, filter)).collect();
        let place = |run: &Run| (run.spec.started_at, run.run_id().clone());
        runs.sort_by_key(|run| std::cmp::Reverse(place(run)));
        runs.truncate(filter.limit);
        runs
    }

    fn due(&self, now: Timestamp, limits: DueLimits) -> Due {
        let mut due: Vec<_> = self
            .alarms
            .iter()
            .filter(|(_, alarm)| **alarm <= now)
            .collect();
        due.sort_by_key(|(run_id, alarm)| (**alarm, (*run_id).clone()));
        let alarms = self.alarms.values().copied();
        let alarms = alarms.filter(|_| limits.runs > 0);
        let deadlines = self.sessions.values().filter_map(Session::deadline);
        let deadlines = deadlines.filter(|_| limits.sessions > 0);
        Due {
            runs: due
                .into_iter()
                .take(limits.runs)
                .map(|(run_id, _)| run_id.clone())
                .collect(),
            sessions: self.due_sessions(now, limits.sessions),
            next: alarms.chain(deadlines).filter(|at| *at > now).min(),
        }
    }

    fn tasks(&self, status: TaskStatus) -> impl Iterator<Item = &TaskRow> {
        self.tasks
            .values()
            .filter(move |task| task.status == status)
    }
}

/// Returns a command as it is in lists.
fn without_result(mut command: CommandRow) -> CommandRow {
    if let Some(update) = command.update.as_deref_mut() {
        update.result = None;
    }
    command
}

impl Store for Memory {
    fn shared(&self) -> Option<&dyn Shared> {
        self.server.is_some().then_some(self)
    }

    fn commit(&self, changes: Arc<Changes>) -> StoreFuture<'static, ()> {
        self.write(|tables| {
            if self.server.is_none() {
                shape::refuse_caps(&changes)?;
            }
            tables.commit(&changes)?;
            if let Some(server) = &self.server {
                server.committed(&changes);
            }
            Ok(())
        })
    }
}

impl RunStore for Memory {
    fn run_since<'a>(
        &'a self,
        run_id: &'a RunId,
        known: Option<Box<Run>>,
    ) -> StoreFuture<'a, RunRead> {
        self.read(|tables| match (tables.runs.get(run_id), known) {
            (None, _) => RunRead::Missing,
            (Some(run), Some(known)) if known.version == run.version => RunRead::Unchanged(known),
            (Some(run), _) => RunRead::Found(Box::new(run.clone())),
        })
    }

    fn instance<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
    ) -> StoreFuture<'a, Option<Instance>> {
        self.read(|tables| {
            let runs = tables
                .workflows
                .get(&(namespace.clone(), workflow_id.clone()))?;
            let (run_number, run_id) = runs.last_key_value()?;
            Some(Instance {
                current_run_id: run_id.clone(),
                run_count: *run_number,
            })
        })
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.read(|tables| {
            let runs: Vec<_> = tables.listed(filter).into_iter().map(summary).collect();
            let mut bytes = 0;
            let fits = |run: &RunSummary| {
                let is_full = bytes > PAGE_BYTES_MAX;
                bytes += run.bytes();
                !is_full
            };
            runs.into_iter().take_while(fits).collect()
        })
    }

    fn run_ids<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunId>> {
        self.read(|tables| {
            let runs = tables.listed(filter).into_iter();
            runs.map(|run| run.run_id().clone()).collect()
        })
    }

    fn search_executions<'a>(
        &'a self,
        search: &'a ExecutionSearch,
    ) -> StoreFuture<'a, ExecutionPage> {
        self.read(|tables| {
            let matches = |run: &&Run| {
                run.spec.namespace == search.namespace
                    && run.spec.program == Program::Definition
                    && search
                        .condition
                        .as_ref()
                        .is_none_or(|condition| condition.matches(&Facts::of(run)))
            };
            let mut runs: Vec<&Run> = tables.runs.values().filter(matches).collect();
            runs.sort_by(|a, b| search.order.compare(&Facts::of(a), &Facts::of(b)));
            ExecutionPage {
                total: runs.len() as u64,
                runs: runs
                    .into_iter()
                    .skip(search.offset)
                    .take(search.limit)
                    .filter_map(ExecutionSummary::of)
                    .collect(),
            }
        })
    }

    fn search_tasks<'a>(&'a self, search: &'a TaskSearch) -> StoreFuture<'a, TaskPage> {
        self.read(|tables| {
            let rows = tables.tasks.values();
            let own = rows.filter(|row| row.namespace == search.namespace);
            let matches = |found: &FoundTask<'_>| {
                let condition = search.condition.as_ref();
                condition.is_none_or(|condition| found.matches(condition))
            };
            let mut tasks: Vec<(FoundTask<'_>, &TaskRow)> = own
                .filter_map(|row| Some((FoundTask::of(row)?, row)))
                .filter(|(found, _)| matches(found))
                .collect();
            let order = match search.results {
                TaskResults::Tasks => search.order.clone(),
                TaskResults::Runs => Order::default(),
            };
            tasks.sort_by(|(one, _), (other, _)| one.compare(other, &order));
            let mut found: Vec<(RunId, u64)> = Vec::new();
            match search.results {
                TaskResults::Tasks => found.extend(
                    tasks
                        .iter()
                        .map(|(_, row)| (row.run_id.clone(), row.sequence.get())),
                ),
                TaskResults::Runs => {
                    // The newest start of a run, then its id.
                    let mut newest: BTreeMap<&RunId, Option<Timestamp>> = BTreeMap::new();
                    for (_, row) in &tasks {
                        let started = row.found_by.as_ref().and_then(|facts| facts.started_at);
                        let newest = newest.entry(&row.run_id).or_default();
                        *newest = (*newest).max(started);
                    }
                    let mut runs: Vec<_> = newest.into_iter().collect();
                    runs.sort_by(|one, other| (other.1, other.0).cmp(&(one.1, one.0)));
                    found.extend(runs.into_iter().map(|(run_id, _)| (run_id.clone(), 0)));
                }
            }
            TaskPage {
                total: found.len() as u64,
                found: found
                    .into_iter()
                    .skip(search.offset)
                    .take(search.limit)
                    .collect(),
            }
        })
    }

    fn history<'a>(
        &'a self,
        run_id: &'a RunId,
        after: HistorySeq,
        up_to: HistorySeq,
        page: Page,
    ) -> StoreFuture<'a, Vec<StoredEvent>> {
        self.read(|tables| {
            let events = tables
                .events
                .get(run_id)
                .into_iter()
                .flat_map(BTreeMap::values);
            let mut bytes = 0;
            events
                .filter(|event| after < event.sequence && event.sequence <= up_to)
                .take(page.events)
                .enumerate()
                .take_while(|(place, event)| {
                    bytes += event.payload.len();
                    *place == 0 || bytes <= page.bytes
                })
                .map(|(_, event)| event.clone())
                .collect()
        })
    }

    fn commands<'a>(
        &'a self,
        run_id: &'a RunId,
        before: Option<RequestSeq>,
        limit: usize,
    ) -> StoreFuture<'a, CommandRows> {
        self.read(|tables| {
            let Some(commands) = tables.commands.get(run_id) else {
                return CommandRows::default();
            };
            let wanted = commands.range(..before.unwrap_or(RequestSeq::MAX)).rev();
            CommandRows {
                total: commands.len() as u64,
                commands: wanted
                    .take(limit)
                    .map(|(_, command)| without_result(command.clone()))
                    .collect(),
            }
        })
    }

    fn command<'a>(&'a self, key: CommandKey<'a>) -> StoreFuture<'a, Option<(RunId, CommandRow)>> {
        self.read(|tables| {
            let (run_id, sequence) = match key {
                CommandKey::Sequence(run_id, sequence) => (run_id.clone(), sequence),
                CommandKey::Request(namespace, workflow_id, request_id) => {
                    let (namespace, workflow_id) = (namespace.clone(), workflow_id.clone());
                    let request = (namespace, workflow_id, request_id.to_owned());
                    tables.requests.get(&request)?.clone()
                }
            };
            let command = tables.commands.get(&run_id)?.get(&sequence)?.clone();
            Some((run_id, command))
        })
    }

    fn run_by_key<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_type: &'a str,
        key: &'a str,
    ) -> StoreFuture<'a, Option<RunId>> {
        self.read(|tables| {
            let key = (namespace.clone(), workflow_type.to_owned(), key.to_owned());
            tables.keys.get(&key).cloned()
        })
    }

    fn remove_run<'a>(&'a self, run_id: &'a RunId, version: u64) -> StoreFuture<'a, ()> {
        self.write(|tables| tables.remove(run_id, version))
    }

    fn purge_removed(&self) -> StoreFuture<'_, bool> {
        self.read(|_| false)
    }

    fn due(&self, now: Timestamp, limits: DueLimits) -> StoreFuture<'_, Due> {
        self.read(|tables| tables.due(now, limits))
    }
}

impl TaskStore for Memory {
    fn task<'a>(&'a self, task_id: &'a TaskId) -> StoreFuture<'a, Option<TaskRow>> {
        self.read(|tables| tables.tasks.get(task_id).cloned())
    }

    fn ready_tasks<'a>(
        &'a self,
        queue: &'a QueueKey,
        place: TaskPlace,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        self.read(|tables| {
            let in_session = place == TaskPlace::Session;
            let mut ready: Vec<_> = tables
                .tasks(TaskStatus::Ready)
                .filter(|task| queue_of(task) == *queue)
                .filter(|task| task.worker_session.is_some() == in_session)
                .collect();
            ready.sort_by_key(|task| (task.priority, task.available_at, task.task_id.clone()));
            ready.into_iter().take(limit).cloned().collect()
        })
    }

    fn ready_queues(&self) -> StoreFuture<'_, Vec<QueueKey>> {
        self.read(|tables| {
            let mut queues: Vec<_> = tables.tasks(TaskStatus::Ready).map(queue_of).collect();
            queues.sort();
            queues.dedup();
            queues
        })
    }

    fn leased_tasks<'a>(
        &'a self,
        filter: &'a LeaseFilter,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        self.read(|tables| {
            let leased = tables.tasks(TaskStatus::Leased).filter(|task| {
                filter
                    .namespace
                    .as_ref()
                    .is_none_or(|namespace| *namespace == task.namespace)
                    && filter
                        .owner
                        .as_ref()
                        .is_none_or(|owner| Some(owner) == task.lease_owner.as_ref())
                    && filter
                        .queue
                        .as_ref()
                        .is_none_or(|queue| *queue == task.queue)
                    && filter.kind.is_none_or(|kind| kind == task.kind)
                    && is_leased_in(task, filter.session.as_ref())
            });
            leased.take(limit).cloned().collect()
        })
    }

    fn task_log<'a>(&'a self, run_id: &'a RunId, task: u64) -> StoreFuture<'a, Vec<LogLine>> {
        self.read(|tables| {
            let logs = tables.logs.get(run_id).into_iter().flatten();
            logs.filter(|(key, _)| key.task == task)
                .map(|(_, line)| line.clone())
                .collect()
        })
    }

    fn queue_counts<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Vec<QueueCount>> {
        self.read(|tables| {
            let mut counts = BTreeMap::new();
            for task in tables
                .tasks
                .values()
                .filter(|task| task.namespace == *namespace)
            {
                let (ready, leased) = (
                    task.status == TaskStatus::Ready,
                    task.status == TaskStatus::Leased,
                );
                let delayed =
                    task.status == TaskStatus::Scheduled && task.kind == TaskKind::Execution;
                if !ready && !leased && !delayed {
                    continue;
                }
                let count = counts
                    .entry((task.queue.clone(), task.kind))
                    .or_insert_with(|| QueueCount {
                        queue: task.queue.clone(),
                        kind: task.kind,
                        ready: 0,
                        leased: 0,
                        delayed: 0,
                        oldest_ready_at: None,
                    });
                count.ready += u64::from(ready);
                count.leased += u64::from(leased);
                count.delayed += u64::from(delayed);
                if ready {
                    let oldest = count
                        .oldest_ready_at
                        .map_or(task.available_at, |at| at.min(task.available_at));
                    count.oldest_ready_at = Some(oldest);
                }
            }
            counts.into_values().collect()
        })
    }
}

impl SessionStore for Memory {
    fn session<'a>(
        &'a self,
        namespace: &'a Namespace,
        session_id: &'a SessionId,
    ) -> StoreFuture<'a, Option<Session>> {
        self.read(|tables| {
            let key = (namespace.clone(), session_id.clone());
            tables.sessions.get(&key).cloned()
        })
    }

    fn list_sessions<'a>(&'a self, filter: &'a SessionFilter) -> StoreFuture<'a, Vec<Session>> {
        self.read(|tables| tables.list_sessions(filter))
    }

    fn session_counts<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Vec<(session::Status, u64)>> {
        self.read(|tables| tables.session_counts(namespace))
    }

    fn prune_sessions<'a>(
        &'a self,
        namespace: &'a Namespace,
        ended_before: Timestamp,
    ) -> StoreFuture<'a, bool> {
        self.write(|tables| Ok(tables.prune_sessions(namespace, ended_before)))
    }
}

impl Registry for Memory {
    fn document<'a>(&'a self, key: &'a DocumentKey) -> StoreFuture<'a, Option<Document>> {
        self.read(|tables| {
            let (version, body) = tables.documents.get(key)?.clone();
            Some(Document {
                key: key.clone(),
                version,
                body,
            })
        })
    }

    fn documents<'a>(
        &'a self,
        kind: DocumentKind,
        namespace: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<Document>> {
        self.read(|tables| {
            let of_kind = tables.documents.iter().filter(|(key, _)| {
                key.kind == kind && namespace.is_none_or(|namespace| key.namespace == namespace)
            });
            of_kind
                .map(|(key, (version, body))| Document {
                    key: key.clone(),
                    version: *version,
                    body: body.clone(),
                })
                .collect()
        })
    }
}

fn stored(event: &Event) -> StoredEvent {
    StoredEvent {
        id: event.id.clone(),
        sequence: event.sequence,
        event_type: event.event_type.to_owned(),
        payload: event.payload.clone(),
        recorded_at: event.recorded_at,
        workflow_task_id: event.workflow_task_id.clone(),
        workflow_command_id: event
            .workflow_command_id
            .as_ref()
            .map(|id| id.as_str().to_owned()),
        principal: event.principal.clone(),
    }
}

fn is_leased_in(task: &TaskRow, session: Option<&LeasedIn>) -> bool {
    let of_task = task.worker_session.as_ref();
    match session {
        None => true,
        Some(LeasedIn::AnySession) => of_task.is_some(),
        Some(LeasedIn::Session(wanted)) => of_task.is_some_and(|of| of.session_id == *wanted),
    }
}

fn queue_of(task: &TaskRow) -> QueueKey {
    QueueKey {
        namespace: task.namespace.clone(),
        kind: task.kind,
        queue: task.queue.clone(),
    }
}

fn summary(run: &Run) -> RunSummary {
    let Run { spec, core, .. } = run;
    RunSummary {
        namespace: spec.namespace.clone(),
        workflow_id: spec.workflow_id.clone(),
        run_id: spec.run_id.clone(),
        run_number: spec.run_number,
        program: spec.program,
        workflow_type: spec.workflow_type.clone(),
        status: core.status,
        closed_reason: core.closed.as_ref().map(|closed| closed.reason),
        task_queue: spec.task_queue.clone(),
        business_key: spec.business_key.clone(),
        compatibility: spec.routing.compatibility.clone(),
        started_at: spec.started_at,
        closed_at: core.closed.as_ref().map(|closed| closed.at),
        search_attributes: (*core.search_attributes).clone(),
        memo: core.memo.clone(),
    }
}

fn is_listed(run: &Run, filter: &RunFilter) -> bool {
    let (spec, status) = (&run.spec, run.core.status);
    let status = match filter.status {
        None => true,
        Some(StatusFilter::Running) => status.bucket() == "running",
        Some(StatusFilter::Completed) => status.bucket() == "completed",
        Some(StatusFilter::Failed) => status.bucket() == "failed",
        Some(StatusFilter::Cancelled) => status == Status::Cancelled,
        Some(StatusFilter::Terminated) => status == Status::Terminated,
    };
    let after = filter
        .after
        .as_ref()
        .is_none_or(|(at, run_id)| (spec.started_at, &spec.run_id) < (*at, run_id));
    spec.namespace == filter.namespace
        && filter.program.is_none_or(|program| program == spec.program)
        && filter
            .workflow_type
            .as_ref()
            .is_none_or(|workflow_type| *workflow_type == spec.workflow_type)
        && status
        && after
        && filter
            .condition
            .as_ref()
            .is_none_or(|condition| condition.matches(&Facts::of(run)))
}

fn key_of(change: &RunChange, claim: &KeyClaim) -> (Namespace, String, String) {
    let spec = &change.spec;
    (
        spec.namespace.clone(),
        spec.workflow_type.clone(),
        claim.key.clone(),
    )
}
