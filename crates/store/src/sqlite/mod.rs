//! The embedded store: one SQLite file, one writer with group commit, readers beside it.
//!
//! `open` opens and migrates, `encode` prepares writes on the caller's thread, `write` applies them on the writer's, `read` finds
//! rows by key, `list` reads many rows, `visibility` pages of runs by condition. The schema, with
//! its reasons, is in `migrations/sqlite/`.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::{self, FutureExt as _, TryFutureExt as _};
use longhaul_engine::change::{Changes, CommandRow, LogLine, TaskRow};
use longhaul_engine::run::state::Run;
use longhaul_engine::session::{Session, Status};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskId, WorkflowId};
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};

mod damage;
mod encode;
mod error;
pub(crate) mod inspection;
mod list;
mod lock;
mod open;
mod pool;
mod read;
mod table;
mod thin;
pub(crate) mod transfer;
mod visibility;
mod write;

use self::encode::{Commit, Write};
use self::pool::Pool;
use self::table::{document, key, log, session};
use self::write::Writer;
use crate::group::{Counters, Group, Stats};
use crate::trial::Trials;
use crate::{
    CommandKey, CommandRows, Document, DocumentKey, DocumentKind, Due, DueLimits, Error,
    ExecutionPage, ExecutionSearch, Instance, LeaseFilter, Page, QueueCount, QueueKey, Registry,
    RunFilter, RunRead, RunStore, RunSummary, SessionFilter, SessionStore, Shared, Store,
    StoreFuture, StoredEvent, TaskPage, TaskPlace, TaskSearch, TaskStore, Writable,
};

pub use self::open::{Options, Sync};

/// History pages up to this many events are read at once, on the caller's thread: a workflow task's page is usually this small, and
/// hundreds of payloads are not.
const HISTORY_INLINE_MAX: u64 = 100;

/// A store in one SQLite file. Dropping it finishes all accepted writes and closes the file.
pub struct Sqlite {
    // Order: readers close first, so that the writer closes last and copies the log into the database.
    pool: Arc<Pool>,
    group: Group<Writer>,
    counters: Arc<Counters>,
    trials: Trials,
}

impl Sqlite {
    /// Opens the database at `path` with [`Options::new`], creating it if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the file cannot be opened or another server uses it, [`Error::NewerSchema`] if a newer release
    /// wrote it, [`Error::Damaged`] if it is not a database or not complete.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::open_with(Options::new(path))
    }

    /// Opens the database that `options` describe.
    ///
    /// # Errors
    /// As [`Sqlite::open`].
    pub fn open_with(options: Options) -> Result<Self, Error> {
        let (connection, lock) = open::locked(&options)?;
        let lock = Arc::new(lock);
        let counters = Arc::<Counters>::default();
        let writer = Writer::new(connection, Arc::clone(&lock), Arc::clone(&counters));
        Ok(Self {
            group: Group::start(writer, Arc::clone(&counters))?,
            pool: Arc::new(Pool::new(options.path, lock)),
            counters,
            trials: Trials::default(),
        })
    }

    /// Enqueues a write at once; a write that cannot be encoded is never enqueued.
    fn write<T: Send + 'static>(
        &self,
        write: Result<Write, Error>,
        answer: fn(bool) -> T,
    ) -> StoreFuture<'static, T> {
        match write {
            Ok(write) => self.group.enqueue(write).map_ok(answer).boxed(),
            Err(error) => future::ready(Err(error)).boxed(),
        }
    }
}

impl Store for Sqlite {
    fn check_writes(&self) -> StoreFuture<'_, Writable> {
        // Nothing is enqueued before the future is polled.
        let trial = async { self.group.enqueue(Write::Trial).await.map(drop) };
        let checked = self.trials.check(&self.counters, trial);
        checked.map_ok(|()| Writable::default()).boxed()
    }

    fn stats(&self) -> Stats {
        self.group.stats()
    }

    /// The lock excludes every other process.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }

    fn commit(&self, changes: Arc<Changes>) -> StoreFuture<'static, ()> {
        self.write(
            Commit::encode(changes).map(Box::new).map(Write::Commit),
            drop,
        )
    }
}

impl RunStore for Sqlite {
    fn run_since<'a>(
        &'a self,
        run_id: &'a RunId,
        known: Option<Box<Run>>,
    ) -> StoreFuture<'a, RunRead> {
        self.pool
            .point(|connection| read::run(connection, run_id, known))
    }

    fn instance<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
    ) -> StoreFuture<'a, Option<Instance>> {
        self.pool
            .point(|connection| read::instance(connection, namespace, workflow_id))
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        let filter = filter.clone();
        self.pool
            .long(move |connection| visibility::find::runs(connection, &filter))
    }

    fn run_ids<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunId>> {
        let filter = filter.clone();
        self.pool
            .long(move |connection| visibility::find::run_ids(connection, &filter))
    }

    fn search_executions<'a>(
        &'a self,
        search: &'a ExecutionSearch,
    ) -> StoreFuture<'a, ExecutionPage> {
        let search = search.clone();
        self.pool
            .long(move |connection| visibility::search::executions(connection, search))
    }

    fn search_tasks<'a>(&'a self, search: &'a TaskSearch) -> StoreFuture<'a, TaskPage> {
        let search = search.clone();
        self.pool
            .long(move |connection| visibility::tasks::search(connection, &search))
    }

    fn history<'a>(
        &'a self,
        run_id: &'a RunId,
        after: HistorySeq,
        up_to: HistorySeq,
        page: Page,
    ) -> StoreFuture<'a, Vec<StoredEvent>> {
        let events = up_to
            .get()
            .saturating_sub(after.get())
            .min(page.events as u64);
        if events <= HISTORY_INLINE_MAX {
            return self
                .pool
                .point(|connection| read::history(connection, run_id, after, up_to, page));
        }
        let run_id = run_id.clone();
        self.pool
            .long(move |connection| read::history(connection, &run_id, after, up_to, page))
    }

    fn commands<'a>(
        &'a self,
        run_id: &'a RunId,
        before: Option<RequestSeq>,
        limit: usize,
    ) -> StoreFuture<'a, CommandRows> {
        let run_id = run_id.clone();
        self.pool
            .long(move |connection| read::commands(connection, &run_id, before, limit))
    }

    fn command<'a>(&'a self, key: CommandKey<'a>) -> StoreFuture<'a, Option<(RunId, CommandRow)>> {
        self.pool.point(|connection| read::command(connection, key))
    }

    fn run_by_key<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_type: &'a str,
        key: &'a str,
    ) -> StoreFuture<'a, Option<RunId>> {
        self.pool
            .point(|connection| key::find(connection, namespace, workflow_type, key))
    }

    fn remove_run<'a>(&'a self, run_id: &'a RunId, version: u64) -> StoreFuture<'a, ()> {
        let run_id = run_id.clone();
        self.write(Ok(Write::RemoveRun { run_id, version }), drop)
    }

    fn purge_removed(&self) -> StoreFuture<'_, bool> {
        self.write(Ok(Write::PurgeRemoved), |were_there| were_there)
    }

    fn due(&self, now: Timestamp, limits: DueLimits) -> StoreFuture<'_, Due> {
        self.pool
            .point(|connection| read::due(connection, now, limits))
    }
}

impl TaskStore for Sqlite {
    fn task<'a>(&'a self, task_id: &'a TaskId) -> StoreFuture<'a, Option<TaskRow>> {
        self.pool
            .point(|connection| read::task(connection, task_id))
    }

    fn ready_tasks<'a>(
        &'a self,
        queue: &'a QueueKey,
        place: TaskPlace,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        self.pool
            .point(|connection| read::ready_tasks(connection, queue, place, limit))
    }

    fn ready_queues(&self) -> StoreFuture<'_, Vec<QueueKey>> {
        self.pool.long(list::ready_queues)
    }

    fn leased_tasks<'a>(
        &'a self,
        filter: &'a LeaseFilter,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        let filter = filter.clone();
        self.pool
            .long(move |connection| list::leased_tasks(connection, &filter, limit))
    }

    fn task_log<'a>(&'a self, run_id: &'a RunId, task: u64) -> StoreFuture<'a, Vec<LogLine>> {
        let run_id = run_id.clone();
        self.pool
            .long(move |connection| log::of_task(connection, &run_id, task))
    }

    fn queue_counts<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Vec<QueueCount>> {
        let namespace = namespace.clone();
        self.pool
            .long(move |connection| list::queue_counts(connection, &namespace))
    }
}

impl SessionStore for Sqlite {
    fn session<'a>(
        &'a self,
        namespace: &'a Namespace,
        session_id: &'a SessionId,
    ) -> StoreFuture<'a, Option<Session>> {
        self.pool
            .point(|connection| session::session(connection, namespace, session_id))
    }

    fn list_sessions<'a>(&'a self, filter: &'a SessionFilter) -> StoreFuture<'a, Vec<Session>> {
        let filter = filter.clone();
        self.pool
            .long(move |connection| session::list(connection, &filter))
    }

    fn session_counts<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Vec<(Status, u64)>> {
        let namespace = namespace.clone();
        self.pool
            .long(move |connection| session::counts(connection, &namespace))
    }

    fn prune_sessions<'a>(
        &'a self,
        namespace: &'a Namespace,
        ended_before: Timestamp,
    ) -> StoreFuture<'a, bool> {
        let namespace = namespace.clone();
        self.write(
            Ok(Write::PruneSessions {
                namespace,
                ended_before,
            }),
            |were_there| were_there,
        )
    }
}

impl Registry for Sqlite {
    fn document<'a>(&'a self, key: &'a DocumentKey) -> StoreFuture<'a, Option<Document>> {
        self.pool
            .point(|connection| document::document(connection, key))
    }

    fn documents<'a>(
        &'a self,
        kind: DocumentKind,
        namespace: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<Document>> {
        let namespace = namespace.map(str::to_owned);
        self.pool
            .long(move |connection| document::documents(connection, kind, namespace.as_deref()))
    }
}
