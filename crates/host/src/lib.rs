//! The shell around the engine: clock, ids, loops and waiting. It loads, lets the engine decide, commits and wakes; it holds no
//! rule of its own about runs.
//!
//! [`Host`] starts, stops and has the settings. Each subject is a view of it, with the operations in the file of the subject:
//! `host.workflow_tasks().complete(…)`, `host.workflows().signal(…)`, `host.sessions().close(…)`. The HTTP handlers call only these.
//! Nothing here knows HTTP or JSON bodies.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use longhaul_engine::Limits;
use longhaul_engine::queue::Admission;
use longhaul_engine::rollout::FleetValidation;
use longhaul_store::{LeaseFilter, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub mod api;
pub mod clock;
mod cluster;
mod commit;
pub mod conductor;
pub mod error;
mod idle;
mod matching;
mod metrics;
mod operations;
mod questions;
mod registry;
mod sweeps;
mod views;

pub use clock::skew::{ClockSkew, SkewLevel};
pub use conductor::definitions::Existing;
pub use conductor::executions::reopening::{DefinitionUsed, Rerun, RetriedRun};
pub use conductor::executions::trial::{Mock, Mocks};
pub use conductor::executions::{ExecutionView, StartExecution};
pub use conductor::poll_data::LastPoll;
pub use conductor::refusal::ConductorRefusal;
pub use conductor::schemas::SchemaVersion;
pub use conductor::search::{Correlated, Instances, SearchExecutions, Searched};
pub use conductor::tasks::BatchPoll;
pub use conductor::wait::{WaitUntil, Waited};
pub use error::{Error, Result, question_reason};
pub use idle::Idle;
pub use longhaul_engine::conductor::execution::end::AfterTermination;
pub use matching::admission::Throttle;
pub use matching::dispatch::{FairnessView, PollCaps};
pub use matching::poll::{Poll, Polled};
pub use metrics::Metrics;
pub use operations::acceptance::SignalPreview;
pub use operations::activity_counts::{ActivityCounts, ActivityTotals, OpenActivities};
pub use operations::debug::DebugView;
pub use operations::queues::{QueueAdmission, QueueRates, QueueView};
pub use operations::request_limits::{NamespaceCaps, RequestCaps, RequestSlot};
pub use operations::sessions::{
    Holder, SessionCounts, SessionList, SessionReceipt, SessionRefused, SessionView,
};
pub use operations::tasks::ClaimStatus;
pub use operations::updates::UpdateWait;
pub use operations::workflow_tasks::{HistoryPage, LeasedWorkflowTask};
pub use operations::workflows::{
    CommandPage, CommandTarget, Description, Handlers, HistoryRequest, RunList,
};
pub use questions::progress::{
    Held, QueryResult, QuestionFailure, QuestionHolder, QuestionKind, QuestionRefusal,
    QuestionTimes, TimeoutStage,
};
pub use questions::query::{Queried, QueryAdmission, QueryRefusal};
pub use questions::table::QuestionLimits;
pub use questions::validation::{ValidationRefusal, WorkflowWork};
pub use questions::waiter::LeasedQuestion;
pub use registry::compatibility::{BuildSupport, PinnedWorkers};
pub use registry::namespaces::{DEFAULT_NAMESPACE, NamespaceSpec};
pub use registry::rollouts::{Blocked, Cohort, DrainingQueue};
pub use registry::workers::{Fleet, WorkerFilter, WorkerList, WorkerView};
pub use sweeps::audit::AuditPlace;
pub use views::{
    ActivityTasks, Definitions, ExecutionTasks, Executions, LocalActivities, Namespaces, Queries,
    Rollouts, SearchAttributes, Sessions, TaskQueues, Validations, Workers, WorkflowTasks,
    Workflows,
};

/// Returns an id for one failure, to find it in the log.
pub fn mint_error_id() -> String {
    let now = SystemClock.now();
    longhaul_protocol::Ids::new(now, rand::random())
        .mint::<longhaul_protocol::id::EventId>()
        .to_string()
}

/// Rows and filters of the store that callers read or fill in.
pub use longhaul_store::{
    NamespaceRow, Quiet, RunFilter, RunSummary, SessionFilter, StatusFilter, StoredEvent, WorkerRow,
};

use clock::{Clock, SystemClock};
use commit::execute::Executor;
use commit::wakes::Wakes;
use conductor::evaluate::Evaluator;
use conductor::finder::Finder;
use matching::dispatch::Dispatch;

/// Leases whose polls are restored after a restart. More than any server holds at once.
const RESTORED_LEASES_MAX: usize = 200_000;

/// The settings of a host.
#[derive(Clone, Debug)]
pub struct Config {
    pub limits: Limits,
    /// The heartbeat interval that workers must keep.
    pub worker_heartbeat_seconds: u64,
    /// A worker counts as stale after this silence.
    pub worker_stale_seconds: u64,
    /// A stale worker is deleted after this much more silence.
    pub worker_forget_seconds: u64,
    /// Bytes of runs kept in memory.
    pub run_cache_bytes: u64,
    /// Queries and validations of updates.
    pub questions: QuestionLimits,
    /// Caps on leases and dispatches.
    pub admission: Admission,
    pub poll_caps: PollCaps,
    pub request_caps: RequestCaps,
    pub fleet_validation: FleetValidation,
    /// Runs the scripts of definitions.
    pub evaluator: Evaluator,
    /// What operators call this server.
    pub server_name: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        // Three missed heartbeats, and never less than a minute.
        Self {
            limits: Limits::default(),
            worker_heartbeat_seconds: 20,
            worker_stale_seconds: 60,
            worker_forget_seconds: sweeps::workers::FORGET_SECONDS_DEFAULT,
            run_cache_bytes: commit::cache::CACHED_BYTES_DEFAULT,
            questions: QuestionLimits::default(),
            admission: Admission::default(),
            poll_caps: PollCaps::default(),
            request_caps: RequestCaps::default(),
            fleet_validation: FleetValidation::default(),
            evaluator: Evaluator::default(),
            server_name: None,
        }
    }
}

/// The state of one server. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    executor: Arc<Executor>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    wakes: Arc<Wakes>,
    workers: registry::workers::WorkerTable,
    namespaces: registry::namespaces::NamespaceTable,
    search_attributes: registry::search_attributes::AttributeTable,
    questions: questions::table::QuestionTable,
    queries: questions::query::QueryQueues,
    validating: questions::validation::Validating,
    rollouts: registry::rollouts::RolloutTable,
    sessions: operations::sessions::SessionLocks,
    requests: Arc<operations::request_limits::Requests>,
    presence: cluster::presence::Presence,
    passing: cluster::questions::Passing,
    lease_checks: Arc<cluster::lease_checks::LeaseChecks>,
    skew: clock::skew::SkewWatch,
    config: Config,
    /// Cancelled first: waiting polls return and nothing new is leased.
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Host {
    /// Opens the host on a store and recovers: ready tasks, leases and workers are read, and everything that became due while the
    /// server was down happens now.
    pub async fn start(store: Arc<dyn Store>, config: Config) -> Result<Self> {
        Self::start_with_clock(store, config, Arc::new(SystemClock)).await
    }

    /// As [`Self::start`], with the given clock.
    pub async fn start_with_clock(
        store: Arc<dyn Store>,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let shared = store.shared().map(|_| Arc::clone(&store));
        let matching = match &shared {
            Some(_) => Dispatch::of_shared_tasks,
            None => Dispatch::new,
        };
        let dispatch = matching(
            Arc::clone(&clock),
            config.admission.clone(),
            config.poll_caps,
        );
        let wakes = Arc::new(Wakes::new(
            Arc::default(),
            dispatch,
            config.worker_stale_seconds,
            shared,
        ));
        let executor = Arc::new(Executor::new(
            Arc::clone(&store),
            Arc::clone(&clock),
            config.limits.clone(),
            Arc::clone(&wakes),
            config.run_cache_bytes,
            Finder::new(Arc::clone(&store), config.evaluator.clone()),
        ));
        let queries = questions::query::QueryQueues::new(Arc::clone(&clock), config.poll_caps);
        let inner = Inner {
            executor,
            store,
            clock,
            wakes,
            workers: registry::workers::WorkerTable::default(),
            namespaces: registry::namespaces::NamespaceTable::default(),
            search_attributes: registry::search_attributes::AttributeTable::default(),
            questions: questions::table::QuestionTable::default(),
            queries,
            validating: questions::validation::Validating::default(),
            rollouts: registry::rollouts::RolloutTable::default(),
            sessions: operations::sessions::SessionLocks::default(),
            requests: Arc::default(),
            presence: cluster::presence::Presence::default(),
            passing: cluster::questions::Passing::default(),
            lease_checks: Arc::default(),
            skew: clock::skew::SkewWatch::default(),
            config,
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let host = Self {
            inner: Arc::new(inner),
        };
        host.recover().await?;
        host.start_sweeps();
        Ok(host)
    }

    /// Does work to its end, also if its caller goes away meanwhile. A change of rows that have a copy in memory needs this: a write
    /// whose caller is gone is still stored, and the copy would not have it.
    pub(crate) async fn to_the_end<T, W>(&self, work: impl FnOnce(Self) -> W) -> T
    where
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        match self.inner.tasks.spawn(work(self.clone())).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and with it the caller.
                Err(_) => std::future::pending().await,
            },
        }
    }

    async fn recover(&self) -> Result<()> {
        self.namespaces().load().await?;
        self.workers().load().await?;
        self.rollouts().load().await?;
        self.sessions().load().await?;
        if self.inner.store.shared().is_some() {
            // Tasks are read when polls wait for them, and leases when workers report.
            return self.join().await;
        }
        for queue in self.inner.store.ready_queues().await? {
            if !self.inner.wakes.dispatch.has_room() {
                // The rest is read when a worker polls for it.
                self.inner.wakes.dispatch.leave_out_rest();
                break;
            }
            self.matching().refill(&queue).await?;
        }
        for row in self
            .inner
            .store
            .leased_tasks(&LeaseFilter::default(), RESTORED_LEASES_MAX)
            .await?
        {
            self.inner.wakes.show(&row);
            self.inner.wakes.polls.restore(&row);
        }
        Ok(())
    }

    /// Stops the host: waiting polls return and sweeps end. All decisions are already durable.
    pub async fn stop(&self) {
        self.begin_stop();
        self.inner.tasks.close();
        // Nothing here waits for external systems for long; the bound is for a disk that hangs.
        if tokio::time::timeout(Duration::from_secs(10), self.inner.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some background work did not end in time");
        }
        if self.inner.store.shared().is_some()
            && let Err(error) = self.part().await
        {
            tracing::debug!(%error, "the other servers will notice that this one is gone");
        }
    }

    /// Makes waiting polls return and leases nothing new.
    pub fn begin_stop(&self) {
        self.inner.stopping.cancel();
    }

    /// Checks whether the store can write now, and compares the clock of this server with that of a database. Cheap enough for
    /// every health probe. Returns the distance of the clocks, or `None` if the store has no clock of its own.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it cannot, for example because the disk is full.
    pub async fn check_writes(&self) -> Result<Option<ClockSkew>> {
        let clock = self.inner.store.check_writes().await?.clock;
        Ok(clock.map(|database| self.inner.skew.compare(self.now(), &database)))
    }

    /// Returns the counters for `/metrics`.
    pub fn metrics(&self) -> Arc<Metrics> {
        let (wakes, queries) = (&self.inner.wakes, &self.inner.queries);
        let set = |gauge: &prometheus_client::metrics::gauge::Gauge<i64, AtomicI64>, value| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let metrics = &wakes.metrics;
        let waiting = wakes.dispatch.waiting() + queries.dispatch.waiting();
        set(&metrics.polls_waiting, waiting as u64);
        let blocked = wakes.dispatch.blocked_in_session();
        set(&metrics.session_tasks_blocked, blocked as u64);
        let (runs, bytes) = self.inner.executor.cached();
        set(&metrics.cached_runs, runs as u64);
        set(&metrics.cached_run_bytes, bytes);
        let (queues, tasks) = wakes.dispatch.size();
        set(&metrics.queues_in_memory, queues as u64);
        set(&metrics.ready_tasks_in_memory, tasks as u64);
        *metrics.clock_skew.lock() = self.inner.skew.newest();
        *metrics.store.lock() = self.inner.store.stats();
        Arc::clone(metrics)
    }

    /// Returns the number of runs in memory, and about how many bytes they take.
    pub fn cached_runs(&self) -> (usize, u64) {
        self.inner.executor.cached()
    }

    /// Returns the number of task queues and ready tasks in memory.
    pub fn queues_in_memory(&self) -> (usize, usize) {
        self.inner.wakes.dispatch.size()
    }

    /// Returns the number of worker sessions in memory.
    pub fn sessions_in_memory(&self) -> usize {
        self.inner.wakes.dispatch.sessions()
    }

    /// Returns its settings.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns the present time of the host's clock.
    pub fn now(&self) -> longhaul_protocol::Timestamp {
        self.inner.clock.now()
    }
}
