//! What expressions see of a definition run.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::Object;
use longhaul_protocol::id::TaskId;
use serde_json::Value;

use crate::conductor::definition::Snapshot;
use crate::conductor::execution::lookup::{Lookup, LookupResults};
use crate::conductor::execution::operator::loop_output::{
    NoOutput, body_tasks, is_counter, loop_output,
};
use crate::conductor::execution::pass::Pass;
use crate::conductor::execution::state::{ExecutionTask, Stored, Waiting};
use crate::conductor::expression::{Found, Roots, ValueRef};
use crate::run::draft::Draft;
use crate::run::state::PartKey;

/// The values of a run while one of its tasks is scheduled, or its output is computed.
pub(crate) struct RunRoots<'a, 'd> {
    draft: &'a Draft<'d>,
    snapshot: &'a Snapshot,
    found: &'a LookupResults,
    /// The task that is being scheduled.
    scheduling: Option<&'a TaskId>,
    /// Values besides the first that an expression needs.
    missing: RefCell<Vec<ValueRef>>,
}

impl<'a, 'd> RunRoots<'a, 'd> {
    /// Returns the values that a pass sees. `scheduling` is the task that is being scheduled, if any.
    pub(crate) fn of(pass: &'a Pass<'_, 'd>, scheduling: Option<&'a TaskId>) -> Self {
        Self {
            draft: &pass.draft,
            snapshot: &pass.snapshot,
            found: pass.found,
            scheduling,
            missing: RefCell::default(),
        }
    }

    /// Returns what must be looked up, once an expression found some of it missing.
    pub(crate) fn lookups(self, unloaded: Vec<ValueRef>) -> Vec<Lookup> {
        let missing = self.missing.into_inner();
        let all: BTreeSet<ValueRef> = missing.into_iter().chain(unloaded).collect();
        all.into_iter().map(Lookup::Value).collect()
    }

    fn stored<'s>(&'s self, stored: &'s Stored) -> Found<'s> {
        match self.draft.value(stored, self.found) {
            Ok(value) => Found::Value(Cow::Borrowed(value)),
            Err(reference) => Found::Unloaded(reference),
        }
    }

    fn run_value(&self, key: PartKey) -> Found<'_> {
        match self.draft.run_value(key) {
            Some(stored) => self.stored(stored),
            None => Found::value(Value::Object(Object::new())),
        }
    }

    /// Returns the output of a loop that has not ended. An output over the limit cannot be read.
    fn loop_output(&self, task: &ExecutionTask) -> Found<'_> {
        let load = |stored: &Stored| match self.draft.value(stored, self.found) {
            Ok(value) => Ok(Arc::clone(value)),
            Err(reference) => Err(reference),
        };
        match loop_output(task, body_tasks(self.draft, task.seq), load) {
            Ok(output) => Found::Value(Cow::Owned(Value::Object(output))),
            Err(NoOutput::Unloaded(missing)) => {
                let first = missing.first().copied();
                self.missing.borrow_mut().extend(missing);
                first.map_or(Found::Missing, Found::Unloaded)
            }
            Err(NoOutput::TooLarge(_)) => Found::Missing,
        }
    }
}

impl RunRoots<'_, '_> {
    /// Returns the outputs of the tasks of an open JOIN that have ended.
    fn join_output(&self, join: &ExecutionTask) -> Found<'_> {
        let input = match self.draft.value(&join.input, self.found) {
            Ok(input) => Arc::clone(input),
            Err(reference) => return Found::Unloaded(reference),
        };
        let names = input.get("joinOn").and_then(Value::as_array);
        let mut output = Object::new();
        let mut missing = Vec::new();
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            let reference = join.reference_beside(name);
            let task = self.draft.task_by_reference(&reference);
            let Some(task) = task.filter(|task| !task.is_open()) else {
                continue;
            };
            match self.draft.value(&task.output, self.found) {
                Ok(value) if value.as_object().is_some_and(|map| !map.is_empty()) => {
                    output.insert(reference, Value::clone(value));
                }
                Ok(_) => {}
                Err(reference) => missing.push(reference),
            }
        }
        match missing.first().copied() {
            None => Found::Value(Cow::Owned(Value::Object(output))),
            Some(first) => {
                self.missing.borrow_mut().extend(missing);
                Found::Unloaded(first)
            }
        }
    }
}

/// Returns a text, or nothing.
fn text(value: Option<&str>) -> Found<'static> {
    value.map_or(Found::Missing, Found::value)
}

fn millis(time: Option<Timestamp>) -> Found<'static> {
    Found::value(time.map_or(0, Timestamp::as_millis))
}

impl Roots for RunRoots<'_, '_> {
    fn workflow_member(&self, name: &str) -> Found<'_> {
        let (spec, execution) = (&self.draft.spec, self.draft.execution());
        let parent = spec.parent.as_deref();
        match name {
            "input" => self.run_value(PartKey::Input),
            "output" => self.run_value(PartKey::Output),
            "variables" => self.run_value(PartKey::Variables),
            "status" => Found::value(super::view::status_of(&self.draft.core).as_str()),
            "workflowId" => text(Some(spec.workflow_id.as_str())),
            "workflowType" => text(Some(&spec.workflow_type)),
            "version" => Found::value(execution.version),
            "correlationId" => text(execution.correlation_id.as_deref()),
            "parentWorkflowId" => text(parent.map(|parent| parent.workflow_id.as_str())),
            "parentWorkflowTaskId" => text(parent.map(|parent| parent.call_id.as_str())),
            "reasonForIncompletion" => text(execution.reason.as_deref()),
            "schemaVersion" => Found::value(self.snapshot.definition().schema_version),
            _ => Found::Missing,
        }
    }

    fn task_member(&self, reference: &str, name: &str) -> Found<'_> {
        let Some(task) = self.draft.newest_task(reference) else {
            return Found::Missing;
        };
        let task: &Arc<ExecutionTask> = task;
        match name {
            "input" => self.stored(&task.input),
            "output" if task.is_open_loop() => self.loop_output(task),
            "output" if matches!(task.waiting, Waiting::Tasks(_)) => self.join_output(task),
            "output" => self.stored(&task.output),
            "status" => Found::value(task.status.as_str()),
            "taskId" => text(Some(task.id.as_str())),
            "taskType" => text(Some(&task.task_type)),
            "taskDefName" => text(Some(&task.def_name)),
            "referenceTaskName" => text(Some(&task.reference)),
            "workflowInstanceId" => text(Some(self.draft.spec.workflow_id.as_str())),
            "retryCount" => Found::value(task.retry_count),
            "pollCount" => Found::value(task.poll_count),
            "correlationId" => text(self.draft.execution().correlation_id.as_deref()),
            "scheduledTime" => millis(Some(task.scheduled_at)),
            "startTime" => millis(task.started_at),
            "endTime" => millis(task.ended_at),
            "callbackAfterSeconds" => Found::value(task.callback_after_seconds),
            "workerId" => text(task.worker_id.as_deref()),
            "reasonForIncompletion" => text(task.reason.as_deref()),
            "iteration" => Found::value(task.iteration),
            _ => Found::Missing,
        }
    }

    /// The counter and the item of a loop are read by most tasks of its body, and are in its record.
    fn output_with(&self, reference: &str, member: &str) -> Option<Found<'_>> {
        if !is_counter(member) {
            return None;
        }
        let task = self.draft.newest_task(reference)?;
        task.is_open_loop().then(|| self.stored(&task.output))
    }

    fn has_task(&self, reference: &str) -> bool {
        self.draft.newest_task(reference).is_some()
    }

    fn named(&self, name: &str) -> Found<'_> {
        match (name, self.scheduling) {
            ("CPEWF_TASK_ID", Some(task_id)) => Found::value(task_id.as_str()),
            ("CPEWF_TASK_ID", None) => Found::Literal,
            _ => match self.found.environment.named.get(name) {
                Some(value) => Found::value(value.as_str()),
                None => Found::Missing,
            },
        }
    }

    fn environment(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.found.environment.of_workflows.get(name)?;
        Some(Cow::Borrowed(value))
    }
}
