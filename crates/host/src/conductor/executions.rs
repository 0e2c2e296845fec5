//! Definition runs as callers see them: start, read, terminate, pause, resume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::command::{ContinuePass, PauseExecution, ResumeExecution, StopRun};
use longhaul_engine::conductor::definition::Snapshot;
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::command::start::NewExecution;
use longhaul_engine::conductor::execution::lookup::LookupResults;
use longhaul_engine::conductor::execution::view::{Source, unloaded};
use longhaul_engine::run::message::external::{Request, Stop};
use longhaul_engine::run::state::{Program, Run};
use longhaul_protocol::conductor::{Object, Task, Workflow, WorkflowDef};
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use tokio::time::Instant;

use super::refusal::ConductorRefusal;
use crate::error::{Error, Result};
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

    /// Returns the records of tasks by their numbers.
    pub(crate) fn tasks(&self, numbers: &[u64]) -> Vec<Task> {
        let source = self.source();
        numbers
            .iter()
            .filter_map(|number| self.run.task(*number))
            .map(|task| source.task(task))
            .collect()
    }
}

impl Executions<'_> {
    /// Starts a run and makes its first pass. Returns its id.
    pub async fn start(self, namespace: &Namespace, start: StartExecution) -> Result<RunId> {
        let finder = &self.host.inner.executor.finder;
        let definition = match start.definition {
            Some(definition) => {
                self.host
                    .definitions()
                    .check(namespace, std::slice::from_ref(&definition))
                    .await?;
                Arc::new(definition)
            }
            None => finder
                .definitions
                .workflow_def(&*finder.store, namespace, &start.name, start.version)
                .await?
                .ok_or_else(|| ConductorRefusal::NoSuchDefinition {
                    name: start.name.clone(),
                    version: start.version,
                })?,
        };
        let snapshot = finder
            .snapshot_of(namespace, &definition)
            .await?
            .map_err(ConductorRefusal::DefinitionUnusable)?;
        let new = NewExecution {
            namespace: namespace.clone(),
            snapshot,
            input: start.input,
            correlation_id: start.correlation_id,
            priority: start.priority,
            task_to_domain: Arc::new(start.task_to_domain),
            idempotency_key: None,
            created_by: start.created_by,
            depth: 0,
            parent: None,
        };
        let run_id = self.host.inner.executor.create_execution(&new).await?;
        self.settle(&run_id).await?;
        Ok(run_id)
    }

    /// Makes the passes that are left, within a bounded time.
    pub(crate) async fn settle(self, run_id: &RunId) -> Result<()> {
        let until = Instant::now() + PASSES_WAIT;
        while Instant::now() < until {
            match self
                .host
                .inner
                .executor
                .execute(run_id, &ContinuePass)
                .await?
            {
                Some(true) => {}
                Some(false) | None => break,
            }
        }
        Ok(())
    }

    async fn run(self, namespace: &Namespace, id: &str) -> Result<Run> {
        let run = self.host.inner.executor.read(&RunId::from(id)).await?;
        run.filter(|run| {
            run.spec.program == Program::Definition && run.spec.namespace == *namespace
        })
        .ok_or_else(|| ConductorRefusal::NoSuchExecution(id.to_owned()).into())
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
    ) -> Result<()> {
        let run = self.run(namespace, id).await?;
        let command = StopRun {
            request: Request::default(),
            how: Stop::Terminate,
            reason: reason.map(str::to_owned),
        };
        self.decide(run.run_id(), &command).await.map(drop)
    }

    /// Stops the scheduling of further tasks.
    pub async fn pause(self, namespace: &Namespace, id: &str, reason: Option<&str>) -> Result<()> {
        let run = self.run(namespace, id).await?;
        let command = PauseExecution {
            reason: reason.map(str::to_owned),
        };
        self.decide(run.run_id(), &command).await
    }

    /// Lets a paused run go on.
    pub async fn resume(self, namespace: &Namespace, id: &str) -> Result<()> {
        let run = self.run(namespace, id).await?;
        self.decide(run.run_id(), &ResumeExecution).await?;
        self.settle(run.run_id()).await
    }

    async fn decide<C: longhaul_engine::Command>(
        self,
        run_id: &RunId,
        command: &C,
    ) -> Result<C::Reply> {
        let reply = self.host.inner.executor.execute(run_id, command).await?;
        reply.ok_or_else(|| ConductorRefusal::NoSuchExecution(run_id.to_string()).into())
    }

    /// Returns whether a run has something left to decide.
    pub async fn is_resting(self, namespace: &Namespace, id: &str) -> Result<bool> {
        Ok(!has_work(&self.run(namespace, id).await?))
    }
}
