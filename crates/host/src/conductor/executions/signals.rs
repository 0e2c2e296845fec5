//! Signals to definition runs, and changes of their variables and tasks from outside.

use longhaul_engine::Rejection;
use longhaul_engine::command::{MergeVariables, UpdateExecutionState, UpdateExecutionTask};
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_engine::conductor::execution::state::Waiting;
use longhaul_engine::run::state::Part;
use longhaul_protocol::conductor::{Object, ResultStatus};
use longhaul_protocol::id::{Namespace, RunId};

use super::ExecutionView;
use super::wait::TREE_MAX;
use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::views::Executions;

/// What a signal does to the task that it finds.
#[derive(Clone, Debug)]
pub struct Signal {
    pub status: ResultStatus,
    /// Members that are added to the output of the task.
    pub output: Object,
}

/// A change of the variables of a run and, with it, of one open task.
#[derive(Clone, Debug, Default)]
pub struct StateUpdate {
    pub variables: Object,
    /// The reference of the task, and what is reported.
    pub task: Option<(String, Report)>,
}

impl Executions<'_> {
    /// Applies a signal to the first task that waits for one: in the run itself, else in its open sub-workflows, depth first. Returns
    /// whether there was such a task.
    pub async fn signal(self, namespace: &Namespace, id: &str, signal: &Signal) -> Result<bool> {
        let command = UpdateExecutionTask {
            target: TaskTarget::Signalled,
            report: Report::Status {
                status: signal.status,
                output: Output::Merge(signal.output.clone()),
                reason: None,
                worker_id: None,
                callback_after_seconds: 0,
                logs: Vec::new(),
            },
            takes_next: false,
        };
        let root = self.find(namespace, id).await?;
        let mut left = vec![root.clone()];
        for _ in 0..TREE_MAX {
            let Some(run_id) = left.pop() else { break };
            match self.decide(&run_id, &command).await {
                Ok(_) => return Ok(true),
                Err(Error::Rejected(Rejection::TaskNotFound)) => {
                    let mut children = self.open_children(&run_id).await?;
                    children.reverse();
                    left.extend(children);
                }
                // A sub-workflow was removed in the meantime.
                Err(Error::Conductor(ConductorRefusal::NoSuchExecution(_))) if run_id != root => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Returns the runs of the open sub-workflows of a run, in the order of their tasks. Runs of code take other signals.
    async fn open_children(self, run_id: &RunId) -> Result<Vec<RunId>> {
        let run = self.host.inner.executor.read(run_id).await?;
        let parts = run.iter().flat_map(|run| run.parts.values());
        let children = parts
            .filter_map(Part::as_task)
            .filter_map(|task| match &task.waiting {
                Waiting::Child(child) if task.child_workflow_id.is_none() => Some(child.clone()),
                _ => None,
            });
        Ok(children.collect())
    }

    /// Adds variables to those of a run, and returns the run.
    pub async fn merge_variables(
        self,
        namespace: &Namespace,
        id: &str,
        variables: Object,
    ) -> Result<ExecutionView> {
        let run_id = self.find(namespace, id).await?;
        let command = MergeVariables {
            variables,
            append_lists: false,
        };
        self.decide(&run_id, &command).await?;
        self.get(namespace, id, true).await
    }

    /// Adds variables and reports on an open task: both apply or neither.
    pub async fn update_state(
        self,
        namespace: &Namespace,
        id: &str,
        update: StateUpdate,
    ) -> Result<()> {
        let run_id = self.find(namespace, id).await?;
        let reference = update.task.as_ref().map(|(reference, _)| reference.clone());
        let task = update.task.map(|(reference, report)| UpdateExecutionTask {
            target: TaskTarget::Reference(reference),
            report,
            takes_next: false,
        });
        let command = UpdateExecutionState {
            variables: MergeVariables {
                variables: update.variables,
                append_lists: false,
            },
            task,
        };
        let updated = self.decide(&run_id, &command).await;
        updated.map_err(|error| match (error, reference) {
            (Error::Rejected(Rejection::TaskNotFound), Some(reference)) => {
                ConductorRefusal::NoOpenTask {
                    workflow_id: id.to_owned(),
                    reference,
                }
                .into()
            }
            (error, _) => error,
        })
    }
}
