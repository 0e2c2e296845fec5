//! The one way in: load → decide → commit → wake.
//!
//! Within this process, commands on one run decide one after another on a cached copy, and each commit is handed to the
//! store before the next command decides; so several commands of one run share a sync to disk. Nothing is answered before
//! everything it rests on is durable. The version check in the store is the real guarantee: when a commit comes second, the
//! cached copy is dropped and the command is decided again on what is stored.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use longhaul_engine::run::start::{Start, Started};
use longhaul_engine::run::state::Run;
use longhaul_engine::session::Session;
use longhaul_engine::{Changes, Command, Decision, Limits, Moment};
use longhaul_protocol::id::RunId;
use longhaul_store::{Error as StoreError, Store};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::wake::Hub;

/// How often a command is decided again after losing to another commit, before its caller is told to come back. Losing
/// once is ordinary with several servers; losing eight times in a row means something is wrong.
const CONFLICT_RETRIES: usize = 8;

/// Runs kept in memory. At a few kilobytes each this is some tens of megabytes; a miss costs one read.
const CACHED_RUNS_MAX: usize = 20_000;

/// Runs in memory that have not been used since the last clean-up are dropped when there are too many.
#[derive(Default)]
struct Cache {
    cells: HashMap<RunId, Arc<Cell>>,
    clock: u64,
}

struct Cell {
    state: AsyncMutex<CellState>,
    used: AtomicU64,
}

#[derive(Default)]
pub(crate) struct CellState {
    run: Option<Run>,
    /// The newest commit of this run that this process handed to the store.
    tail: Option<Commit>,
}

/// A commit that several may wait for.
type Commit = Shared<BoxFuture<'static, std::result::Result<(), StoreError>>>;

/// Decides and commits.
pub(crate) struct Executor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    hub: Arc<Hub>,
    cache: Mutex<Cache>,
}

/// A run under its lock.
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, CellState>,
}

impl Locked<'_> {
    pub(crate) fn run(&self) -> &Run {
        self.state.run.as_ref().expect("a locked run is loaded")
    }

    /// Waits until all that this process wrote to the run is durable, so that rows read from the store are current.
    pub(crate) async fn settle(&self) -> Result<()> {
        match self.state.tail.clone() {
            Some(tail) => Ok(tail.await?),
            None => Ok(()),
        }
    }
}

/// How a prepared command goes on.
pub(crate) enum Prepared<C> {
    Decide(C),
    /// The run named here must be asked instead.
    Elsewhere(RunId),
}

/// A command that needs something read under the run's lock first.
pub(crate) trait Prepare: Sync {
    type Command: Command;

    fn prepare(
        &self,
        locked: &Locked<'_>,
    ) -> impl Future<Output = Result<Prepared<Self::Command>>> + Send;
}

/// A command that needs nothing.
struct Plain<'a, C>(&'a C);

impl<'a, C: Command + Sync> Prepare for Plain<'a, C> {
    type Command = &'a C;

    async fn prepare(&self, _locked: &Locked<'_>) -> Result<Prepared<&'a C>> {
        Ok(Prepared::Decide(self.0))
    }
}

impl Executor {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        hub: Arc<Hub>,
    ) -> Self {
        Self {
            store,
            clock,
            limits,
            hub,
            cache: Mutex::new(Cache::default()),
        }
    }

    pub(crate) fn moment(&self) -> Moment<'_> {
        Moment {
            now: self.clock.now(),
            entropy: rand::random(),
            limits: &self.limits,
        }
    }

    /// Decides one command on one run. `Ok(None)` when there is no such run.
    pub(crate) async fn execute<C: Command + Sync>(
        &self,
        run_id: &RunId,
        command: &C,
    ) -> Result<Option<C::Reply>> {
        self.execute_prepared(run_id, &Plain(command)).await
    }

    /// As [`Self::execute`], for commands that need something read under the run's lock first.
    pub(crate) async fn execute_prepared<P: Prepare>(
        &self,
        run_id: &RunId,
        prepare: &P,
    ) -> Result<Option<<P::Command as Command>::Reply>> {
        let mut run_id = run_id.clone();
        for _ in 0..CONFLICT_RETRIES {
            let cell = self.cell(&run_id);
            let Some(mut locked) = self.lock(&cell, &run_id).await? else {
                return Ok(None);
            };
            let command = match prepare.prepare(&locked).await? {
                Prepared::Decide(command) => command,
                Prepared::Elsewhere(other) => {
                    run_id = other;
                    continue;
                }
            };
            let decision = self.decide(|moment| command.decide(locked.run(), moment))?;
            if decision.changes.run.is_none() && !self.is_current(&locked).await? {
                locked.state.run = None;
                continue;
            }
            let (reply, durable) = self.conclude(&mut locked.state, decision);
            drop(locked);
            match durable.wait().await {
                Ok(()) => return reply.map(Some).map_err(Error::from),
                Err(error) => self.recover(&cell, error).await?,
            }
        }
        Err(Error::Contended)
    }

    /// Starts a workflow that has no run yet. [`StoreError::Conflict`] surfaces as `Contended`: the id was taken meanwhile.
    pub(crate) async fn create(&self, start: &Start) -> Result<Started> {
        let decision = self.decide(|moment| start.decide_new(moment))?;
        let reply = decision.reply?;
        let changes = Arc::new(decision.changes);
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        self.remember_created(&changes, &commit);
        match self.finish(commit, changes).wait().await {
            Ok(()) => Ok(reply),
            Err(error) => {
                self.forget(&reply.run_id);
                Err(error.into())
            }
        }
    }

    /// Commits sessions on their own; false when another commit of one of them came first.
    pub(crate) async fn commit_sessions(&self, sessions: Vec<Session>) -> Result<bool> {
        let changes = Arc::new(Changes::of_sessions(sessions));
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        match self.finish(commit, changes).wait().await {
            Ok(()) => Ok(true),
            Err(StoreError::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The run as it is now, durable.
    pub(crate) async fn read(&self, run_id: &RunId) -> Result<Option<Run>> {
        let cell = self.cell(run_id);
        let Some(mut locked) = self.lock(&cell, run_id).await? else {
            return Ok(None);
        };
        if !self.is_current(&locked).await? {
            locked.state.run = self.store.run(run_id).await?;
            locked.state.tail = None;
        }
        let run = locked.run().clone();
        let tail = locked.state.tail.clone();
        drop(locked);
        Durable::Resting(tail).wait().await?;
        Ok(Some(run))
    }

    /// A decision that writes nothing is not checked by a commit. Where other servers write too, the copy it was made on is
    /// compared with the store instead.
    async fn is_current(&self, locked: &Locked<'_>) -> Result<bool> {
        if !self.store.is_shared() {
            return Ok(true);
        }
        locked.settle().await?;
        let run = locked.run();
        Ok(self.store.version(run.run_id()).await? == Some(run.version))
    }

    /// A panic while deciding is a bug that ends this request only: nothing was written, and the run is untouched.
    fn decide<R>(&self, decide: impl FnOnce(Moment<'_>) -> Decision<R>) -> Result<Decision<R>> {
        catch_unwind(AssertUnwindSafe(|| decide(self.moment()))).map_err(|_| {
            tracing::error!(
                "a decision panicked; the request was answered internal_error and nothing was committed"
            );
            Error::Internal
        })
    }

    fn cell(&self, run_id: &RunId) -> Arc<Cell> {
        let mut cache = self.cache.lock();
        cache.clock += 1;
        let clock = cache.clock;
        if let Some(cell) = cache.cells.get(run_id) {
            cell.used.store(clock, Ordering::Relaxed);
            return Arc::clone(cell);
        }
        cache.make_room();
        let cell = Arc::new(Cell {
            state: AsyncMutex::default(),
            used: AtomicU64::new(clock),
        });
        cache.cells.insert(run_id.clone(), Arc::clone(&cell));
        cell
    }

    async fn lock<'c>(&self, cell: &'c Arc<Cell>, run_id: &RunId) -> Result<Option<Locked<'c>>> {
        let mut state = cell.state.lock().await;
        if state.run.is_none() {
            state.run = self.store.run(run_id).await?;
            state.tail = None;
        }
        if state.run.is_none() {
            drop(state);
            self.forget(run_id);
            return Ok(None);
        }
        Ok(Some(Locked { state }))
    }

    /// Hands the changes to the store and moves the cached run on.
    fn conclude<R>(&self, state: &mut CellState, decision: Decision<R>) -> (Verdict<R>, Durable) {
        let Decision { changes, reply } = decision;
        if changes.run.is_none() && changes.sessions.is_empty() {
            return (reply, Durable::Resting(state.tail.clone()));
        }
        let changes = Arc::new(changes);
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        if let Some(change) = &changes.run {
            state.run = Some(change.apply(state.run.take()));
        }
        // Changes of a session alone do not follow upon the run's own: it rests on both.
        if changes.run.is_some() {
            state.tail = Some(commit.clone());
        }
        self.remember_created(&changes, &commit);
        (reply, self.finish(commit, changes))
    }

    fn finish(&self, commit: Commit, changes: Arc<Changes>) -> Durable {
        Durable::Committing(Finishing {
            pending: Some((commit, changes)),
            hub: Arc::clone(&self.hub),
        })
    }

    /// A run that this commit creates is known before anybody asks for it.
    fn remember_created(&self, changes: &Changes, commit: &Commit) {
        if changes.created.is_empty() {
            return;
        }
        let mut cache = self.cache.lock();
        cache.make_room();
        for created in &changes.created {
            cache.clock += 1;
            let state = CellState {
                run: Some(created.apply(None)),
                tail: Some(commit.clone()),
            };
            let cell = Cell {
                state: AsyncMutex::new(state),
                used: AtomicU64::new(cache.clock),
            };
            cache
                .cells
                .insert(created.spec.run_id.clone(), Arc::new(cell));
        }
    }

    fn forget(&self, run_id: &RunId) {
        self.cache.lock().cells.remove(run_id);
    }

    /// The cached copy rests on a commit that did not happen: drop it. A conflict is worth another try, an outage is not.
    async fn recover(&self, cell: &Arc<Cell>, error: StoreError) -> Result<()> {
        {
            let mut state = cell.state.lock().await;
            state.run = None;
            state.tail = None;
        }
        match error {
            StoreError::Conflict => Ok(()),
            other => Err(other.into()),
        }
    }
}

/// What the caller is told, once that may be said.
type Verdict<R> = std::result::Result<R, longhaul_engine::Rejection>;

/// What a reply waits for.
enum Durable {
    /// Nothing new was written; what the decision rests on may still be on its way to disk.
    Resting(Option<Commit>),
    Committing(Finishing),
}

impl Durable {
    async fn wait(self) -> std::result::Result<(), StoreError> {
        match self {
            Self::Resting(Some(tail)) => tail.await,
            Self::Resting(None) => Ok(()),
            Self::Committing(finishing) => finishing.wait().await,
        }
    }
}

/// A commit on its way, and whom to tell afterwards. The caller may hang up while it waits; the commit happens all the same,
/// and dropping this early hands the telling to a task of its own.
struct Finishing {
    pending: Option<(Commit, Arc<Changes>)>,
    hub: Arc<Hub>,
}

impl Finishing {
    async fn wait(mut self) -> std::result::Result<(), StoreError> {
        let Some((commit, _)) = &self.pending else {
            return Ok(());
        };
        let outcome = commit.clone().await;
        if let Some((_, changes)) = self.pending.take()
            && outcome.is_ok()
        {
            self.hub.wake(&changes);
        }
        outcome
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        let Some((commit, changes)) = self.pending.take() else {
            return;
        };
        let hub = Arc::clone(&self.hub);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if commit.await.is_ok() {
                    hub.wake(&changes);
                }
            });
        }
    }
}

impl Cache {
    /// Drops the less recently used half when the cache is full. A cell in use keeps living through its `Arc`; two cells for
    /// one run are possible for a moment and harmless, because the store checks versions.
    fn make_room(&mut self) {
        if self.cells.len() < CACHED_RUNS_MAX {
            return;
        }
        let mut used: Vec<u64> = self
            .cells
            .values()
            .map(|cell| cell.used.load(Ordering::Relaxed))
            .collect();
        let middle = used.len() / 2;
        let (_, median, _) = used.select_nth_unstable(middle);
        let median = *median;
        self.cells.retain(|_, cell| {
            cell.used.load(Ordering::Relaxed) > median || Arc::strong_count(cell) > 1
        });
    }
}
