//! Waiting for a definition run: until it ends, until a task of its tree waits for a caller, until a named task has ended, or for a
//! time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::future::select_all;
use longhaul_engine::conductor::execution::state::{ExecutionTask, Waiting};
use longhaul_engine::run::state::{Part, Program, Run};
use longhaul_protocol::conductor::Task;
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use tokio::time::Instant;

use super::ExecutionView;
use crate::commit::wakes::Watch;
use crate::conductor::refusal::ConductorRefusal;
use crate::error::Result;
use crate::views::Executions;

/// Runs of one tree that a wait looks at. A tree may be larger; then only the first are searched.
pub(super) const TREE_MAX: usize = 1000;

/// What ends a wait, besides the end of the run and a task that waits for a caller.
#[derive(Clone, Debug)]
pub struct WaitUntil {
    /// References of tasks, one of which must have ended.
    pub references: Vec<String>,
    pub timeout: Duration,
}

/// A run after a wait.
pub struct Waited {
    pub target: ExecutionView,
    /// The run and the record of the task that waits for a caller.
    pub blocking: Option<(ExecutionView, Task)>,
    pub has_timed_out: bool,
}

/// Which runs below the root a wait looks at.
#[derive(Clone, Copy)]
enum Below {
    Open,
    All,
}

/// Why a wait ends.
enum Reached {
    Ended,
    Blocked(RunId, TaskId),
    Task,
}

impl Executions<'_> {
    /// Waits for a run.
    pub async fn wait(self, namespace: &Namespace, id: &str, until: &WaitUntil) -> Result<Waited> {
        let deadline = Instant::now() + until.timeout;
        let root = RunId::from(id);
        // A named task may have ended together with its run.
        let which = if until.references.is_empty() {
            Below::Open
        } else {
            Below::All
        };
        let mut watches: BTreeMap<RunId, Watch> = BTreeMap::new();
        loop {
            // Watch first, look second: a change in between is not missed.
            let mut tree = self.tree(namespace, &root, which).await?;
            let unwatched: Vec<RunId> = tree
                .iter()
                .map(|run| run.run_id().clone())
                .filter(|run_id| !watches.contains_key(run_id))
                .collect();
            for run_id in unwatched {
                let watch = self.host.inner.wakes.watch(&run_id);
                watches.insert(run_id, watch);
            }
            let mut changes: Vec<_> = watches
                .values()
                .map(|watch| Box::pin(watch.changed.notified()))
                .collect();
            for change in &mut changes {
                change.as_mut().enable();
            }
            tree = self.tree(namespace, &root, which).await?;
            if let Some(reached) = reached(&tree, until) {
                return self.waited(namespace, id, Some(reached)).await;
            }
            if tree.iter().any(|run| !watches.contains_key(run.run_id())) {
                continue;
            }
            tokio::select! {
                _ = select_all(changes) => {}
                () = tokio::time::sleep_until(deadline) => return self.waited(namespace, id, None).await,
                () = self.host.inner.stopping.cancelled() => return self.waited(namespace, id, None).await,
            }
        }
    }

    async fn waited(
        self,
        namespace: &Namespace,
        id: &str,
        reached: Option<Reached>,
    ) -> Result<Waited> {
        let target = self.get(namespace, id, true).await?;
        let blocking = match &reached {
            Some(Reached::Blocked(run_id, task_id)) => {
                let view = self.get(namespace, run_id.as_str(), true).await?;
                let task = view.task(task_id);
                task.map(|task| (view, task))
            }
            Some(Reached::Ended | Reached::Task) | None => None,
        };
        Ok(Waited {
            target,
            blocking,
            has_timed_out: reached.is_none(),
        })
    }

    /// Returns a run and the runs below it, parents first.
    async fn tree(self, namespace: &Namespace, root: &RunId, which: Below) -> Result<Vec<Run>> {
        let mut tree = Vec::new();
        let mut waiting = VecDeque::from([root.clone()]);
        while let Some(run_id) = waiting.pop_front()
            && tree.len() < TREE_MAX
        {
            let Some(run) = self.host.inner.executor.read(&run_id).await? else {
                continue;
            };
            if run.spec.program != Program::Definition || run.spec.namespace != *namespace {
                continue;
            }
            let tasks = run.parts.values().filter_map(Part::as_task);
            let children = tasks.filter_map(|task| match (&task.waiting, which) {
                (Waiting::Child(child), _) => Some(child),
                (_, Below::All) => task.sub_workflow_id.as_ref(),
                (_, Below::Open) => None,
            });
            waiting.extend(children.cloned());
            tree.push(run);
        }
        if tree.is_empty() {
            return Err(ConductorRefusal::NoSuchExecution(root.to_string()).into());
        }
        Ok(tree)
    }
}

fn open_tasks(run: &Run) -> impl Iterator<Item = &ExecutionTask> {
    run.parts
        .values()
        .filter_map(Part::as_task)
        .map(|task| &**task)
        .filter(|task| task.is_open())
}

fn reached(tree: &[Run], until: &WaitUntil) -> Option<Reached> {
    if tree.first().is_some_and(|root| root.core.closed.is_some()) {
        return Some(Reached::Ended);
    }
    for run in tree {
        let mut tasks = run.parts.values().filter_map(Part::as_task);
        if tasks.any(|task| {
            // A task of a loop is also named without its iteration.
            let names = [task.reference.as_str(), task.node_reference()];
            let is_named = until
                .references
                .iter()
                .any(|name| names.contains(&name.as_str()));
            !task.is_open() && !task.retried && is_named
        }) {
            return Some(Reached::Task);
        }
        let blocking = open_tasks(run).find(|task| {
            matches!(task.task_type.as_str(), "WAIT" | "YIELD") && task.waiting == Waiting::Nothing
        });
        if let Some(task) = blocking {
            return Some(Reached::Blocked(run.run_id().clone(), task.id.clone()));
        }
    }
    None
}
