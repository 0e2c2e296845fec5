//! A definition run in a list of search results.

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{WorkflowStatus, WorkflowSummary, summary_time};
use longhaul_protocol::id::{RunId, WorkflowId};

use super::state::{Execution, Stored};
use super::view::{millis, status_when};
use crate::run::state::{Closed, Part, PartKey, Run};

/// What a list shows of a definition run: the run without its tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionSummary {
    pub run_id: RunId,
    pub workflow_type: String,
    pub started_at: Timestamp,
    pub parent_id: Option<WorkflowId>,
    pub closed: Option<Closed>,
    pub execution: Box<Execution>,
    pub input: Stored,
    pub output: Stored,
}

impl ExecutionSummary {
    /// Returns the summary of a run; `None` if it is not a definition run.
    pub fn of(run: &Run) -> Option<Self> {
        let value = |key: PartKey| match run.parts.get(&key) {
            Some(Part::Value(stored)) => stored.clone(),
            _ => Stored::default(),
        };
        let spec = &*run.spec;
        Some(Self {
            run_id: spec.run_id.clone(),
            workflow_type: spec.workflow_type.clone(),
            started_at: (run.core.execution.as_ref())
                .and_then(|execution| execution.restarted_at)
                .unwrap_or(spec.started_at),
            parent_id: spec
                .parent
                .as_deref()
                .map(|parent| parent.workflow_id.clone()),
            closed: run.core.closed.clone(),
            execution: run.core.execution.clone()?,
            input: value(PartKey::Input),
            output: value(PartKey::Output),
        })
    }

    /// Returns the status.
    pub fn status(&self) -> WorkflowStatus {
        status_when(self.closed.as_ref(), self.execution.paused)
    }

    /// Renders the summary. `text` returns a value as JSON; it is called for the input and then for the output.
    pub fn render(&self, mut text: impl FnMut(&Stored) -> String) -> WorkflowSummary {
        let execution = &*self.execution;
        let started = millis(Some(self.started_at));
        let ended = self.closed.as_ref().map(|closed| millis(Some(closed.at)));
        let size = |stored: &Stored| i64::try_from(stored.bytes()).unwrap_or(i64::MAX);
        WorkflowSummary {
            workflow_type: self.workflow_type.clone(),
            version: execution.version,
            workflow_id: self.run_id.to_string(),
            correlation_id: execution.correlation_id.clone(),
            idempotency_key: execution.idempotency_key.clone(),
            start_time: Some(summary_time(started)),
            update_time: Some(summary_time(millis(Some(execution.updated_at)))),
            end_time: ended.map(summary_time),
            status: self.status(),
            input: text(&self.input),
            output: text(&self.output),
            reason_for_incompletion: execution.reason.clone(),
            execution_time: ended.map_or(0, |ended| (ended - started).max(0)),
            failed_reference_task_names: execution.failed_references.clone(),
            priority: i32::from(execution.priority),
            failed_task_names: execution.failed_names.clone(),
            created_by: execution.created_by.clone(),
            task_to_domain: (*execution.task_to_domain).clone(),
            parent_workflow_id: self
                .parent_id
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            classifier: execution.classifier().to_owned(),
            input_size: size(&self.input),
            output_size: size(&self.output),
            ..WorkflowSummary::default()
        }
    }
}
