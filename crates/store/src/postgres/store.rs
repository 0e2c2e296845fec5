//! The store itself: reads on pooled connections, commits by the writers.

use std::sync::Arc;

use futures::future::FutureExt as _;
use futures::stream::BoxStream;
use longhaul_engine::change::{
    Changes, CommandRow, Document, DocumentKey, DocumentKind, LogLine, TaskRow,
};
use longhaul_engine::run::state::Run;
use longhaul_engine::session::{Session, Status};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskId, WorkflowId};
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use refinery::Migration;
use tokio::task::JoinSet;

use super::clock::DatabaseClock;
use super::connect::{Role, connect};
use super::hints::Exchange;
use super::inspect::inspect;
use super::migrate;
use super::options::Options;
use super::pool::{Pool, pool};
use super::read::run::{StoredRun, WantedRun};
use super::write::{Writers, removal};
use super::{list, look, read, visibility};
use crate::encode::signed;
use crate::group::{Counters, RemoteStats, Stats};
use crate::postgres::text::escaped;
use crate::trial::Trials;
use crate::{
    CommandKey, CommandRows, Due, DueLimits, Error, ExecutionPage, ExecutionSearch, Hints,
    Instance, LeaseFilter, Look, Looked, PRUNED_SESSIONS_MAX, Page, QueueCount, QueueKey, Registry,
    RunFilter, RunRead, RunStore, RunSummary, SessionFilter, SessionStore, Shared, Store,
    StoreFuture, StoredEvent, TaskPage, TaskPlace, TaskSearch, TaskStore, Together, Writable,
};

/// A store in a PostgreSQL database, which several servers may use.
pub struct Postgres {
    pool: Pool,
    runs_read: Arc<Together<WantedRun, Option<StoredRun>>>,
    tasks_read: Arc<Together<TaskId, Option<TaskRow>>>,
    writers: Writers,
    trials: Trials,
    /// Counts the statements of this store.
    options: Options,
    /// The name of this server in the tables.
    server: String,
    exchange: Arc<Exchange>,
    /// Background work. It ends with the store.
    _background: JoinSet<()>,
    clock: DatabaseClock,
}

impl Postgres {
    /// Connects, refuses a server that cannot be used, and brings the schema up to date.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached or used, [`Error::NewerSchema`] if a newer release migrated the
    /// database.
    pub async fn open(options: Options) -> Result<Self, Error> {
        Self::open_with(options, &migrate::known()).await
    }

    /// Opens a store as a later release does, with one more migration. For tests of upgrades.
    ///
    /// # Errors
    /// As [`Postgres::open`], and [`Error::Settings`] if the name is not that of a migration.
    #[cfg(feature = "conformance")]
    pub async fn open_as_later_release(
        options: Options,
        migration: &str,
        sql: &str,
    ) -> Result<Self, Error> {
        let migrations = migrate::of_later_release(migration, sql)?;
        Self::open_with(options, &migrations).await
    }

    async fn open_with(options: Options, migrations: &[Migration]) -> Result<Self, Error> {
        let options = options.counted_apart();
        let mut client = connect(&options, Role::Writer).await?;
        inspect(&client).await?;
        migrate::migrate_to(&mut client, migrations).await?;
        drop(client);
        let server = format!("{:032x}", rand::random::<u128>());
        let (exchange, exchanging) = Exchange::new(&options, &server);
        let exchange = Arc::new(exchange);
        let mut background = JoinSet::new();
        background.spawn(exchanging);
        let counters = Arc::<Counters>::default();
        Ok(Self {
            pool: pool(&options)?,
            runs_read: Arc::default(),
            tasks_read: Arc::default(),
            writers: Writers::start(&options, counters, &exchange),
            trials: Trials::default(),
            options,
            server,
            exchange,
            _background: background,
            clock: DatabaseClock::default(),
        })
    }
}

impl Store for Postgres {
    fn commit(&self, changes: Arc<Changes>) -> StoreFuture<'static, ()> {
        self.writers.enqueue(changes).boxed()
    }

    fn check_writes(&self) -> StoreFuture<'_, Writable> {
        // A commit without changes writes the number of its batch. Nothing is enqueued before the future is polled.
        let trial = async { self.writers.enqueue(Arc::default()).await };
        async {
            self.trials.check(&self.writers.counters, trial).await?;
            let clock = self.clock.read(&self.pool).await;
            Ok(Writable { clock })
        }
        .boxed()
    }

    fn stats(&self) -> Stats {
        let pool = self.pool.status();
        let remote = RemoteStats {
            statements: self.options.statements(),
            connections: pool.size as u64,
            connections_idle: pool.available as u64,
            readers_waiting: pool.waiting as u64,
        };
        Stats {
            waiting: self.writers.waiting() as u64,
            remote: Some(remote),
            ..self.writers.counters.snapshot()
        }
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Postgres {
    fn announce(&self, hints: Hints) {
        self.exchange.announce(hints);
    }

    fn hints(&self) -> BoxStream<'static, Hints> {
        self.exchange.hints()
    }

    fn look<'a>(&'a self, look: &'a Look) -> StoreFuture<'a, Looked> {
        async move { look::look(&*self.pool.get().await?, &self.server, look).await }.boxed()
    }

    fn take_due(
        &self,
        now: Timestamp,
        limits: DueLimits,
        until: Timestamp,
    ) -> StoreFuture<'_, Due> {
        async move {
            let client = self.pool.get().await?;
            let due = look::take_due(&client, &self.server, now, limits, until).await?;
            let registered = &self.writers.registered;
            if registered.is_due(now)
                && let Err(error) = registered.sweep(&client, now).await
            {
                tracing::debug!(%error, "old writers were not removed");
            }
            Ok(due)
        }
        .boxed()
    }
}

impl RunStore for Postgres {
    fn run_since<'a>(
        &'a self,
        run_id: &'a RunId,
        known: Option<Box<Run>>,
    ) -> StoreFuture<'a, RunRead> {
        async move {
            let version = known.as_ref().map(|run| run.version);
            let pool = self.pool.clone();
            let read = move |wanted: Vec<_>| {
                let pool = pool.clone();
                async move { read::run::read(&*pool.get().await?, &wanted).await }
            };
            let stored = self.runs_read.ask((run_id.clone(), version), read).await?;
            let Some(stored) = stored else {
                return Ok(RunRead::Missing);
            };
            let (read, missing) = stored.into_run(run_id, known)?;
            if missing.is_empty() {
                return Ok(read);
            }
            read::run::restore(&*self.pool.get().await?, run_id, read, missing).await
        }
        .boxed()
    }

    fn instance<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
    ) -> StoreFuture<'a, Option<Instance>> {
        async move { read::instance(&*self.pool.get().await?, namespace, workflow_id).await }
            .boxed()
    }

    fn run_by_key<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_type: &'a str,
        key: &'a str,
    ) -> StoreFuture<'a, Option<RunId>> {
        async move {
            let client = self.pool.get().await?;
            read::run_by_key(&client, namespace, workflow_type, key).await
        }
        .boxed()
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        async move { visibility::runs(&mut *self.pool.get().await?, filter).await }.boxed()
    }

    fn run_ids<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunId>> {
        async move { visibility::run_ids(&mut *self.pool.get().await?, filter).await }.boxed()
    }

    fn search_executions<'a>(
        &'a self,
        search: &'a ExecutionSearch,
    ) -> StoreFuture<'a, ExecutionPage> {
        async move { visibility::executions(&mut *self.pool.get().await?, search).await }.boxed()
    }

    fn search_tasks<'a>(&'a self, search: &'a TaskSearch) -> StoreFuture<'a, TaskPage> {
        async move { visibility::tasks(&mut *self.pool.get().await?, search).await }.boxed()
    }

    fn history<'a>(
        &'a self,
        run_id: &'a RunId,
        after: HistorySeq,
        up_to: HistorySeq,
        page: Page,
    ) -> StoreFuture<'a, Vec<StoredEvent>> {
        async move { read::history(&*self.pool.get().await?, run_id, after, up_to, page).await }
            .boxed()
    }

    fn commands<'a>(
        &'a self,
        run_id: &'a RunId,
        before: Option<RequestSeq>,
        limit: usize,
    ) -> StoreFuture<'a, CommandRows> {
        async move { read::commands(&*self.pool.get().await?, run_id, before, limit).await }.boxed()
    }

    fn command<'a>(&'a self, key: CommandKey<'a>) -> StoreFuture<'a, Option<(RunId, CommandRow)>> {
        async move { read::command(&*self.pool.get().await?, key).await }.boxed()
    }

    fn remove_run<'a>(&'a self, run_id: &'a RunId, version: u64) -> StoreFuture<'a, ()> {
        async move { removal::bury(&mut *self.pool.get().await?, run_id, version).await }.boxed()
    }

    fn purge_removed(&self) -> StoreFuture<'_, bool> {
        async move { removal::purge(&mut *self.pool.get().await?).await }.boxed()
    }

    fn due(&self, now: Timestamp, limits: DueLimits) -> StoreFuture<'_, Due> {
        async move { list::due(&*self.pool.get().await?, now, limits).await }.boxed()
    }
}

impl TaskStore for Postgres {
    fn task<'a>(&'a self, task_id: &'a TaskId) -> StoreFuture<'a, Option<TaskRow>> {
        async move {
            let pool = self.pool.clone();
            let read = move |wanted: Vec<_>| {
                let pool = pool.clone();
                async move { read::tasks(&*pool.get().await?, &wanted).await }
            };
            self.tasks_read.ask(task_id.clone(), read).await
        }
        .boxed()
    }

    fn ready_tasks<'a>(
        &'a self,
        queue: &'a QueueKey,
        place: TaskPlace,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        async move { list::ready_tasks(&*self.pool.get().await?, queue, place, limit).await }
            .boxed()
    }

    fn ready_queues(&self) -> StoreFuture<'_, Vec<QueueKey>> {
        async move { list::ready_queues(&*self.pool.get().await?).await }.boxed()
    }

    fn leased_tasks<'a>(
        &'a self,
        filter: &'a LeaseFilter,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        async move { list::leased_tasks(&*self.pool.get().await?, filter, limit).await }.boxed()
    }

    fn task_log<'a>(&'a self, run_id: &'a RunId, task: u64) -> StoreFuture<'a, Vec<LogLine>> {
        async move { read::task_log(&*self.pool.get().await?, run_id, task).await }.boxed()
    }

    fn queue_counts<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Vec<QueueCount>> {
        async move { list::queue_counts(&*self.pool.get().await?, namespace).await }.boxed()
    }
}

impl SessionStore for Postgres {
    fn session<'a>(
        &'a self,
        namespace: &'a Namespace,
        session_id: &'a SessionId,
    ) -> StoreFuture<'a, Option<Session>> {
        async move { list::session(&*self.pool.get().await?, namespace, session_id).await }.boxed()
    }

    fn list_sessions<'a>(&'a self, filter: &'a SessionFilter) -> StoreFuture<'a, Vec<Session>> {
        async move { list::sessions(&*self.pool.get().await?, filter).await }.boxed()
    }

    fn session_counts<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Vec<(Status, u64)>> {
        async move { list::session_counts(&*self.pool.get().await?, namespace).await }.boxed()
    }

    fn prune_sessions<'a>(
        &'a self,
        namespace: &'a Namespace,
        ended_before: Timestamp,
    ) -> StoreFuture<'a, bool> {
        async move {
            let client = self.pool.get().await?;
            // A session that a commit holds is not final for long; the next call deletes it.
            let statement = client
                .prepare_cached(
                    "DELETE FROM worker_sessions s USING (
                         SELECT namespace, session_id FROM worker_sessions
                         WHERE namespace = $1 AND ended_at IS NOT NULL AND ended_at < $2
                         ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED) ended
                     WHERE s.namespace = ended.namespace AND s.session_id = ended.session_id",
                )
                .await?;
            let most = signed(PRUNED_SESSIONS_MAX as u64);
            let namespace = escaped(namespace.as_str());
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&namespace, &ended_before.as_micros(), &most];
            Ok(client.execute(&statement, &parameters).await? > 0)
        }
        .boxed()
    }
}

impl Registry for Postgres {
    fn document<'a>(&'a self, key: &'a DocumentKey) -> StoreFuture<'a, Option<Document>> {
        async move { read::document(&*self.pool.get().await?, key).await }.boxed()
    }

    fn documents<'a>(
        &'a self,
        kind: DocumentKind,
        namespace: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<Document>> {
        async move { read::documents(&*self.pool.get().await?, kind, namespace).await }.boxed()
    }
}
