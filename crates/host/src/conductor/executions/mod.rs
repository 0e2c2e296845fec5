//! Definition runs as callers see them: start, read, terminate, pause, resume.

mod removal;
pub(crate) mod reopening;
pub(crate) mod signals;
pub(crate) mod test_run;
pub(crate) mod wait;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::change::KeyClaim;
use longhaul_engine::command::{
    ContinuePass, PauseExecution, PushMessage, ResumeExecution, TerminateExecution,
};
use longhaul_engine::conductor::definition::Snapshot;
use longhaul_engine::conductor::execution::command::start::{KeyUse, NewExecution, use_key};
use longhaul_engine::conductor::execution::end::AfterTermination;
use longhaul_engine::conductor::execution::lookup::LookupResults;
use longhaul_engine::conductor::execution::view::{Source, unloaded};
use longhaul_engine::run::state::{Program, Run};
use longhaul_protocol::conductor::{IdempotencyStrategy, Object, Task, Workflow, WorkflowDef};
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use tokio::time::Instant;

use super::refusal::ConductorRefusal;
use crate::commit::execute::Remainder;
use crate::error::{Error, Result};
use crate::sweeps::outbox::deliver_now;
use crate::views::Executions;

/// How long a request waits for the passes that it caused. After that the sweep goes on alone.
const PASSES_WAIT: Duration = Duration::from_secs(5);

/// A request to start a definition run.
#[derive(Clone, Debug, Default)]
pub struct StartExecution {
    pub name: String,
    /// `None` for the newest.
    pub version: Option<i32>,
    /// A definition that is run as it is, without being registered.
    pub definition: Option<WorkflowDef>,
    pub input: Object,
    pub correlation_id: Option<String>,
    pub priority: u8,
    pub task_to_domain: BTreeMap<String, String>,
    pub created_by: Option<String>,
    pub idempotency_key: Option<String>,
    /// What a start does whose key belongs to a run. It fails if nothing is given.
    pub idempotency_strategy: Option<IdempotencyStrategy>,
}

/// How often a start asks for its idempotency key again after another start took it first.
const KEY_TRIES: usize = 8;

/// What a start does with its idempotency key.
enum Key {
    /// It starts nothing: this run has the key.
    Existing(RunId),
    Claim(KeyClaim),
}

/// A definition run with everything that its record shows.
pub struct ExecutionView {
    run: Run,
    snapshot: Arc<Snapshot>,
    found: LookupResults,
}

impl ExecutionView {
    fn source(&self) -> Source<'_> {
        Source {
            run: &self.run,
            snapshot: &self.snapshot,
            found: &self.found,
        }
    }

    /// Returns the record of the run, with its tasks if they were asked for.
    pub fn workflow(&self, with_tasks: bool) -> Workflow {
        self.source().workflow(with_tasks)
    }

    /// Returns the record of one task.
    pub fn task(&self, task_id: &TaskId) -> Option<Task> {
        let source = self.source();
        let parts = self.run.parts.values();
        let task = parts
            .filter_map(|part| part.as_task())
            .find(|task| task.id == *task_id)?;
        Some(source.task(task))
    }
}

impl Executions<'_> {
    /// Starts a run, makes its first pass and lets it come to rest. Returns its id, or that of the run that has the idempotency key.
    pub async fn start(self, namespace: &Namespace, mut start: StartExecution) -> Result<RunId> {
        let snapshot = self.snapshot_of(namespace, &mut start).await?;
        let strategy = start.idempotency_strategy;
        let mut new = NewExecution {
            namespace: namespace.clone(),
            snapshot,
            input: start.input,
            correlation_id: start.correlation_id,
            priority: start.priority,
            task_to_domain: Arc::new(start.task_to_domain),
            idempotency_key: start.idempotency_key,
            key_claim: None,
            created_by: start.created_by,
            depth: 0,
            parent: None,
        };
        for _ in 0..KEY_TRIES {
            if let Some(key) = &new.idempotency_key {
                let strategy = strategy.unwrap_or(IdempotencyStrategy::Fail);
                match self.claim_of(&new, key, strategy).await? {
                    Key::Existing(run_id) => return Ok(run_id),
                    Key::Claim(claim) => new.key_claim = Some(claim),
                }
            }
            match self.host.inner.executor.create_execution(&new).await {
                Ok((run_id, remainder)) => {
                    self.settle(&run_id, remainder).await;
                    return Ok(run_id);
                }
                // Another start took the key first: the strategy decides about its run.
                Err(Error::Contended) if new.key_claim.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended)
    }

    /// Returns the snapshot of the definition that a start names or contains.
    async fn snapshot_of(
        self,
        namespace: &Namespace,
        start: &mut StartExecution,
    ) -> Result<Arc<Snapshot>> {
        let finder = &self.host.inner.executor.finder;
        let compiled = if let Some(definition) = start.definition.take() {
            let checked = std::slice::from_ref(&definition);
            self.host.definitions().check(namespace, checked).await?;
            finder.snapshot_of(namespace, &definition).await?
        } else {
            let found = finder
                .registered_snapshot(namespace, &start.name, start.version)
                .await?;
            found.ok_or_else(|| ConductorRefusal::NoSuchDefinition {
                name: start.name.clone(),
                version: start.version,
            })?
        };
        let snapshot = compiled.map_err(ConductorRefusal::DefinitionUnusable)?;
        self.host
            .definitions()
            .refuse_types(snapshot.definition())?;
        Ok(snapshot)
    }

    /// Returns what a start does with its idempotency key.
    async fn claim_of(
        self,
        new: &NewExecution,
        key: &str,
        strategy: IdempotencyStrategy,
    ) -> Result<Key> {
        let executor = &self.host.inner.executor;
        let name = &new.snapshot.definition().name;
        let owner = executor.store.run_by_key(&new.namespace, name, key).await?;
        if let Some(run_id) = &owner {
            let used = executor.read_part(run_id, |run| use_key(strategy, run));
            if let Some(KeyUse::Existing) = used.await?.transpose()? {
                return Ok(Key::Existing(run_id.clone()));
            }
        }
        Ok(Key::Claim(KeyClaim {
            key: key.to_owned(),
            earlier: owner,
        }))
    }

    /// Makes the passes that a decision left, those of new sub-workflows, and those of parents whose sub-workflow ended; all within
    /// a bounded time. The decision itself is durable, so its caller is answered as accepted whatever happens here. What remains is
    /// left to the sweeps.
    pub(crate) async fn settle(self, run_id: &RunId, remainder: Remainder) {
        if remainder.is_empty() {
            return;
        }
        if let Err(error) = self.make_passes(run_id, remainder).await {
            tracing::warn!(%run_id, %error, "a run did not come to rest before its caller was answered");
        }
    }

    async fn make_passes(self, run_id: &RunId, remainder: Remainder) -> Result<()> {
        let until = Instant::now() + PASSES_WAIT;
        let mut left = VecDeque::from([(run_id.clone(), remainder)]);
        while let Some((run_id, remainder)) = left.pop_front()
            && Instant::now() < until
        {
            let mut next = remainder.created;
            if remainder.has_work {
                next.push(run_id.clone());
            }
            if remainder.has_messages {
                next.extend(deliver_now(self.host, &run_id, until).await?);
            }
            for run_id in next {
                let executor = &self.host.inner.executor;
                let passed = executor.execute_and_list(&run_id, &ContinuePass).await;
                match passed {
                    Ok(Some((_, remainder))) if !remainder.is_empty() => {
                        left.push_back((run_id, remainder));
                    }
                    Ok(_) | Err(Error::Rejected(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Decides a command on a run and lets the run come to rest.
    pub(crate) async fn decide<C: longhaul_engine::Command>(
        self,
        run_id: &RunId,
        command: &C,
    ) -> Result<C::Reply> {
        let executor = &self.host.inner.executor;
        let decided = executor.execute_and_list(run_id, command).await?;
        let (reply, remainder) =
            decided.ok_or_else(|| ConductorRefusal::NoSuchExecution(run_id.to_string()))?;
        self.settle(run_id, remainder).await;
        Ok(reply)
    }

    async fn run(self, namespace: &Namespace, id: &str) -> Result<Run> {
        let run = self.host.inner.executor.read(&RunId::from(id)).await?;
        run.filter(|run| is_of(run, namespace))
            .ok_or_else(|| ConductorRefusal::NoSuchExecution(id.to_owned()).into())
    }

    /// Returns the id of a definition run of the namespace. The run itself is not copied.
    pub(crate) async fn find(self, namespace: &Namespace, id: &str) -> Result<RunId> {
        let run_id = RunId::from(id);
        let executor = &self.host.inner.executor;
        let is_here = executor.read_part(&run_id, |run| is_of(run, namespace));
        match is_here.await? {
            Some(true) => Ok(run_id),
            Some(false) | None => Err(ConductorRefusal::NoSuchExecution(id.to_owned()).into()),
        }
    }

    /// Returns a run.
    pub async fn get(
        self,
        namespace: &Namespace,
        id: &str,
        with_tasks: bool,
    ) -> Result<ExecutionView> {
        let run = self.run(namespace, id).await?;
        self.view(run, with_tasks).await
    }

    /// Returns a run with the values that its record shows.
    pub(crate) async fn view(self, run: Run, with_tasks: bool) -> Result<ExecutionView> {
        let finder = &self.host.inner.executor.finder;
        let hash = run
            .core
            .execution
            .as_ref()
            .map(|execution| Arc::clone(&execution.snapshot));
        // Code has started the run a moment ago, and its first pass is still to be made.
        if hash.as_ref().is_some_and(|hash| hash.is_empty()) {
            return Err(ConductorRefusal::NoSuchExecution(run.run_id().to_string()).into());
        }
        let snapshot = finder
            .snapshots
            .get(&*finder.store, &hash.ok_or(Error::Internal)?)
            .await?;
        let mut found = LookupResults::default();
        for reference in unloaded(&run, with_tasks) {
            let value = finder.value(run.run_id(), reference).await?;
            found.values.insert(reference, value);
        }
        Ok(ExecutionView {
            run,
            snapshot,
            found,
        })
    }

    /// Terminates a run.
    pub async fn terminate(
        self,
        namespace: &Namespace,
        id: &str,
        reason: Option<&str>,
        then: AfterTermination,
    ) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let command = TerminateExecution {
            reason: reason.map(str::to_owned),
            then,
        };
        self.decide(&run_id, &command).await
    }

    /// Stops the scheduling of further tasks.
    pub async fn pause(self, namespace: &Namespace, id: &str, reason: Option<&str>) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let command = PauseExecution {
            reason: reason.map(str::to_owned),
        };
        self.decide(&run_id, &command).await
    }

    /// Puts a message into the inbox of a run. Returns its id.
    pub async fn push_message(
        self,
        namespace: &Namespace,
        id: &str,
        payload: Object,
    ) -> Result<String> {
        let run_id = self.find(namespace, id).await?;
        self.decide(&run_id, &PushMessage { payload }).await
    }

    /// Lets a paused run go on.
    pub async fn resume(self, namespace: &Namespace, id: &str) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        self.decide(&run_id, &ResumeExecution).await
    }
}

fn is_of(run: &Run, namespace: &Namespace) -> bool {
    run.spec.program == Program::Definition && run.spec.namespace == *namespace
}
