//! Durable state. A store knows where rows are and when they are durable; it never decides whether something may happen: besides
//! version checks and selection, it contains no rule.
//!
//! [`Store`] is the narrow interface, [`sqlite`] the embedded default, [`memory`] the model that the others are compared with,
//! `conformance` (behind the feature of that name) the suite that all of them pass. A commit is durable before its future resolves.
//! [`transfer`] copies a whole store to another, [`inspection`] checks one.

use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_engine::change::{CapScope, Changes, CommandRow, LogLine, TaskKind, TaskRow};
use longhaul_engine::conductor::execution::summary::ExecutionSummary;
use longhaul_engine::run::state::{ClosedReason, Program, Run, Status};
use longhaul_engine::session::{self, Session};
use longhaul_engine::visibility::execution::Order;
use longhaul_engine::visibility::{Condition, Type};
use longhaul_protocol::id::{
    EventId, Namespace, RunId, SessionId, TaskId, TaskQueue, WorkerId, WorkflowId,
};
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod document;
mod group;
mod maintenance;
pub mod memory;
pub mod postgres;
mod quiet;
mod rows;
mod schema;
pub mod shared;
pub mod sqlite;
mod together;

use group::trial;
use rows::{encode, shape, status, summary, thin};

pub use document::{
    DefinitionStampRow, EventExecutionRow, EventHandlerRow, HeardWorker, PolledQueue, Record,
    ReusableOutputRow, SchemaRow, ServerRow, SnapshotRow, TagsRow, TaskDefRow, WorkflowDefRow,
};
pub use group::trial::{ClockReading, Writable};
pub use group::{RemoteStats, Stats};
pub use longhaul_engine::change::{Document, DocumentChange, DocumentKey, DocumentKind};
pub use maintenance::{StoreAddress, inspection, transfer};
pub use quiet::Quiet;
pub use shared::{Hints, Look, Looked, PollId, Shared, Wanted};
pub use together::Together;

/// Why a store operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another commit came first: the run has another version, or the workflow id is in use. Load again and decide again.
    #[error("another commit came first")]
    Conflict,
    /// A cap of the commit does not hold. Nothing of it is stored.
    #[error("a cap is reached: {0:?}")]
    CapReached(Box<CapScope>),
    /// The disk or the connection failed. Nothing of this commit is stored; a later retry may work.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The content of a row is wrong, or a write would break a table: a bug above the store.
    #[error("the store contains an unreadable row: {0}")]
    Corrupt(String),
    /// The files are damaged: cut off, overwritten or not a database. No retry helps.
    #[error("the store is damaged, restore a backup: {0}")]
    Damaged(String),
    /// The data was written by a newer release, and this one may not use it.
    #[error("{0}")]
    NewerSchema(String),
    /// The settings are wrong, or the database is one that this release cannot use. Only a person can help.
    #[error("{0}")]
    Settings(String),
}

impl Error {
    /// Returns the error for a stored body that cannot be parsed.
    fn unreadable(what: &str, id: &str, error: impl std::fmt::Display) -> Self {
        Self::Corrupt(format!("{what} {id}: {error}"))
    }
}

/// The future of a store operation.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Holds runs, tasks, sessions and registry documents.
pub trait Store: RunStore + TaskStore + SessionStore + Registry {
    /// Writes all of `changes` or nothing. The commit takes its place in the order **when this is called**, not when the future is
    /// first polled: two commits of one run, called one after the other, apply in that order. Dropping the future does not undo the
    /// commit.
    ///
    /// Returns [`Error::Conflict`] if a run has another version than its change is based on (or exists although the change creates
    /// it), if the workflow id to create is in use, if a run would become current whose number does not follow the newest one, if a
    /// request id already belongs to another command, if an idempotency key belongs to another run than the claim names, if a
    /// session does not have the version before the written one (0 if there is none), or if a document has another version than its
    /// change is based on. A task, part or command row replaces the one with the same key; a deleted command is removed, and its
    /// request id is free again. Changes that would break a table, such as events that leave a gap, are [`Error::Corrupt`], and so
    /// are caps if the store is not shared. A cap that does not hold is [`Error::CapReached`].
    fn commit(&self, changes: Arc<Changes>) -> StoreFuture<'static, ()>;

    /// Checks whether the store can write now. This is cheap: a store with recent writes uses their outcome, and a trial write is
    /// made at most once in a while. The error is that of the newest trial. The clock of a database is read at most once in a while
    /// too, and callers share the reading.
    fn check_writes(&self) -> StoreFuture<'_, Writable> {
        Box::pin(async { Ok(Writable::default()) })
    }

    /// Returns the counters of the store, for metrics.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Returns what several servers need, if others may use this store too. A server on a store of its own may trust its copies.
    fn shared(&self) -> Option<&dyn Shared>;
}

/// Runs, their histories and their external commands.
pub trait RunStore: Send + Sync + 'static {
    /// Returns the run and everything open in it. The caller may have a copy, which must be as it was stored at its version. A store
    /// reads only what changed since then, if it can.
    fn run_since<'a>(
        &'a self,
        run_id: &'a RunId,
        known: Option<Box<Run>>,
    ) -> StoreFuture<'a, RunRead>;
    /// Returns the run and everything open in it.
    fn run<'a>(&'a self, run_id: &'a RunId) -> StoreFuture<'a, Option<Run>> {
        let read = self.run_since(run_id, None);
        Box::pin(async move {
            Ok(match read.await? {
                RunRead::Found(run) | RunRead::Unchanged(run) => Some(*run),
                RunRead::Missing => None,
            })
        })
    }
    /// Returns the workflow's current run.
    fn instance<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
    ) -> StoreFuture<'a, Option<Instance>>;
    /// Returns the run that has an idempotency key of a workflow type.
    fn run_by_key<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_type: &'a str,
        key: &'a str,
    ) -> StoreFuture<'a, Option<RunId>>;
    /// Returns one page of runs, newest start first, then run id descending. It ends early after the run with which memos and
    /// search attributes have more than [`PAGE_BYTES_MAX`].
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>>;
    /// Returns the ids of one page of runs, in the order of [`RunStore::list_runs`].
    fn run_ids<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunId>>;
    /// Returns one page of definition runs and how many there are on all pages, of one moment.
    fn search_executions<'a>(
        &'a self,
        search: &'a ExecutionSearch,
    ) -> StoreFuture<'a, ExecutionPage>;
    /// Returns one page of tasks of definition runs, or of the runs that have such tasks, and how many there are on all pages, of one
    /// moment.
    fn search_tasks<'a>(&'a self, search: &'a TaskSearch) -> StoreFuture<'a, TaskPage>;
    /// Returns the events with `after < sequence <= up_to`, ascending, until the page is full. If there are any, at least one.
    fn history<'a>(
        &'a self,
        run_id: &'a RunId,
        after: HistorySeq,
        up_to: HistorySeq,
        page: Page,
    ) -> StoreFuture<'a, Vec<StoredEvent>>;
    /// Returns the external commands of a run, newest first, at most `limit`; only those with a number below `before`, if that is
    /// set. Without the results of updates: a page of them could be of any size.
    fn commands<'a>(
        &'a self,
        run_id: &'a RunId,
        before: Option<RequestSeq>,
        limit: usize,
    ) -> StoreFuture<'a, CommandRows>;
    /// Returns one external command, with its result, and its run.
    fn command<'a>(&'a self, key: CommandKey<'a>) -> StoreFuture<'a, Option<(RunId, CommandRow)>>;
    /// Removes a run: when the future is ready, nothing finds it any more, and its workflow id, request ids and idempotency key are
    /// free. [`RunStore::purge_removed`] deletes the rest of its rows.
    ///
    /// Returns [`Error::Conflict`] if there is no such run, or if it has another version.
    fn remove_run<'a>(&'a self, run_id: &'a RunId, version: u64) -> StoreFuture<'a, ()>;
    /// Deletes rows of removed runs, at most [`PURGED_ROWS_MAX`] at once. Returns whether there were any, so that a caller goes on
    /// until there are none. A removal that a crash interrupted is finished in this way.
    fn purge_removed(&self) -> StoreFuture<'_, bool>;
    /// Returns what time has changed, and when time changes something next.
    fn due(&self, now: Timestamp, limits: DueLimits) -> StoreFuture<'_, Due>;
}

/// Tasks of runs, as matching and operators see them.
pub trait TaskStore: Send + Sync + 'static {
    /// Returns one task, open or finished.
    fn task<'a>(&'a self, task_id: &'a TaskId) -> StoreFuture<'a, Option<TaskRow>>;
    /// Returns the ready tasks of one queue in matching order (priority, available_at, id), at most `limit`: those that need no
    /// session, or those that do. They are apart, because many of the latter may wait for long.
    fn ready_tasks<'a>(
        &'a self,
        queue: &'a QueueKey,
        place: TaskPlace,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>>;
    /// Returns every queue that has a ready task now, in order.
    fn ready_queues(&self) -> StoreFuture<'_, Vec<QueueKey>>;
    /// Returns the leased tasks that match, at most `limit`, oldest id first.
    fn leased_tasks<'a>(
        &'a self,
        filter: &'a LeaseFilter,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>>;
    /// Returns the log of a task, by the number of the task in its run, oldest line first.
    fn task_log<'a>(&'a self, run_id: &'a RunId, task: u64) -> StoreFuture<'a, Vec<LogLine>>;
    /// Returns the number of ready, leased and delayed tasks per queue of a namespace, by queue, then kind; queues without any are
    /// left out.
    fn queue_counts<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Vec<QueueCount>>;
}

/// Worker sessions. [`RunStore::due`] returns those that are due.
pub trait SessionStore: Send + Sync + 'static {
    /// Returns one session.
    fn session<'a>(
        &'a self,
        namespace: &'a Namespace,
        session_id: &'a SessionId,
    ) -> StoreFuture<'a, Option<Session>>;
    /// Returns one page of sessions, newest change first, then by id.
    fn list_sessions<'a>(&'a self, filter: &'a SessionFilter) -> StoreFuture<'a, Vec<Session>>;
    /// Returns the number of sessions per status, without empty ones, in the order of [`session::Status`].
    fn session_counts<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Vec<(session::Status, u64)>>;
    /// Deletes sessions that became final before that time, the oldest first, a bounded number at once; returns whether there were
    /// any.
    fn prune_sessions<'a>(
        &'a self,
        namespace: &'a Namespace,
        ended_before: Timestamp,
    ) -> StoreFuture<'a, bool>;
}

/// Registry documents. [`document::Record`] gives each kind its Rust type, and a commit writes them.
pub trait Registry: Send + Sync + 'static {
    /// Returns one document.
    fn document<'a>(&'a self, key: &'a DocumentKey) -> StoreFuture<'a, Option<Document>>;
    /// Returns the documents of a kind in the order of their keys, of one namespace if that is set.
    fn documents<'a>(
        &'a self,
        kind: DocumentKind,
        namespace: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<Document>>;
}

/// The answer to a caller that may have the newest version of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunRead {
    /// There is no such run.
    Missing,
    /// The copy of the caller, which is still current.
    Unchanged(Box<Run>),
    Found(Box<Run>),
}

/// Names one external command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKey<'a> {
    /// By its number in a run.
    Sequence(&'a RunId, RequestSeq),
    /// By the request id that it was recorded with.
    Request(&'a Namespace, &'a WorkflowId, &'a str),
}

/// External commands of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandRows {
    /// How many commands of the run are kept.
    pub total: u64,
    pub commands: Vec<CommandRow>,
}

/// How many due rows of each kind a caller wants. Zero leaves the kind out, also from [`Due::next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueLimits {
    pub runs: usize,
    pub sessions: usize,
}

impl DueLimits {
    /// Returns limits for due runs only.
    pub const fn runs(runs: usize) -> Self {
        Self { runs, sessions: 0 }
    }

    /// Returns limits for due sessions only.
    pub const fn sessions(sessions: usize) -> Self {
        Self { runs: 0, sessions }
    }
}

/// What time has changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// The runs whose alarm is due, earliest first, then by run id.
    pub runs: Vec<RunId>,
    /// The sessions whose deadline has come, earliest first, then by namespace and id.
    pub sessions: Vec<Session>,
    /// The earliest alarm or deadline that is not due yet.
    pub next: Option<Timestamp>,
}

/// Where a ready task must run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskPlace {
    /// At any worker.
    Anywhere,
    /// In a worker session.
    Session,
}

/// Bytes of events on a page of history. A page is held in memory several times over while it is sent, and every event is smaller
/// than this.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// When a page is full: at this many events, or before the event with which its payloads would have more than this many bytes. The
/// first event is always on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub events: usize,
    pub bytes: usize,
}

impl Page {
    /// Returns a page of that many events and [`PAGE_BYTES_MAX`].
    pub const fn of(events: usize) -> Self {
        Self {
            events,
            bytes: PAGE_BYTES_MAX,
        }
    }
}

/// Sessions deleted at once: a few milliseconds of writing.
pub const PRUNED_SESSIONS_MAX: usize = 1000;

/// Rows of a removed run that are deleted at once. Other writes wait for as long, some milliseconds.
pub const PURGED_ROWS_MAX: usize = 1000;

/// Bytes of events of a removed run that are deleted at once, plus those of one event: freeing their pages takes time too.
pub(crate) const PURGED_BYTES_MAX: i64 = 8 << 20;

/// The filter of a list of sessions.
#[derive(Clone, Debug)]
pub struct SessionFilter {
    pub namespace: Namespace,
    pub status: Option<session::Status>,
    pub queue: Option<TaskQueue>,
    pub owner: Option<WorkerId>,
    /// Only sessions that come after this one in the list's order.
    pub after: Option<(Timestamp, SessionId)>,
    pub limit: usize,
}

/// A workflow id and its newest run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub current_run_id: RunId,
    pub run_count: u64,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub run_number: u64,
    pub program: Program,
    pub workflow_type: String,
    pub status: Status,
    pub closed_reason: Option<ClosedReason>,
    pub task_queue: TaskQueue,
    pub business_key: Option<String>,
    pub compatibility: Option<String>,
    pub started_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub search_attributes: Map<String, Value>,
    /// An Avro map.
    pub memo: Option<Payload>,
}

impl RunSummary {
    /// Returns about how many bytes of a page it takes: those of its memo and search attributes, which alone can be many.
    pub fn bytes(&self) -> usize {
        let attributes = self.search_attributes.iter();
        let attributes = attributes.map(|(name, value)| name.len() + text_bytes(value));
        let memo = self.memo.as_ref().map_or(0, |memo| memo.blob().len());
        memo + attributes.sum::<usize>()
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => 8,
    }
}

/// The filter of a list of runs.
#[derive(Clone, Debug)]
pub struct RunFilter {
    pub namespace: Namespace,
    /// `None` for the runs of both programs.
    pub program: Option<Program>,
    pub workflow_type: Option<String>,
    pub status: Option<StatusFilter>,
    /// The condition of a query.
    pub condition: Option<Condition>,
    /// Only runs that come after this one in the list's order.
    pub after: Option<(Timestamp, RunId)>,
    pub limit: usize,
}

/// A search for definition runs.
#[derive(Clone, Debug)]
pub struct ExecutionSearch {
    pub namespace: Namespace,
    /// `None` for all of them.
    pub condition: Option<Condition>,
    pub order: Order,
    /// How many results come before the page.
    pub offset: usize,
    pub limit: usize,
}

/// A search for tasks of definition runs.
#[derive(Clone, Debug)]
pub struct TaskSearch {
    pub namespace: Namespace,
    /// `None` for all of them.
    pub condition: Option<Condition>,
    /// The order of tasks. Runs come newest start of a task first.
    pub order: Order,
    /// How many results come before the page.
    pub offset: usize,
    pub limit: usize,
    pub results: TaskResults,
}

/// What a search for tasks returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskResults {
    Tasks,
    /// The runs of the tasks, each once.
    Runs,
}

/// The results of a search for tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPage {
    /// How many results there are on all pages.
    pub total: u64,
    /// Runs with the number of a task; 0 if runs were asked for.
    pub found: Vec<(RunId, u64)>,
}

/// The results of a search for definition runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutionPage {
    /// How many runs match, on all pages.
    pub total: u64,
    pub runs: Vec<ExecutionSummary>,
}

/// `running`, `completed` and `failed` are buckets; the other two are statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    Running,
    Completed,
    /// Failed, timed out, cancelled and terminated.
    Failed,
    Cancelled,
    Terminated,
}

/// An event as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    pub id: EventId,
    pub sequence: HistorySeq,
    pub event_type: String,
    /// JSON object text, as it is sent to workers.
    pub payload: String,
    pub recorded_at: Timestamp,
    pub workflow_task_id: Option<TaskId>,
    pub workflow_command_id: Option<String>,
    pub principal: Option<String>,
}

/// One queue of one kind of task in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    pub namespace: Namespace,
    pub kind: TaskKind,
    pub queue: TaskQueue,
}

/// The filter of leases; an empty one means all.
#[derive(Clone, Debug, Default)]
pub struct LeaseFilter {
    pub namespace: Option<Namespace>,
    pub owner: Option<WorkerId>,
    pub queue: Option<TaskQueue>,
    pub kind: Option<TaskKind>,
    pub session: Option<LeasedIn>,
}

impl LeaseFilter {
    /// Returns the filter of the leases in sessions of a namespace.
    pub fn in_sessions(namespace: &Namespace, session: LeasedIn) -> Self {
        Self {
            namespace: Some(namespace.clone()),
            session: Some(session),
            ..Self::default()
        }
    }
}

/// The sessions that leases belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeasedIn {
    AnySession,
    Session(SessionId),
}

/// How busy a queue is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCount {
    pub queue: TaskQueue,
    pub kind: TaskKind,
    pub ready: u64,
    pub leased: u64,
    /// Open tasks of definition runs that are neither: they become ready later, or workers never get them.
    pub delayed: u64,
    /// When the oldest ready task became ready.
    pub oldest_ready_at: Option<Timestamp>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamespaceRow {
    pub name: Namespace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `None` keeps closed runs without limit.
    pub retention_days: Option<u32>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The definition of one search attribute in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchAttributeRow {
    pub namespace: Namespace,
    pub name: String,
    pub attribute_type: Type,
}

/// A worker registration. It outlives restarts and silence: no published worker ever registers twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub namespace: Namespace,
    pub worker_id: WorkerId,
    pub task_queue: TaskQueue,
    pub runtime: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    pub supported_workflow_types: Vec<String>,
    pub supported_activity_types: Vec<String>,
    pub workflow_definition_fingerprints: Map<String, Value>,
    pub workflow_command_contracts: Map<String, Value>,
    pub capabilities: Vec<String>,
    pub capability_manifest: Map<String, Value>,
    pub max_concurrent_workflow_tasks: u64,
    pub max_concurrent_activity_tasks: u64,
    pub max_concurrent_worker_sessions: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_slots: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_metrics: Option<Value>,
    pub registered_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
    pub updated_at: Timestamp,
}
