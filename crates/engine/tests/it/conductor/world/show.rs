//! What tests read of the world: traces, and records as clients see them.

use std::sync::Arc;

use longhaul_engine::conductor::execution::lookup::LookupResults;
use longhaul_engine::conductor::execution::state::ExecutionTask;
use longhaul_engine::conductor::execution::view::{Source, status_of, unloaded};
use longhaul_protocol::conductor::TaskStatus;
use longhaul_protocol::id::RunId;
use serde_json::Value;

use super::World;

impl World {
    /// Returns the newest task of a reference.
    pub(crate) fn task(&self, run_id: &RunId, reference: &str) -> &Arc<ExecutionTask> {
        self.tasks(run_id)
            .filter(|task| task.reference == reference)
            .last()
            .unwrap_or_else(|| panic!("no task {reference} in {}", self.trace(run_id)))
    }

    /// Returns the tasks of a run in the order of creation.
    pub(crate) fn tasks(&self, run_id: &RunId) -> impl Iterator<Item = &Arc<ExecutionTask>> {
        let run = &self.runs[run_id];
        let last = run.core.execution.as_ref().unwrap().last_seq;
        (1..=last).filter_map(|seq| run.task(seq))
    }

    /// Returns the tasks of a run with a letter for their status: S scheduled, P in progress, C completed, E completed with errors,
    /// F failed, Z failed with a terminal error, T timed out, X cancelled; a small r if another attempt replaced it.
    pub(crate) fn trace(&self, run_id: &RunId) -> String {
        let tasks = self.tasks(run_id).map(|task| {
            let letter = match task.status {
                TaskStatus::Scheduled => "S",
                TaskStatus::InProgress => "P",
                TaskStatus::Completed => "C",
                TaskStatus::CompletedWithErrors => "E",
                TaskStatus::Failed => "F",
                TaskStatus::FailedWithTerminalError => "Z",
                TaskStatus::TimedOut => "T",
                TaskStatus::Canceled => "X",
                TaskStatus::Skipped => "K",
            };
            let retried = if task.retried { "r" } else { "" };
            format!("{} {letter}{retried}", task.reference)
        });
        tasks.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn status(&self, run_id: &RunId) -> &'static str {
        status_of(&self.runs[run_id].core).as_str()
    }

    pub(crate) fn reason(&self, run_id: &RunId) -> &str {
        let execution = self.runs[run_id].core.execution.as_ref().unwrap();
        execution.reason.as_deref().unwrap_or_default()
    }

    /// Returns the record of a run as clients see it.
    pub(crate) fn view(&self, run_id: &RunId) -> Value {
        let run = &self.runs[run_id];
        let hash = &run.core.execution.as_ref().unwrap().snapshot;
        let mut found = LookupResults::default();
        for reference in unloaded(run, true) {
            let value = self.stored(run_id, reference);
            found.values.insert(reference, Arc::new(value));
        }
        let source = Source {
            run,
            snapshot: &self.snapshots[hash],
            found: &found,
        };
        serde_json::to_value(source.workflow(true)).unwrap()
    }

    pub(crate) fn output(&self, run_id: &RunId) -> Value {
        self.view(run_id)["output"].clone()
    }

    /// Returns the record of the newest task of a reference as clients see it.
    pub(crate) fn record(&self, run_id: &RunId, reference: &str) -> Value {
        let view = self.view(run_id);
        let tasks = view["tasks"].as_array().unwrap();
        let named = |task: &&Value| task["referenceTaskName"] == reference;
        tasks.iter().rfind(named).unwrap().clone()
    }

    /// Returns the runs that a run of this name became, oldest first.
    pub(crate) fn runs_of(&self, name: &str) -> Vec<RunId> {
        let runs = self.runs.values();
        let named = runs.filter(|run| run.spec.workflow_type == name);
        named.map(|run| run.run_id().clone()).collect()
    }
}
