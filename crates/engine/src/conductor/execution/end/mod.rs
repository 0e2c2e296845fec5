//! The end of a definition run: its status, output and reason, its open tasks, its children, its parent, and the failure workflow.

pub(crate) mod reopen;

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus, WorkflowStatus};
use longhaul_protocol::history::{EventPayload, ExecutionEnded};
use longhaul_protocol::id::RunId;
use serde_json::{Value, json};

use crate::conductor::execution::command::start::{NewExecution, create};
use crate::conductor::execution::lookup::Lookup;
use crate::conductor::execution::operator::loop_output::{NoOutput, body_tasks, loop_output};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::retry::seconds_between;
use crate::conductor::execution::state::{ExecutionTask, Stored, Waiting};
use crate::conductor::execution::value::{kept_reason, measured, object};
use crate::conductor::execution::view;
use crate::conductor::expression::{EventMember, Template};
use crate::conductor::limits::{LISTED_NAMES_MAX, REASON_CHARS_MAX, SUB_WORKFLOW_DEPTH_MAX};
use crate::run::draft::Draft;
use crate::run::family::outbox::OutboxBody;
use crate::run::state::{Closed, ClosedReason, Part, PartKey};

/// What follows when a caller terminates a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTermination {
    Nothing,
    /// The workflow that the definition names for failures starts.
    StartFailureWorkflow,
}

impl Pass<'_, '_> {
    /// Ends the run because nothing is left to do: it completes, unless a permissive task failed.
    pub(crate) fn complete(&mut self) -> Try<()> {
        let failures = self.draft.execution().permitted_failures.clone();
        if failures.is_empty() {
            let output = self.output_of_run(None)?;
            return self.complete_with(None, output);
        }
        let tasks: Vec<Arc<ExecutionTask>> = failures
            .iter()
            .filter_map(|seq| self.draft.task(*seq))
            .filter(|task| !task.retried)
            .map(Arc::clone)
            .collect();
        let reasons: Vec<String> = tasks
            .iter()
            .map(|task| failure_sentence(task, WorkflowStatus::Failed))
            .collect();
        self.end(
            WorkflowStatus::Failed,
            Some(kept_reason(&reasons.join(". "))),
            None,
            tasks.last(),
        )
    }

    /// Ends the run because a task failed for good.
    pub(crate) fn fail_by(&mut self, task: &Arc<ExecutionTask>, reason: Option<String>) -> Try<()> {
        let status = match task.status {
            TaskStatus::TimedOut => WorkflowStatus::TimedOut,
            TaskStatus::Canceled => WorkflowStatus::Terminated,
            TaskStatus::Scheduled
            | TaskStatus::InProgress
            | TaskStatus::Completed
            | TaskStatus::CompletedWithErrors
            | TaskStatus::Skipped
            | TaskStatus::Failed
            | TaskStatus::FailedWithTerminalError => WorkflowStatus::Failed,
        };
        let reason = reason.unwrap_or_else(|| failure_sentence(task, status));
        self.end(status, Some(reason), None, Some(task))
    }

    /// Ends the run because a task timed out and its policy demands it.
    pub(crate) fn time_out_by(&mut self, task: &Arc<ExecutionTask>, reason: String) -> Try<()> {
        self.end(WorkflowStatus::TimedOut, Some(reason), None, Some(task))
    }

    /// Ends the run as FAILED where no task has failed: the definition cannot go on.
    pub(crate) fn fail_without_task(&mut self, reason: String) -> Try<()> {
        self.end(WorkflowStatus::Failed, Some(reason), None, None)
    }

    /// Ends the run as a TERMINATE task demands.
    pub(crate) fn terminate_by(&mut self, task: &Arc<ExecutionTask>) -> Try<()> {
        let input = self.load(&task.input)?;
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let status = match text("terminationStatus") {
            Some("COMPLETED") => WorkflowStatus::Completed,
            Some("TERMINATED") => WorkflowStatus::Terminated,
            _ => WorkflowStatus::Failed,
        };
        let reason = match input.get("terminationReason") {
            Some(Value::String(reason)) => reason.clone(),
            None | Some(Value::Null) => format!(
                "Workflow is {} by TERMINATE task: {}",
                status.as_str(),
                task.id
            ),
            Some(other) => other.to_string(),
        };
        let output = self.load_object(&task.output)?;
        if status == WorkflowStatus::Completed {
            return self.complete_with(Some(reason), output);
        }
        self.end(status, Some(reason), Some(output), None)
    }

    /// Ends the run if its time is over. Returns whether it did.
    pub(crate) fn time_out_if_due(&mut self) -> Try<bool> {
        let now = self.draft.now;
        let Some(deadline) = self.draft.execution().deadline_at.filter(|at| *at <= now) else {
            return Ok(false);
        };
        let definition = self.snapshot.definition();
        let configured = definition.timeout_seconds;
        let policy = definition.timeout_policy.as_str();
        let begun = deadline.minus_seconds(u64::try_from(configured).unwrap_or(0));
        let reason = format!(
            "Workflow timed out after {} seconds. Timeout configured as {configured} seconds. \
             Timeout policy configured to {policy}",
            seconds_between(begun, now)
        );
        self.end(WorkflowStatus::TimedOut, Some(reason), None, None)?;
        Ok(true)
    }

    /// Ends the run at the request of a caller, which decides about the failure workflow.
    pub(crate) fn terminate(&mut self, reason: Option<String>, then: AfterTermination) -> Try<()> {
        let starts_failure_workflow = then == AfterTermination::StartFailureWorkflow;
        let status = WorkflowStatus::Terminated;
        self.end_and(status, reason, None, None, starts_failure_workflow)
    }

    /// Ends the run. `output` replaces the output that the definition describes; `failed` is the task that caused the end.
    pub(crate) fn end(
        &mut self,
        status: WorkflowStatus,
        reason: Option<String>,
        output: Option<Object>,
        failed: Option<&Arc<ExecutionTask>>,
    ) -> Try<()> {
        let starts_failure_workflow = match status {
            WorkflowStatus::Failed | WorkflowStatus::TimedOut | WorkflowStatus::Terminated => true,
            WorkflowStatus::Completed | WorkflowStatus::Running | WorkflowStatus::Paused => false,
        };
        self.end_and(status, reason, output, failed, starts_failure_workflow)
    }

    /// Ends the run as COMPLETED with this output, or as FAILED if a schema does not accept it.
    fn complete_with(&mut self, reason: Option<String>, output: Object) -> Try<()> {
        match self.check_own_output(&output)? {
            Ok(()) => self.end(WorkflowStatus::Completed, reason, Some(output), None),
            Err(mismatch) => {
                let reason = Some(mismatch.into_message());
                self.end(WorkflowStatus::Failed, reason, Some(output), None)
            }
        }
    }

    fn end_and(
        &mut self,
        status: WorkflowStatus,
        reason: Option<String>,
        output: Option<Object>,
        failed: Option<&Arc<ExecutionTask>>,
        starts_failure_workflow: bool,
    ) -> Try<()> {
        let mut output = match output {
            Some(output) => output,
            None => self.output_of_run(failed)?,
        };
        if let Some(failed) = failed {
            self.draft.execution_mut().failed.push(failed.seq);
            self.draft.file_task(failed.seq);
        }
        self.draft.execution_mut().reason.clone_from(&reason);
        self.cancel_open_tasks(status, reason.as_deref())?;
        if starts_failure_workflow {
            self.start_failure_workflow(status, &mut output, failed)?;
        }
        self.draft.close_execution(status, reason, output);
        self.todo.clear();
        self.publish_state_changes()
    }

    /// Returns the output: the template of the definition, or the output of the last task, or of the task that failed.
    fn output_of_run(&self, failed: Option<&Arc<ExecutionTask>>) -> Try<Object> {
        if let Some(template) = self.snapshot.output() {
            return Ok(match self.resolve(template)? {
                Ok(Value::Object(output)) => output,
                Ok(_) => Object::new(),
                Err(reason) => object(json!({"error": reason})),
            });
        }
        let task = failed.map(Arc::clone).or_else(|| {
            (1..=self.draft.execution().last_seq)
                .rev()
                .find_map(|seq| self.draft.task(seq))
                .map(Arc::clone)
        });
        match task {
            Some(task) => self.load_object(&task.output),
            None => Ok(Object::new()),
        }
    }

    fn cancel_open_tasks(&mut self, status: WorkflowStatus, reason: Option<&str>) -> Try<()> {
        let why = reason.unwrap_or(status.as_str()).to_owned();
        for seq in self.draft.open_task_numbers() {
            let Some(task) = self.draft.task(seq).map(Arc::clone) else {
                continue;
            };
            self.draft.stop_child_of(&task, &why);
            let output = self.output_so_far(&task)?;
            self.draft.end_task(seq, TaskStatus::Canceled, None, output);
            self.draft.file_task(seq);
        }
        for seq in std::mem::take(&mut self.todo) {
            self.draft.file_task(seq);
        }
        Ok(())
    }

    /// Returns what a JOIN or a loop collected before it is cancelled. `None` for other tasks, and for what is over the limit.
    fn output_so_far(&self, task: &ExecutionTask) -> Try<Option<Object>> {
        if task.is_open_loop() {
            let load = |stored: &Stored| match self.draft.value(stored, self.found) {
                Ok(value) => Ok(Arc::clone(value)),
                Err(reference) => Err(reference),
            };
            return match loop_output(task, body_tasks(&self.draft, task.seq), load) {
                Ok(output) => Ok(Some(output)),
                Err(NoOutput::Unloaded(values)) => {
                    Err(values.into_iter().map(Lookup::Value).collect())
                }
                Err(NoOutput::TooLarge(_)) => Ok(None),
            };
        }
        match task.waiting {
            Waiting::Tasks(_) => self.joined_so_far(task),
            Waiting::Nothing
            | Waiting::Queued { .. }
            | Waiting::Leased
            | Waiting::Serving { .. }
            | Waiting::Time(_)
            | Waiting::Iteration(_)
            | Waiting::Child(_) => Ok(None),
        }
    }

    /// Starts the workflow that the definition names for failures, and notes it in the output.
    fn start_failure_workflow(
        &mut self,
        status: WorkflowStatus,
        output: &mut Object,
        failed: Option<&Arc<ExecutionTask>>,
    ) -> Try<()> {
        let definition = self.snapshot.definition();
        let Some(name) = definition.failure_workflow().map(str::to_owned) else {
            return Ok(());
        };
        let version = definition.failure_workflow_version;
        // `$workflow.input.key` and `${workflow.input.key}` are both in use.
        let template = match name.strip_prefix('$').filter(|rest| !rest.starts_with('{')) {
            Some(path) => Template::parse_text(&format!("${{{path}}}")),
            None => Template::parse_text(&name),
        };
        let name = match self.resolve(&template)? {
            Ok(Value::String(name)) => name,
            _ => name,
        };
        let snapshot = match self.found.definitions.get(&(name.clone(), version)) {
            Some(Some(snapshot)) => Arc::clone(snapshot),
            Some(None) => {
                let message = format!(
                    "Error workflow {name} failed to start.  reason: No such workflow defined. name={name}"
                );
                output.insert("conductor.failure_workflow".to_owned(), json!(message));
                return Ok(());
            }
            None => return Err(vec![Lookup::Definition { name, version }]),
        };
        let depth = self.draft.execution().depth + 1;
        if depth > SUB_WORKFLOW_DEPTH_MAX {
            let message = format!(
                "Error workflow {name} failed to start.  reason: more than {SUB_WORKFLOW_DEPTH_MAX} runs caused each other (limit: sub-workflow depth)"
            );
            output.insert("conductor.failure_workflow".to_owned(), json!(message));
            return Ok(());
        }
        let mut input = self.load_run_value(PartKey::Input)?;
        let reason = self.draft.execution().reason.clone();
        input.insert("workflowId".to_owned(), json!(self.draft.spec.workflow_id));
        input.insert("reason".to_owned(), json!(reason));
        input.insert("failureStatus".to_owned(), json!(status.as_str()));
        if let Some(failed) = failed {
            input.insert("failureTaskId".to_owned(), json!(failed.id));
        }
        let shown = view::failed_workflow(&self.draft, &self.snapshot, self.found, status, output)?;
        input.insert("failedWorkflow".to_owned(), shown);
        let execution = self.draft.execution();
        let new = NewExecution {
            namespace: self.draft.spec.namespace.clone(),
            snapshot,
            input,
            correlation_id: execution.correlation_id.clone(),
            priority: execution.priority,
            task_to_domain: Arc::clone(&execution.task_to_domain),
            idempotency_key: None,
            key_claim: None,
            created_by: execution.created_by.clone(),
            depth,
            parent: None,
        };
        let run_id: RunId = self.draft.ids.mint_uuid();
        let created = create(
            &new,
            &run_id,
            &mut self.draft.ids,
            self.draft.now,
            self.draft.limits,
        );
        self.draft.created.push(created);
        output.insert("conductor.failure_workflow".to_owned(), json!(run_id));
        Ok(())
    }
}

impl Draft<'_> {
    /// Closes the run: writes the terminal event, keeps the output and informs the parent.
    fn close_execution(&mut self, status: WorkflowStatus, reason: Option<String>, output: Object) {
        let failed_references = view::failed_references(self);
        let mut failed_names = view::failed_definitions(self);
        failed_names.truncate(LISTED_NAMES_MAX);
        let listed = &failed_references[..failed_references.len().min(LISTED_NAMES_MAX)];
        let listed = listed.join(",");
        let (output, bytes) = measured(output);
        let sequence = self.append(EventPayload::ExecutionEnded(Box::new(ExecutionEnded {
            status,
            reason: reason.clone(),
            failed_references,
            output: Arc::clone(&output),
        })));
        let stored = self.keep(&output, bytes, sequence, EventMember::Output);
        self.put(PartKey::Output, Part::Value(stored));
        let closed = match status {
            WorkflowStatus::Completed => ClosedReason::Completed,
            WorkflowStatus::TimedOut => ClosedReason::TimedOut,
            WorkflowStatus::Terminated => ClosedReason::Terminated,
            WorkflowStatus::Failed | WorkflowStatus::Running | WorkflowStatus::Paused => {
                ClosedReason::Failed
            }
        };
        self.core.status = closed.status();
        self.core.closed = Some(Closed {
            reason: closed,
            at: self.now,
            note: reason.clone(),
            continued_to: None,
            archived: None,
        });
        let execution = self.execution_mut();
        execution.backlog.clear();
        execution.exclusive_joins.clear();
        execution.paused = false;
        execution.failed_references = listed;
        execution.failed_names = failed_names;
        if self.spec.parent.is_some() {
            let life = self.execution().life;
            self.outbox().enqueue(OutboxBody::ExecutionEnded {
                status,
                reason,
                output,
                life,
            });
        }
    }
}

/// Returns the reason of a run that a task ended.
fn failure_sentence(task: &ExecutionTask, status: WorkflowStatus) -> String {
    let reason: String = task
        .reason
        .as_deref()
        .unwrap_or("null")
        .chars()
        .take(REASON_CHARS_MAX)
        .collect();
    format!(
        "Task {} failed with status: {} and reason: '{reason}'",
        task.id,
        status.as_str()
    )
}
