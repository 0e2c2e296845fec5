//! The single entry point for commands: load → decide → commit → wake.
//!
//! Within this process, commands on one run decide one after another on a cached copy, and each commit is handed to the store
//! before the next command decides; so several commands of one run share a sync to disk. A reply is sent only after everything it
//! depends on is durable. The version check in the store is the real guarantee: if another commit came first, the cached copy is
//! dropped and the command is decided again on the stored run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use longhaul_engine::change::{Cap, CapScope, DocumentChange, ReusableOutput};
use longhaul_engine::command::{CommandKind, Listed, Start};
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::command::start::{
    NewExecution, StartedExecution, start,
};
use longhaul_engine::conductor::execution::lookup::{Lookup, Step};
use longhaul_engine::run::family::outbox::{has_messages, is_removable};
use longhaul_engine::run::start::Started;
use longhaul_engine::run::state::{Program, Run};
use longhaul_engine::session::Session;
use longhaul_engine::{Changes, Command, Decision, Limits, Moment, Rejection};
use longhaul_protocol::id::RunId;
use longhaul_store::{Error as StoreError, RunRead, Store};
use tokio::sync::MutexGuard;

use crate::clock::Clock;
use crate::commit::cache::{Cache, Cell, CellState};
use crate::commit::hints::{Commit, Hints};
use crate::commit::wakes::Wakes;
use crate::conductor::finder::Finder;
use crate::error::{Error, Result};

/// How often a command is decided again after losing to another commit, before its caller is asked to retry. On a store of its own a
/// server loses only to itself; losing eight times in a row means something is wrong.
const CONFLICT_RETRIES: usize = 8;

/// The same if other servers may write. A row that another server is writing counts as lost too, and a busy database takes a while to
/// write it. With the pauses in between, this is about a second.
const SHARED_CONFLICT_RETRIES: usize = 24;

/// The pause after a lost commit is random and at most this, doubled each time, if other servers may write. Both would lose again
/// if they tried again at the same time.
const CONFLICT_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause after a lost commit.
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Steps of one decision on a definition run. A pass asks for a bounded number of things.
const STEPS_MAX: usize = 200;

/// What a decision on a definition run leaves to be done at once, in transactions of their own.
#[derive(Debug, Default)]
pub(crate) struct Remainder {
    /// New runs, whose first pass is still to be made.
    pub(crate) created: Vec<RunId>,
    /// The pass reached its bound.
    pub(crate) has_work: bool,
    /// There are messages to other runs.
    pub(crate) has_messages: bool,
}

impl Remainder {
    pub(crate) fn is_empty(&self) -> bool {
        self.created.is_empty() && !self.has_work && !self.has_messages
    }
}

fn asked_too_much(kind: CommandKind) -> Error {
    tracing::error!(
        command = kind.as_str(),
        "a decision asked for too much; the reply was internal_error and nothing was committed"
    );
    Error::Internal
}

/// Logs a decision that panicked. It is a bug that ends this request only: nothing was written, and the run is unchanged.
fn panicked(kind: CommandKind) -> Error {
    tracing::error!(
        command = kind.as_str(),
        "a decision panicked; the reply was internal_error and nothing was committed"
    );
    Error::Internal
}

/// The outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Done,
    /// There is no such run.
    NotThere,
    /// The run is open, or has messages for others.
    StillNeeded,
}

/// Decides and commits.
pub(crate) struct Executor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    wakes: Arc<Wakes>,
    cache: Cache,
    pub(crate) finder: Finder,
}

/// The tries of one command on one run. Another commit may come first; then the command is decided again on what is stored.
///
/// ```ignore
/// let mut tries = executor.tries(&run_id);
/// while let Some(locked) = tries.next().await? {
///     // Read what the command depends on, build it, then:
///     if let Some(reply) = locked.decide(&command).await? {
///         return Ok(reply);
///     }
/// }
/// // There is no such run.
/// ```
pub(crate) struct Tries<'e> {
    executor: &'e Executor,
    run_id: RunId,
    /// The cell of the newest try.
    cell: Option<Arc<Cell>>,
    left: usize,
    lost: u32,
}

impl Tries<'_> {
    /// Takes the lock of the run. Returns `Ok(None)` if there is no such run.
    ///
    /// # Errors
    /// [`Error::Contended`] if the command lost too often.
    pub(crate) async fn next(&mut self) -> Result<Option<Locked<'_>>> {
        if self.left == 0 {
            return Err(Error::Contended);
        }
        if self.lost > 0 && self.executor.store.shared().is_some() {
            let most = CONFLICT_PAUSE.saturating_mul(1 << self.lost.min(10));
            let most = most.min(CONFLICT_PAUSE_MAX);
            tokio::time::sleep(most.mul_f64(rand::random())).await;
        }
        self.left -= 1;
        self.lost += 1;
        let cell = self.cell.insert(self.executor.cache.cell(&self.run_id));
        self.executor.lock(cell, &self.run_id).await
    }

    /// Continues with the successor of the run.
    pub(crate) fn follow(&mut self, run_id: RunId) {
        self.run_id = run_id;
    }
}

/// A run under its lock.
pub(crate) struct Locked<'a> {
    executor: &'a Executor,
    cell: &'a Arc<Cell>,
    state: MutexGuard<'a, CellState>,
}

impl Locked<'_> {
    pub(crate) fn run(&self) -> &Run {
        self.state.run.as_ref().expect("a locked run is loaded")
    }

    /// Waits until everything that this process wrote to the run is durable, so that rows read from the store are current.
    pub(crate) async fn wait_for_commits(&self) -> Result<()> {
        match self.state.tail.clone() {
            Some(tail) => Ok(tail.await?),
            None => Ok(()),
        }
    }

    /// Decides, commits and wakes. Returns `Ok(None)` if another commit came first.
    pub(crate) async fn decide<C: Command>(self, command: &C) -> Result<Option<C::Reply>> {
        let decided = self.decide_and_list(command).await?;
        Ok(decided.map(|(reply, _)| reply))
    }

    /// As [`Locked::decide`]. Returns also what the decision leaves to be done at once.
    async fn decide_and_list<C: Command>(
        mut self,
        command: &C,
    ) -> Result<Option<(C::Reply, Remainder)>> {
        let program = self.run().spec.program;
        if !C::KIND.is_for(program) {
            return Err(Rejection::OtherProgram { program }.into());
        }
        let decision = match program {
            Program::Code => self
                .executor
                .decide(C::KIND, |moment| command.decide(self.run(), moment))?,
            Program::Definition => self.decide_in_steps(command).await?,
        };
        if decision.changes.run.is_none() && !self.refresh().await? {
            return Ok(None);
        }
        let Self {
            executor,
            cell,
            mut state,
        } = self;
        let outputs = outputs_of(&decision.changes);
        let created = decision.changes.created.iter();
        let created = created.map(|run| run.spec.run_id.clone()).collect();
        let (reply, durable) = executor.conclude(C::KIND, cell, &mut state, decision);
        let remainder = Remainder {
            created,
            has_work: state.run.as_ref().is_some_and(has_work),
            has_messages: state.run.as_ref().is_some_and(has_messages),
        };
        let change = state.newest_change();
        drop(state);
        match durable.wait().await {
            Ok(()) => {
                executor
                    .finder
                    .keep_outputs(&outputs, executor.clock.now())
                    .await;
                Ok(Some((reply?, remainder)))
            }
            Err(error) => {
                executor.recover(cell, change, error).await?;
                Ok(None)
            }
        }
    }

    /// Decides a command on a definition run: finds what each step asks for, with the run locked, and decides again with the same
    /// time and ids.
    async fn decide_in_steps<C: Command>(&self, command: &C) -> Result<Decision<C::Reply>> {
        let moment = self.executor.moment();
        let run = self.run();
        let spec = &run.spec;
        let execution = run.core.execution.as_ref();
        let snapshot = execution.map(|execution| &execution.snapshot);
        let domains = execution.map(|execution| &*execution.task_to_domain);
        let finder = &self.executor.finder;
        let mut found = finder.begin(&spec.namespace, snapshot, domains, moment.now);
        for _ in 0..STEPS_MAX {
            let step = catch_unwind(AssertUnwindSafe(|| command.step(run, moment, &found)));
            match step.map_err(|_| panicked(C::KIND))? {
                Step::Decided(decision) => return Ok(decision),
                Step::Needs(lookups) => {
                    let reads_events = |lookup: &Lookup| matches!(lookup, Lookup::Value(_));
                    if lookups.iter().any(reads_events) {
                        self.wait_for_commits().await?;
                    }
                    finder
                        .find(
                            &spec.namespace,
                            &spec.run_id,
                            moment.now,
                            lookups,
                            &mut found,
                        )
                        .await?;
                }
            }
        }
        Err(asked_too_much(C::KIND))
    }

    /// Returns whether the copy is current, and replaces it by the stored run if not. A decision that writes nothing is not checked by
    /// a commit; if other servers write too, its copy is compared with the store instead.
    async fn refresh(&mut self) -> Result<bool> {
        if self.executor.store.shared().is_none() {
            return Ok(true);
        }
        self.wait_for_commits().await?;
        let run_id = self.run().run_id().clone();
        let known = self.state.take_copy();
        let stored = match self.executor.store.run_since(&run_id, known).await? {
            RunRead::Unchanged(run) => {
                self.state.put_stored(Some(*run));
                return Ok(true);
            }
            RunRead::Found(run) => Some(*run),
            RunRead::Missing => None,
        };
        self.state.put_stored(stored);
        self.executor.cache.reloaded(self.cell, &self.state);
        Ok(false)
    }
}

impl Executor {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        wakes: Arc<Wakes>,
        cache_bytes_max: u64,
        finder: Finder,
    ) -> Self {
        Self {
            store,
            clock,
            limits,
            wakes,
            cache: Cache::new(cache_bytes_max),
            finder,
        }
    }

    pub(crate) fn moment(&self) -> Moment<'_> {
        Moment {
            now: self.clock.now(),
            entropy: rand::random(),
            limits: &self.limits,
        }
    }

    /// Decides one command on one run. Returns `Ok(None)` if there is no such run.
    pub(crate) async fn execute<C: Command>(
        &self,
        run_id: &RunId,
        command: &C,
    ) -> Result<Option<C::Reply>> {
        let mut tries = self.tries(run_id);
        while let Some(locked) = tries.next().await? {
            if let Some(reply) = locked.decide(command).await? {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// As [`Executor::execute`], on a definition run. Returns also what is left to be done at once.
    pub(crate) async fn execute_and_list<C: Command>(
        &self,
        run_id: &RunId,
        command: &C,
    ) -> Result<Option<(C::Reply, Remainder)>> {
        let mut tries = self.tries(run_id);
        while let Some(locked) = tries.next().await? {
            if let Some(decided) = locked.decide_and_list(command).await? {
                return Ok(Some(decided));
            }
        }
        Ok(None)
    }

    /// Removes a run that has ended and whose messages are delivered, from the store and from memory.
    pub(crate) async fn remove(&self, run_id: &RunId) -> Result<Removal> {
        let mut tries = self.tries(run_id);
        while let Some(locked) = tries.next().await? {
            locked.wait_for_commits().await?;
            if !is_removable(locked.run()) {
                return Ok(Removal::StillNeeded);
            }
            let Locked {
                executor,
                cell,
                mut state,
            } = locked;
            let version = state.run.as_ref().map_or(0, |run| run.version);
            let removed = executor.store.remove_run(run_id, version).await;
            state.put_stored(None);
            executor.cache.reloaded(cell, &state);
            drop(state);
            match removed {
                Ok(()) => {
                    executor.cache.remove(run_id);
                    return Ok(Removal::Done);
                }
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Removal::NotThere)
    }

    /// Begins a command that depends on something that is read under the lock of the run.
    pub(crate) fn tries(&self, run_id: &RunId) -> Tries<'_> {
        Tries {
            executor: self,
            run_id: run_id.clone(),
            cell: None,
            left: if self.store.shared().is_some() {
                SHARED_CONFLICT_RETRIES
            } else {
                CONFLICT_RETRIES
            },
            lost: 0,
        }
    }

    /// Starts a workflow that has no run yet. [`StoreError::Conflict`] becomes `Contended`: the id was taken meanwhile.
    pub(crate) async fn create(&self, start: &Start) -> Result<Started> {
        let decision = self.decide(Start::KIND, |moment| start.decide_new(moment))?;
        let reply = decision.reply?;
        let changes = Arc::new(decision.changes);
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        let created = self.cache_created(&changes, &commit);
        match self.finish(commit, None, created).wait().await {
            Ok(()) => Ok(reply),
            Err(error) => {
                self.cache.remove(&reply.run_id);
                Err(error.into())
            }
        }
    }

    /// Starts a definition run and makes its first pass, in one commit. Returns also what is left to be done at once.
    ///
    /// # Errors
    /// [`Error::Contended`] if its idempotency key was taken meanwhile.
    pub(crate) async fn create_execution(&self, new: &NewExecution) -> Result<(RunId, Remainder)> {
        self.create_recorded(new, |_| None).await
    }

    /// As [`Executor::create_execution`], with a document in the same commit.
    ///
    /// # Errors
    /// [`Error::Contended`] also if the document exists.
    pub(crate) async fn create_recorded(
        &self,
        new: &NewExecution,
        record: impl FnOnce(&RunId) -> Option<DocumentChange>,
    ) -> Result<(RunId, Remainder)> {
        let mut decision = self.decide_start(new).await?;
        let started = decision.reply?;
        decision.changes.documents = record(&started.run_id).into_iter().collect();
        let outputs = outputs_of(&decision.changes);
        let changes = Arc::new(decision.changes);
        let children = changes.created.iter().skip(1);
        let remainder = Remainder {
            created: children.map(|run| run.spec.run_id.clone()).collect(),
            has_work: started.has_work,
            has_messages: started.has_messages,
        };
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        let created = self.cache_created(&changes, &commit);
        match self.finish(commit, None, created).wait().await {
            Ok(()) => {
                self.finder.keep_outputs(&outputs, self.clock.now()).await;
                Ok((started.run_id, remainder))
            }
            Err(error) => {
                for run in &changes.created {
                    self.cache.remove(&run.spec.run_id);
                }
                Err(error.into())
            }
        }
    }

    async fn decide_start(&self, new: &NewExecution) -> Result<Decision<StartedExecution>> {
        let moment = self.moment();
        let namespace = &new.namespace;
        let mut found = self
            .finder
            .begin(namespace, None, Some(&new.task_to_domain), moment.now);
        let snapshot = Arc::clone(&new.snapshot);
        found.snapshots.insert(snapshot.hash().into(), snapshot);
        // The new run has no events yet, so nothing of it can be asked for.
        let none = RunId::from("");
        for _ in 0..STEPS_MAX {
            let step = catch_unwind(AssertUnwindSafe(|| start(new, moment, &found)));
            match step.map_err(|_| panicked(Start::KIND))? {
                Step::Decided(decision) => return Ok(decision),
                Step::Needs(lookups) => {
                    self.finder
                        .find(namespace, &none, moment.now, lookups, &mut found)
                        .await?;
                }
            }
        }
        Err(asked_too_much(Start::KIND))
    }

    /// Commits sessions alone; returns false if another commit of one of them came first.
    pub(crate) async fn commit_sessions(
        &self,
        sessions: Vec<Session>,
        cap: Option<Cap>,
    ) -> Result<bool> {
        let mut changes = Changes::of_sessions(sessions);
        if self.store.shared().is_some() {
            changes.add_caps(cap);
        }
        let changes = Arc::new(changes);
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        let hints = Arc::<Hints>::default();
        hints.expect(&commit, &changes);
        match self.finish(commit, Some(hints), Vec::new()).wait().await {
            Ok(()) => Ok(true),
            Err(error) if is_lost(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the copy of a run that another server changed.
    pub(crate) fn mark_older(&self, run_id: &RunId, version: u64) {
        self.cache.mark_older(run_id, version);
    }

    /// Marks the copy of a run that another server has probably changed.
    pub(crate) fn mark_unsure(&self, run_id: &RunId) {
        if self.store.shared().is_some() {
            self.cache.mark_older(run_id, u64::MAX);
        }
    }

    /// Returns the run as it is now, once it is durable.
    pub(crate) async fn read(&self, run_id: &RunId) -> Result<Option<Run>> {
        self.read_part(run_id, Run::clone).await
    }

    /// Returns a part of the run as it is now, once it is durable. A large run is not copied for it.
    pub(crate) async fn read_part<T>(
        &self,
        run_id: &RunId,
        part: impl FnOnce(&Run) -> T,
    ) -> Result<Option<T>> {
        let cell = self.cache.cell(run_id);
        let Some(mut locked) = self.lock(&cell, run_id).await? else {
            return Ok(None);
        };
        locked.refresh().await?;
        let Some(run) = &locked.state.run else {
            return Ok(None);
        };
        let part = part(run);
        let tail = locked.state.tail.clone();
        drop(locked);
        Durable::Resting(tail).wait().await?;
        Ok(Some(part))
    }

    /// Decides the command. A panic is a bug that ends this request only: nothing was written, and the run is unchanged.
    fn decide<R>(
        &self,
        kind: CommandKind,
        decide: impl FnOnce(Moment<'_>) -> Decision<R>,
    ) -> Result<Decision<R>> {
        catch_unwind(AssertUnwindSafe(|| decide(self.moment()))).map_err(|_| panicked(kind))
    }

    async fn lock<'c>(&'c self, cell: &'c Arc<Cell>, run_id: &RunId) -> Result<Option<Locked<'c>>> {
        let mut state = cell.state.lock().await;
        // Invariant: with other servers on the store, a decision is based on a stored run. A commit that another server's came before
        // leaves a copy whose version is that of the other commit, so the check of the next commit would pass and mix both states.
        if self.store.shared().is_some()
            && let Some(tail) = state.tail.clone()
        {
            if let Err(error) = tail.await {
                let change = state.newest_change();
                self.remove_refused(cell, &mut state, change, &error);
            }
            state.tail = None;
        }
        if state.must_read() {
            let known = state.take_copy();
            let stored = match self.store.run_since(run_id, known).await? {
                RunRead::Found(run) | RunRead::Unchanged(run) => Some(*run),
                RunRead::Missing => None,
            };
            state.put_stored(stored);
            self.cache.reloaded(cell, &state);
        }
        if state.run.is_none() {
            drop(state);
            self.cache.remove(run_id);
            return Ok(None);
        }
        Ok(Some(Locked {
            executor: self,
            cell,
            state,
        }))
    }

    /// Hands the changes to the store and applies them to the cached run.
    fn conclude<R>(
        &self,
        kind: CommandKind,
        cell: &Cell,
        state: &mut CellState,
        decision: Decision<R>,
    ) -> (Verdict<R>, Durable) {
        let Decision { mut changes, reply } = decision;
        if changes.run.is_none() && changes.sessions.is_empty() {
            return (reply, Durable::Resting(state.tail.clone()));
        }
        if self.store.shared().is_none() {
            // Counted in memory.
            changes.clear_caps();
        } else if kind.is_claim() {
            let leased = changes.runs().flat_map(|change| &change.tasks);
            let caps = leased.flat_map(|row| self.wakes.dispatch.caps_of_lease(row));
            let caps: Vec<Cap> = caps.collect();
            changes.add_caps(caps);
        }
        let changes = Arc::new(changes);
        let commit = self.store.commit(Arc::clone(&changes)).boxed().shared();
        if let Some(change) = &changes.run {
            if self.store.shared().is_some() {
                self.cache.apply_undoably(cell, state, change);
            } else {
                self.cache.apply(cell, state, change);
            }
        }
        // A commit of sessions alone is not a commit of the run: later commands still wait for the newest commit of the run.
        if changes.run.is_some() {
            state.tail = Some(commit.clone());
        }
        cell.hints.expect(&commit, &changes);
        let created = self.cache_created(&changes, &commit);
        let own = Some(Arc::clone(&cell.hints));
        (reply, self.finish(commit, own, created))
    }

    fn finish(&self, commit: Commit, own: Option<Arc<Hints>>, created: Vec<Arc<Hints>>) -> Durable {
        Durable::Committing(Finishing {
            commit: Some(commit),
            own,
            created,
            wakes: Arc::clone(&self.wakes),
        })
    }

    /// Adds the runs that this commit creates to the cache, before any caller can request them.
    fn cache_created(&self, changes: &Arc<Changes>, commit: &Commit) -> Vec<Arc<Hints>> {
        let cache = |(place, created)| {
            let hints = Arc::<Hints>::default();
            hints.expect_created(commit, changes, place);
            self.cache.add_created(created, commit, Arc::clone(&hints));
            hints
        };
        changes.created.iter().enumerate().map(cache).collect()
    }

    /// Returns the number of runs in memory, and about how many bytes they take.
    pub(crate) fn cached(&self) -> (usize, u64) {
        self.cache.size()
    }

    /// Removes a change that was not stored from the cached copy. If another server came first, the rest of the copy is still of use.
    fn remove_refused(&self, cell: &Cell, state: &mut CellState, change: u64, error: &StoreError) {
        if matches!(error, StoreError::Conflict) && self.store.shared().is_some() {
            self.cache.undo(cell, state, change);
        } else {
            state.put_stored(None);
            self.cache.reloaded(cell, state);
        }
    }

    /// Removes a commit that did not happen from the cached copy. A conflict is retried, an outage is not.
    async fn recover(&self, cell: &Arc<Cell>, change: u64, error: StoreError) -> Result<()> {
        {
            let mut state = cell.state.lock().await;
            self.remove_refused(cell, &mut state, change, &error);
        }
        if is_lost(&error) {
            Ok(())
        } else {
            Err(error.into())
        }
    }
}

/// Returns the outputs that later tasks may take.
fn outputs_of(changes: &Changes) -> Vec<ReusableOutput> {
    let outputs = changes.runs().flat_map(|change| &change.outputs);
    outputs.cloned().collect()
}

/// Returns whether the decision is made again on what is stored. A worker that holds too many sessions is refused then.
fn is_lost(error: &StoreError) -> bool {
    match error {
        StoreError::Conflict => true,
        StoreError::CapReached(scope) => matches!(**scope, CapScope::WorkerSessions(..)),
        _ => false,
    }
}

/// The reply or refusal, sent once it is durable.
type Verdict<R> = std::result::Result<R, longhaul_engine::Rejection>;

/// What a reply waits for.
enum Durable {
    /// Nothing new was written; the changes that the decision depends on may still be on their way to disk.
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

/// A pending commit, and the hints to send afterwards. The caller may hang up while it waits; the commit still happens, and
/// dropping this early hands the hints to a task of its own.
struct Finishing {
    commit: Option<Commit>,
    /// The hints of the run that was decided on.
    own: Option<Arc<Hints>>,
    /// The hints of the created runs.
    created: Vec<Arc<Hints>>,
    wakes: Arc<Wakes>,
}

impl Finishing {
    async fn wait(mut self) -> std::result::Result<(), StoreError> {
        let Some(commit) = &self.commit else {
            return Ok(());
        };
        let outcome = commit.clone().await;
        self.commit = None;
        self.deliver();
        outcome
    }

    fn deliver(&self) {
        for hints in self.own.iter().chain(&self.created) {
            hints.deliver(&self.wakes);
        }
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        let Some(commit) = self.commit.take() else {
            return;
        };
        let rest = Self {
            commit: None,
            own: self.own.take(),
            created: std::mem::take(&mut self.created),
            wakes: Arc::clone(&self.wakes),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A failed commit is handled too: hints of the run's other commits may wait behind it.
                let _ = commit.await;
                rest.deliver();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_engine::command::ClaimWorkflowTask;
    use longhaul_engine::queue::Admission;
    use longhaul_engine::run::start::DuplicatePolicy;
    use longhaul_engine::run::state::Routing;
    use longhaul_engine::run::workflow_task::claim::SignalDelivery;
    use longhaul_engine::run::workflow_task::release::ReleaseWorkflowTask;
    use longhaul_protocol::Payload;
    use longhaul_protocol::id::{TaskId, WorkerId};
    use longhaul_store::memory::Memory;
    use serde_json::Map;

    use super::*;
    use crate::clock::SystemClock;
    use crate::conductor::evaluate::Evaluator;
    use crate::matching::dispatch::{Dispatch, PollCaps};

    fn executor() -> Executor {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let dispatch = Dispatch::new(
            Arc::clone(&clock),
            Admission::default(),
            PollCaps::default(),
        );
        let wakes = Arc::new(Wakes::new(Arc::default(), dispatch, 60, None));
        let store = Arc::new(Memory::new());
        let finder = Finder::new(
            Arc::clone(&store) as Arc<dyn Store>,
            Evaluator::default(),
            crate::Environment::default(),
        );
        Executor::new(store, clock, Limits::default(), wakes, 1 << 20, finder)
    }

    async fn started(executor: &Executor) -> (RunId, TaskId) {
        let start = Start {
            namespace: "default".into(),
            workflow_id: "w".into(),
            workflow_type: "order".to_owned(),
            task_queue: "q".into(),
            arguments: Payload::empty_list(),
            business_key: None,
            memo: None,
            search_attributes: Map::new(),
            run_timeout_seconds: None,
            execution_timeout_seconds: None,
            routing: Routing::default(),
            duplicate_policy: DuplicatePolicy::Fail,
            declared: Map::new(),
            principal: None,
            context: None,
        };
        let run_id = executor.create(&start).await.unwrap().run_id;
        let run = executor.read(&run_id).await.unwrap().unwrap();
        (run_id, run.core.workflow_task.unwrap().id)
    }

    /// Decides and hands the commit to the store, without waiting for it.
    async fn begin<C: Command>(executor: &Executor, run_id: &RunId, command: C) -> Durable {
        let cell = executor.cache.cell(run_id);
        let mut locked = executor.lock(&cell, run_id).await.unwrap().unwrap();
        let decision = command.decide(locked.run(), executor.moment());
        let (reply, durable) = executor.conclude(C::KIND, &cell, &mut locked.state, decision);
        assert!(reply.is_ok());
        durable
    }

    async fn lease_and_give_back(executor: &Executor) -> (TaskId, Durable, Durable) {
        let (run_id, task_id) = started(executor).await;
        let claim = ClaimWorkflowTask {
            task_id: task_id.clone(),
            worker_id: WorkerId::from("w1"),
            signal_delivery: SignalDelivery::Any,
            poll_request_id: None,
        };
        let leased = begin(executor, &run_id, claim).await;
        let release = ReleaseWorkflowTask {
            task_id: task_id.clone(),
            owner: WorkerId::from("w1"),
        };
        let released = begin(executor, &run_id, release).await;
        (task_id, leased, released)
    }

    #[tokio::test]
    async fn a_late_hint_does_not_undo_a_newer_one() {
        let executor = executor();
        let (task_id, leased, released) = lease_and_give_back(&executor).await;
        released.wait().await.unwrap();
        assert!(executor.wakes.leased_row(&task_id).is_none());
        leased.wait().await.unwrap();
        assert!(
            executor.wakes.leased_row(&task_id).is_none(),
            "the lease has ended, and no later hint would record its end"
        );
    }

    #[tokio::test]
    async fn hints_of_a_caller_that_hung_up_are_delivered_in_order() {
        let executor = executor();
        let (task_id, leased, released) = lease_and_give_back(&executor).await;
        drop(leased);
        released.wait().await.unwrap();
        tokio::task::yield_now().await;
        assert!(executor.wakes.leased_row(&task_id).is_none());
        assert_eq!(executor.wakes.dispatch.size(), (1, 1), "it is ready again");
    }
}
