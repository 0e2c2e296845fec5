//! Operations that open a run again, as callers make them.

use longhaul_engine::Rejection;
use longhaul_engine::command::{
    MergeVariables, RerunExecution, ResetCallbacks, RestartExecution, RetryExecution, SkipTask,
    UpdateExecutionState, UpdateExecutionTask,
};
use longhaul_engine::conductor::execution::command::update::{Report, TaskTarget};
use longhaul_engine::run::family::outbox::{Order, is_removable};
use longhaul_protocol::id::RunId;
use serde_json::Value;

use super::{World, members};

impl World {
    pub(crate) fn restart(&mut self, run_id: &RunId) -> Result<(), Rejection> {
        self.restart_with(run_id, None)
    }

    /// Restarts a run with the newest version of a definition.
    pub(crate) fn restart_with(
        &mut self,
        run_id: &RunId,
        name: Option<&str>,
    ) -> Result<(), Rejection> {
        let snapshot = name.map(|name| self.registered(name, None).expect("it is registered"));
        let done = self.act(run_id, &RestartExecution { snapshot });
        self.settle();
        done
    }

    pub(crate) fn retry(&mut self, run_id: &RunId) -> Result<(), Rejection> {
        let done = self.act(run_id, &RetryExecution);
        self.settle();
        done
    }

    /// Lets a run go on from the task with this number.
    pub(crate) fn rerun_from(&mut self, run_id: &RunId, seq: u64) -> Result<(), Rejection> {
        let id = self.runs[run_id].task(seq).unwrap().id.clone();
        let command = RerunExecution {
            from: Some((id, seq)),
            ..RerunExecution::default()
        };
        self.rerun(run_id, &command)
    }

    /// Lets a run go on from the newest task of a reference.
    pub(crate) fn rerun_at(&mut self, run_id: &RunId, reference: &str) {
        let seq = self.task(run_id, reference).seq;
        self.rerun_from(run_id, seq).unwrap();
    }

    pub(crate) fn rerun(
        &mut self,
        run_id: &RunId,
        command: &RerunExecution,
    ) -> Result<(), Rejection> {
        let done = self.act(run_id, command);
        self.settle();
        done
    }

    /// Returns whether a task of another run has this one as its sub-workflow.
    pub(crate) fn is_referred_to(&self, run_id: &RunId) -> bool {
        self.runs.keys().any(|other| {
            let mut tasks = self.tasks(other);
            tasks.any(|task| task.sub_workflow_id.as_ref() == Some(run_id))
        })
    }

    /// Removes a run as the host does: it is terminated if it is open, its messages are delivered, and then it is gone.
    pub(crate) fn remove(&mut self, run_id: &RunId) {
        if self.runs[run_id].core.closed.is_none() {
            assert!(!is_removable(&self.runs[run_id]), "an open run stays");
            self.terminate(run_id, "removed").unwrap();
        }
        assert!(is_removable(&self.runs[run_id]));
        self.runs.remove(run_id);
        self.events.remove(run_id);
        self.folds.remove(run_id);
        self.rows.retain(|_, row| row.run_id != *run_id);
        self.logs.retain(|(owner, _, _), _| owner != run_id);
        // Messages that come late have no receiver.
        self.letters.retain(|letter| match letter {
            Order::ReportExecution { parent_run_id, .. }
            | Order::ReopenForChild { parent_run_id, .. } => parent_run_id != run_id,
            Order::Stop { workflow_id, .. } => workflow_id.as_str() != run_id.as_str(),
            Order::Publish(_) | Order::Report { .. } | Order::RequestCancellation { .. } => true,
        });
    }

    pub(crate) fn skip(
        &mut self,
        run_id: &RunId,
        reference: &str,
        input: Value,
        output: Value,
    ) -> Result<(), Rejection> {
        let command = SkipTask {
            reference: reference.to_owned(),
            input: members(input),
            output: members(output),
        };
        let done = self.act(run_id, &command);
        self.settle();
        done
    }

    pub(crate) fn reset_callbacks(&mut self, run_id: &RunId) -> Result<(), Rejection> {
        self.act(run_id, &ResetCallbacks)
    }

    pub(crate) fn update_state(
        &mut self,
        run_id: &RunId,
        variables: Value,
        task: Option<(&str, Report)>,
    ) -> Result<(), Rejection> {
        let command = UpdateExecutionState {
            variables: MergeVariables {
                variables: members(variables),
                append_lists: false,
            },
            task: task.map(|(reference, report)| UpdateExecutionTask {
                target: TaskTarget::Reference(reference.to_owned()),
                report,
                takes_next: false,
            }),
        };
        let done = self.act(run_id, &command);
        self.settle();
        done
    }
}
