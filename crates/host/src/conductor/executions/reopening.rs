//! Opening definition runs again, and what operators change in open ones. A run opens its ancestors by messages, which are delivered
//! before the caller is answered.

use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::change::TaskKind;
use longhaul_engine::command::{
    AdvanceTime, ContinuePass, RerunExecution, ResetCallbacks, RestartExecution, RetryExecution,
    SkipTask, UpdateExecutionTask, UpdateState,
};
use longhaul_engine::conductor::execution::command::update::{Report, TaskTarget};
use longhaul_engine::conductor::execution::state::{ExecutionTask, Waiting};
use longhaul_engine::conductor::limits::SUB_WORKFLOW_DEPTH_MAX;
use longhaul_engine::run::state::{ClosedReason, Part, Run};
use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::{Namespace, RunId, TaskId};

use super::is_of;
use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::sweeps::outbox::deliver_now;
use crate::views::Executions;

/// The definition that a restart begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionUsed {
    /// The one that the run keeps.
    Own,
    /// The newest registered version.
    Latest,
}

/// Where a retry makes another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetriedRun {
    /// In the run itself: a failed sub-workflow is started again.
    Itself,
    /// In the deepest sub-workflow that failed, which goes on.
    DeepestFailed,
}

/// A request that a run goes on from one of its tasks, from a task of one of its sub-workflows, or from its beginning.
#[derive(Clone, Debug, Default)]
pub struct Rerun {
    /// `None` is the beginning.
    pub task_id: Option<String>,
    pub task_input: Option<Object>,
    pub workflow_input: Option<Object>,
    pub correlation_id: Option<String>,
}

impl Executions<'_> {
    /// Begins a run that has ended from its start.
    pub async fn restart(
        self,
        namespace: &Namespace,
        id: &str,
        with: DefinitionUsed,
    ) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let snapshot = match with {
            DefinitionUsed::Own => None,
            DefinitionUsed::Latest => {
                let executor = &self.host.inner.executor;
                let name = executor.read_part(&run_id, |run| run.spec.workflow_type.clone());
                let name = name.await?.unwrap_or_default();
                let finder = &executor.finder;
                let found = finder.registered_snapshot(namespace, &name, None).await?;
                let found = found.ok_or(ConductorRefusal::NoSuchDefinition {
                    name,
                    version: None,
                })?;
                Some(found.map_err(ConductorRefusal::DefinitionUnusable)?)
            }
        };
        self.decide(&run_id, &RestartExecution { snapshot }).await
    }

    /// Lets a run that has ended go on with another attempt of what failed.
    pub async fn retry(self, namespace: &Namespace, id: &str, which: RetriedRun) -> Result<()> {
        let mut run_id = self.find(namespace, id).await?;
        if which == RetriedRun::DeepestFailed {
            // A sub-workflow of a run that ended a moment ago is still to be stopped.
            deliver_now(self.host, &run_id).await?;
            for _ in 0..SUB_WORKFLOW_DEPTH_MAX {
                match self.failed_child(&run_id).await? {
                    Some(child) => run_id = child,
                    None => break,
                }
            }
        }
        self.decide(&run_id, &RetryExecution).await
    }

    /// Returns a sub-workflow that failed and whose task the run would repeat.
    async fn failed_child(self, run_id: &RunId) -> Result<Option<RunId>> {
        let executor = &self.host.inner.executor;
        let children = executor.read_part(run_id, failed_children);
        for child in children.await?.unwrap_or_default() {
            let has_failed = executor.read_part(&child, |run| {
                let closed = run.core.closed.as_ref();
                closed.is_some_and(|closed| closed.reason != ClosedReason::Completed)
            });
            if has_failed.await? == Some(true) {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// Lets a run that has ended go on from a task, or from its beginning.
    pub async fn rerun(self, namespace: &Namespace, id: &str, rerun: Rerun) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let Some(task_id) = rerun.task_id else {
            let command = RerunExecution {
                from: None,
                task_input: None,
                workflow_input: rerun.workflow_input,
                correlation_id: rerun.correlation_id,
            };
            return self.decide(&run_id, &command).await;
        };
        let executor = &self.host.inner.executor;
        let is_open = executor.read_part(&run_id, |run| run.core.closed.is_none());
        if is_open.await? == Some(true) {
            return Err(Rejection::RunNotEnded.into());
        }
        let unknown = || ConductorRefusal::NoTaskToRerun {
            task_id: task_id.clone(),
            workflow_id: id.to_owned(),
        };
        let tasks = self.host.tasks();
        let key = TaskId::from(task_id.as_str());
        let row = match tasks.row(namespace, &key, TaskKind::Execution).await {
            Err(Error::Rejected(Rejection::TaskNotFound)) => return Err(unknown().into()),
            row => row?,
        };
        if !self.is_below(namespace, &row.run_id, &run_id).await? {
            return Err(unknown().into());
        }
        let is_own = row.run_id == run_id;
        let command = RerunExecution {
            from: Some((key, row.sequence.get())),
            task_input: rerun.task_input,
            // They are meant for the run that the caller named.
            workflow_input: rerun.workflow_input.filter(|_| is_own),
            correlation_id: rerun.correlation_id.filter(|_| is_own),
        };
        match self.decide(&row.run_id, &command).await {
            Err(Error::Rejected(Rejection::TaskNotFound)) => Err(unknown().into()),
            done => done,
        }
    }

    /// Returns whether a run is another one, or was started by it or by one of its sub-workflows.
    async fn is_below(self, namespace: &Namespace, run_id: &RunId, root: &RunId) -> Result<bool> {
        let mut current = run_id.clone();
        for _ in 0..=SUB_WORKFLOW_DEPTH_MAX {
            if current == *root {
                return Ok(true);
            }
            let executor = &self.host.inner.executor;
            let parent = executor.read_part(&current, |run| {
                let parent = run.spec.parent.as_deref();
                let run_id = parent.map(|parent| parent.run_id.clone());
                run_id.filter(|_| is_of(run, namespace))
            });
            match parent.await?.flatten() {
                Some(parent) => current = parent,
                None => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Passes over a task that the flow has not reached.
    pub async fn skip_task(
        self,
        namespace: &Namespace,
        id: &str,
        reference: &str,
        (input, output): (Object, Object),
    ) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let command = SkipTask {
            reference: reference.to_owned(),
            input,
            output,
        };
        self.decide(&run_id, &command).await
    }

    /// Shows every task that waits for its next callback to workers now.
    pub async fn reset_callbacks(self, namespace: &Namespace, id: &str) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        self.decide(&run_id, &ResetCallbacks).await
    }

    /// Applies what is due in a run and goes on with it.
    pub async fn decide_now(self, namespace: &Namespace, id: &str) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        self.decide(&run_id, &AdvanceTime).await?;
        self.decide(&run_id, &ContinuePass).await.map(drop)
    }

    /// Adds variables to a run and reports on one of its open tasks; both or neither.
    pub async fn update_state(
        self,
        namespace: &Namespace,
        id: &str,
        variables: Object,
        task: Option<(String, Report)>,
    ) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let reference = task.as_ref().map(|(reference, _)| reference.clone());
        let updated = self.decide(&run_id, &UpdateState { variables, task }).await;
        match (updated, reference) {
            (Err(Error::Rejected(Rejection::TaskNotFound)), Some(reference)) => {
                Err(ConductorRefusal::NoOpenTask {
                    workflow_id: id.to_owned(),
                    reference,
                }
                .into())
            }
            (updated, _) => updated,
        }
    }
}

/// Runs that a signal looks into.
const SIGNAL_RUNS_MAX: usize = 1000;

/// How often a signal looks again for a task, if another report came first.
const SIGNAL_TRIES: usize = 5;

impl Executions<'_> {
    /// Reports on the first task of a run that waits for a caller; else on one in its open sub-workflows, depth first. Returns
    /// whether there was one.
    pub async fn signal(self, namespace: &Namespace, id: &str, report: Report) -> Result<bool> {
        let root = self.find(namespace, id).await?;
        for _ in 0..SIGNAL_TRIES {
            let Some((run_id, task_id, seq)) = self.blocked_task(&root).await? else {
                return Ok(false);
            };
            let command = UpdateExecutionTask {
                target: TaskTarget::Id { task_id, seq },
                report: report.clone(),
                takes_next: false,
            };
            match self.decide(&run_id, &command).await {
                Ok(_) => return Ok(true),
                // It was removed with its run, or by a rerun.
                Err(Error::Rejected(Rejection::TaskNotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended)
    }

    async fn blocked_task(self, root: &RunId) -> Result<Option<(RunId, TaskId, u64)>> {
        let executor = &self.host.inner.executor;
        let mut waiting = vec![root.clone()];
        for _ in 0..SIGNAL_RUNS_MAX {
            let Some(run_id) = waiting.pop() else {
                return Ok(None);
            };
            let found = executor.read_part(&run_id, |run| {
                let open = run.parts.values().filter_map(Part::as_task);
                let open: Vec<_> = open.filter(|task| task.is_open()).collect();
                let blocked = open
                    .iter()
                    .find(|task| matches!(task.task_type.as_str(), "WAIT" | "YIELD"));
                let blocked = blocked.map(|task| (task.id.clone(), task.seq));
                let children = open.iter().rev().filter_map(|task| match &task.waiting {
                    Waiting::Child(child) => Some(child.clone()),
                    _ => None,
                });
                (blocked, children.collect::<Vec<_>>())
            });
            let (blocked, children) = found.await?.unwrap_or_default();
            if let Some((task_id, seq)) = blocked {
                return Ok(Some((run_id, task_id, seq)));
            }
            waiting.extend(children);
        }
        Ok(None)
    }
}

/// Returns the sub-workflows of failed and cancelled tasks that have no newer attempt, failed ones first.
fn failed_children(run: &Run) -> Vec<RunId> {
    if run.core.closed.is_none() {
        return Vec::new();
    }
    let tasks = run.parts.values().filter_map(Part::as_task);
    let mut failed: Vec<&Arc<ExecutionTask>> = tasks
        .filter(|task| {
            let newest = run.index.exact(&task.reference);
            newest == Some(task.seq) && !task.retried && !task.status.is_successful()
        })
        .collect();
    failed.sort_by_key(|task| (task.status == TaskStatus::Canceled, task.seq));
    let children = failed
        .into_iter()
        .filter_map(|task| task.sub_workflow_id.clone());
    children.collect()
}
