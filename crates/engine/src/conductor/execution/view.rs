//! A definition run and its tasks as clients see them.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{
    Object, Task, TaskStatus, Workflow, WorkflowStatus, WorkflowTask,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::conductor::definition::Snapshot;
use crate::conductor::execution::lookup::{Lookup, LookupResults};
use crate::conductor::execution::operator::loop_output::{in_body, loop_output};
use crate::conductor::execution::pass::Try;
use crate::conductor::execution::state::{Execution, ExecutionTask, Stored, Waiting};
use crate::conductor::expression::ValueRef;
use crate::conductor::limits::{REASON_CHARS_MAX, WORKFLOW_PAYLOAD_BYTES_MAX};
use crate::queue::StartLimits;
use crate::run::draft::Draft;
use crate::run::state::{Closed, ClosedReason, Core, Part, PartKey, Run};

/// Returns the status of a definition run.
pub fn status_of(core: &Core) -> WorkflowStatus {
    let is_paused = core
        .execution
        .as_ref()
        .is_some_and(|execution| execution.paused);
    status_when(core.closed.as_ref(), is_paused)
}

/// Returns the status of a definition run by its end, if it has ended, and by whether it is paused.
pub(super) fn status_when(closed: Option<&Closed>, is_paused: bool) -> WorkflowStatus {
    match closed.map(|closed| closed.reason) {
        None if is_paused => WorkflowStatus::Paused,
        None => WorkflowStatus::Running,
        Some(ClosedReason::Completed | ClosedReason::Continued) => WorkflowStatus::Completed,
        Some(ClosedReason::Failed) => WorkflowStatus::Failed,
        Some(ClosedReason::TimedOut) => WorkflowStatus::TimedOut,
        Some(ClosedReason::Cancelled | ClosedReason::Terminated) => WorkflowStatus::Terminated,
    }
}

/// Returns the values of a run that its record shows and that are not in memory.
pub fn unloaded(run: &Run, with_tasks: bool) -> Vec<ValueRef> {
    let of_part = |part: &Part| {
        let (one, two) = if let Part::Value(stored) = part {
            (stored.get().err(), None)
        } else if let Some(task) = part.as_task().filter(|_| with_tasks) {
            (task.input.get().err(), task.output.get().err())
        } else {
            (None, None)
        };
        [one, two].into_iter().flatten()
    };
    run.parts.values().flat_map(of_part).collect()
}

/// Returns the run with no more tasks than the records of these need, and the values of them that are not in memory. The record of
/// an open JOIN or loop shows outputs of other tasks, so it needs all of them.
pub fn part_for_tasks(run: &Run, numbers: &[u64]) -> (Run, Vec<ValueRef>) {
    let tasks = || numbers.iter().filter_map(|number| run.task(*number));
    let shows_others = |task: &Arc<ExecutionTask>| {
        matches!(task.waiting, Waiting::Tasks(_)) || task.is_open_loop()
    };
    if tasks().any(shows_others) {
        return (run.clone(), unloaded(run, true));
    }
    let mut values = Vec::new();
    for task in tasks() {
        values.extend(task.input.get().err());
        values.extend(task.output.get().err());
    }
    let keys = numbers
        .iter()
        .flat_map(|number| [PartKey::Task(*number), PartKey::Past(*number)]);
    let parts = keys.filter_map(|key| Some((key, run.parts.get(&key)?.clone())));
    let (spec, core) = (Arc::clone(&run.spec), run.core.clone());
    let part = Run::new(run.version, spec, core, parts.collect());
    (part, values)
}

/// What a view is made of.
pub struct Source<'a> {
    pub run: &'a Run,
    pub snapshot: &'a Snapshot,
    pub found: &'a LookupResults,
}

impl Source<'_> {
    fn object(&self, stored: Option<&Stored>) -> Object {
        object_of(self.found, stored)
    }

    fn run_object(&self, key: PartKey) -> Object {
        match self.run.parts.get(&key) {
            Some(Part::Value(stored)) => self.object(Some(stored)),
            _ => Object::new(),
        }
    }

    /// Returns the record of the run, with its tasks if they are wanted.
    pub fn workflow(&self, with_tasks: bool) -> Workflow {
        let Some(execution) = self.run.core.execution.as_deref() else {
            return Workflow::default();
        };
        let (spec, core) = (&self.run.spec, &self.run.core);
        let parent = spec.parent.as_deref();
        let created = millis(Some(execution.restarted_at.unwrap_or(spec.started_at)));
        let failed = |name: fn(&ExecutionTask) -> &str| {
            if core.closed.is_none() {
                return Vec::new();
            }
            failed_names(execution, |seq| self.run.task(seq), name)
        };
        Workflow {
            create_time: created,
            start_time: created,
            update_time: millis(Some(execution.updated_at)),
            end_time: millis(core.closed.as_ref().map(|closed| closed.at)),
            status: status_of(core),
            workflow_id: spec.workflow_id.to_string(),
            parent_workflow_id: parent.map(|parent| parent.workflow_id.to_string()),
            parent_workflow_task_id: parent.map(|parent| parent.call_id.to_string()),
            tasks: if with_tasks { self.tasks() } else { Vec::new() },
            input: self.run_object(PartKey::Input),
            output: self.run_object(PartKey::Output),
            variables: self.run_object(PartKey::Variables),
            correlation_id: execution.correlation_id.clone(),
            idempotency_key: execution.idempotency_key.clone(),
            created_by: execution.created_by.clone(),
            owner_app: Some(String::new()),
            reason_for_incompletion: execution.reason.clone(),
            task_to_domain: (*execution.task_to_domain).clone(),
            failed_reference_task_names: failed(|task| &task.reference),
            failed_task_names: failed(|task| &task.def_name),
            workflow_definition: Some(Arc::clone(self.snapshot.text())),
            priority: i32::from(execution.priority),
            last_retried_time: millis(execution.last_retried_at),
            workflow_name: spec.workflow_type.clone(),
            workflow_version: execution.version,
            ..Workflow::default()
        }
    }

    /// Returns every task in the order of creation.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks: Vec<&Arc<ExecutionTask>> =
            self.run.parts.values().filter_map(Part::as_task).collect();
        tasks.sort_by_key(|task| task.seq);
        tasks.into_iter().map(|task| self.task(task)).collect()
    }

    /// Returns the record of one task.
    pub fn task(&self, task: &ExecutionTask) -> Task {
        let execution = self.run.core.execution.as_deref();
        let is_past = self.run.parts.contains_key(&PartKey::Past(task.seq));
        let bare = task.node_reference();
        let (node, definition) = match &task.forked {
            Some(root) => {
                let node = find_in(&root.0, bare).unwrap_or(&root.0);
                let definition = node.task_definition.as_deref();
                (rendered(node), definition.and_then(rendered))
            }
            None => match self.snapshot.tree().find(bare) {
                Some(node) => (Some(node.json()), node.definition_json()),
                None => (None, None),
            },
        };
        let scheduled = millis(Some(task.scheduled_at));
        let started = millis(task.started_at);
        let limit = |of: fn(&StartLimits) -> u32| {
            task.start_limits
                .as_ref()
                .map_or(0, |limits| number(of(limits)))
        };
        // A task of a worker shows the default of its definition.
        let default_window = i32::from(task.task_type == task.def_name);
        Task {
            task_type: task.task_type.clone(),
            status: task.status,
            input_data: self.object(Some(&task.input)),
            reference_task_name: task.reference.clone(),
            retry_count: number(task.retry_count),
            seq: i32::try_from(task.seq - execution.map_or(0, |execution| execution.first_seq))
                .unwrap_or(i32::MAX),
            correlation_id: execution.and_then(|execution| execution.correlation_id.clone()),
            poll_count: number(task.poll_count),
            task_def_name: task.def_name.clone(),
            scheduled_time: scheduled,
            start_time: started,
            end_time: millis(task.ended_at),
            update_time: if is_untouched(task) {
                0
            } else {
                millis(Some(task.updated_at))
            },
            start_delay_in_seconds: task.start_delay_seconds,
            retried_task_id: task.retried_task_id.as_ref().map(ToString::to_string),
            retried: task.retried,
            executed: is_past,
            response_timeout_seconds: i64::try_from(task.timeouts.response).unwrap_or(i64::MAX),
            workflow_instance_id: self.run.spec.workflow_id.to_string(),
            workflow_type: Some(self.run.spec.workflow_type.clone()),
            task_id: task.id.to_string(),
            reason_for_incompletion: task.reason.as_deref().map(shown_reason),
            callback_after_seconds: task.callback_after_seconds,
            worker_id: task.worker_id.clone(),
            output_data: self.output(task),
            workflow_task: node,
            task_definition: definition,
            domain: task.domain.clone(),
            rate_limit_per_frequency: limit(|limits| limits.starts),
            rate_limit_frequency_in_seconds: limit(|limits| limits.window_seconds)
                .max(default_window),
            workflow_priority: execution.map_or(0, |execution| i32::from(execution.priority)),
            iteration: number(task.iteration),
            sub_workflow_id: task.sub_workflow_id.as_ref().map(ToString::to_string),
            first_start_time: started,
            loop_over_task: task.iteration > 0,
            queue_wait_time: if started > 0 {
                (started - scheduled).max(0)
            } else {
                0
            },
            ..Task::default()
        }
    }

    /// Returns the output. That of an open loop is put together from its body, as far as the values were found.
    fn output(&self, task: &ExecutionTask) -> Object {
        if let Waiting::Tasks(_) = task.waiting {
            return self.joined_so_far(task);
        }
        if !task.is_open_loop() {
            return self.object(Some(&task.output));
        }
        let past = PartKey::Past(task.seq)..=PartKey::Past(u64::MAX);
        let parts = self.run.parts.range(past).map(|(_, part)| part);
        let load = |stored: &Stored| Ok(Arc::new(Value::Object(self.object(Some(stored)))));
        loop_output(task, in_body(task.seq, parts), load)
            .unwrap_or_else(|_| self.object(Some(&task.output)))
    }
}

impl Source<'_> {
    /// Returns the outputs of the tasks of an open JOIN that have ended.
    fn joined_so_far(&self, join: &ExecutionTask) -> Object {
        let mut output = self.object(Some(&join.output));
        let input = self.object(Some(&join.input));
        let names = input.get("joinOn").and_then(Value::as_array);
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            let reference = join.reference_beside(name);
            let task = self.run.index.exact(&reference);
            let task = task.and_then(|seq| self.run.task(seq));
            if let Some(task) = task.filter(|task| !task.is_open()) {
                let value = self.object(Some(&task.output));
                if !value.is_empty() {
                    output.insert(reference, Value::Object(value));
                }
            }
        }
        output
    }
}

/// Returns whether nothing has happened to a task since it was scheduled.
fn is_untouched(task: &ExecutionTask) -> bool {
    task.is_open() && task.started_at.is_none() && task.updated_at == task.scheduled_at
}

/// Returns as much of a reason as clients see.
fn shown_reason(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

fn rendered(value: &impl Serialize) -> Option<Arc<RawValue>> {
    serde_json::value::to_raw_value(value).ok().map(Arc::from)
}

/// Returns a node inside a node that a dynamic fork brought.
fn find_in<'a>(root: &'a WorkflowTask, reference: &str) -> Option<&'a WorkflowTask> {
    if root.task_reference_name == reference {
        return Some(root);
    }
    root.lists()
        .flat_map(|(_, list)| list)
        .find_map(|node| find_in(node, reference))
}

fn object_of(found: &LookupResults, stored: Option<&Stored>) -> Object {
    let value = stored.and_then(|stored| match stored.get() {
        Ok(value) => Some(value),
        Err(reference) => found.values.get(&reference),
    });
    match value.map(|value| &**value) {
        Some(Value::Object(object)) => object.clone(),
        _ => Object::new(),
    }
}

/// Returns the names of the tasks that failed, each once, oldest first.
fn failed_names<'a>(
    execution: &Execution,
    task: impl Fn(u64) -> Option<&'a Arc<ExecutionTask>>,
    name: fn(&ExecutionTask) -> &str,
) -> Vec<String> {
    let seqs: BTreeSet<u64> = execution
        .failed
        .iter()
        .chain(&execution.permitted_failures)
        .copied()
        .collect();
    let mut known = BTreeSet::new();
    seqs.into_iter()
        .filter_map(task)
        .filter(|task| {
            matches!(
                task.status,
                TaskStatus::Failed | TaskStatus::FailedWithTerminalError
            )
        })
        .map(|task| name(task))
        .filter(|name| known.insert(*name))
        .map(str::to_owned)
        .collect()
}

/// Returns the references of the tasks that failed.
pub(crate) fn failed_references(draft: &Draft<'_>) -> Vec<String> {
    failed_names(
        draft.execution(),
        |seq| draft.task(seq),
        |task| &task.reference,
    )
}

/// Returns the definition names of the tasks that failed.
pub(crate) fn failed_definitions(draft: &Draft<'_>) -> Vec<String> {
    failed_names(
        draft.execution(),
        |seq| draft.task(seq),
        |task| &task.def_name,
    )
}

/// Returns the record of a run that fails, for the workflow that is started because of it. The tasks are left out if they are over
/// the limit of an input.
pub(crate) fn failed_workflow(
    draft: &Draft<'_>,
    snapshot: &Snapshot,
    found: &LookupResults,
    status: WorkflowStatus,
    output: &Object,
) -> Try<Value> {
    let run = draft.preview();
    let stored = run.parts.values().filter_map(Part::as_task);
    let bytes: u64 = stored
        .map(|task| task.input.bytes() + task.output.bytes())
        .sum();
    let with_tasks = bytes <= WORKFLOW_PAYLOAD_BYTES_MAX as u64 / 2;
    // Values of this very decision are in its events, which cannot be looked up yet.
    let mut values = draft.new_values.clone();
    let mut missing = Vec::new();
    for reference in unloaded(&run, with_tasks) {
        match found.values.get(&reference) {
            Some(value) => {
                values.insert(reference, Arc::clone(value));
            }
            None if !values.contains_key(&reference) => missing.push(Lookup::Value(reference)),
            None => {}
        }
    }
    if !missing.is_empty() {
        return Err(missing);
    }
    let found = LookupResults {
        values,
        ..LookupResults::default()
    };
    let source = Source {
        run: &run,
        snapshot,
        found: &found,
    };
    let mut shown = source.workflow(with_tasks);
    shown.status = status;
    shown.end_time = millis(Some(draft.now));
    shown.output = output.clone();
    // The run is not closed yet, so its record does not name them.
    shown.failed_reference_task_names = failed_references(draft);
    shown.failed_task_names = failed_definitions(draft);
    Ok(serde_json::to_value(shown).unwrap_or_default())
}

pub(super) fn millis(time: Option<Timestamp>) -> i64 {
    time.map_or(0, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    })
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
