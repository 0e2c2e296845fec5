//! DURABLE_WORKFLOW: a run of code is the child of a task. It is created in the transaction of its parent, and it reports by the same
//! messages as to a parent of its own family.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::{ChildCallId, RunId, TaskId, TaskQueue, WorkflowId};
use longhaul_protocol::sequence::CommandSeq;
use serde_json::{Value, json};

use crate::conductor::execution::lookup::{Lookup, LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::{ExecutionTask, TaskTimeouts, Waiting};
use crate::conductor::execution::value::object;
use crate::conductor::limits::NAME_CHARS_MAX;
use crate::run::draft::Draft;
use crate::run::family::child::{ChildClosed, NewCodeRun, Parent, ReportChildRun, Reported};
use crate::run::family::conversion;
use crate::run::state::{ClosedReason, Outcome, Run};
use crate::{Decision, Moment};

impl Pass<'_, '_> {
    /// Adds a DURABLE_WORKFLOW task. Its run is started when the pass comes to it, or when its delay is over.
    pub(crate) fn add_code_run(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let node = place.node().task();
        let delay = u64::try_from(node.start_delay).unwrap_or(0);
        let mut task = self.operator_task(place, id, TaskStatus::Scheduled);
        task.timeouts = TaskTimeouts {
            response: 0,
            ..TaskTimeouts::of(&*self.task_def(node, &task.def_name)?)
        };
        task.callback_after_seconds = i64::try_from(delay).unwrap_or(i64::MAX);
        let begins_at = self.draft.now.plus_seconds(delay);
        self.add_delayed(task, input, begins_at);
        Ok(())
    }

    /// Starts the run of a DURABLE_WORKFLOW task, unless it has one.
    pub(crate) fn begin_code_run(&mut self, seq: u64) -> Try<()> {
        let Some(task) = self.draft.task(seq).map(Arc::clone) else {
            return Ok(());
        };
        if task.child_workflow_id.is_some() {
            return Ok(());
        }
        let input = self.load_object(&task.input)?;
        let run = match self.new_code_run(&task, &input)? {
            Ok(run) => run,
            Err(reason) => {
                let status = TaskStatus::FailedWithTerminalError;
                self.draft.end_task(seq, status, Some(reason), None);
                self.todo.push_back(seq);
                return Ok(());
            }
        };
        let workflow_id = run.workflow_id.clone();
        let run_id = self.draft.children().create_code_run(run);
        self.draft.start_task(seq, |task| {
            task.waiting = Waiting::Child(run_id.clone());
            task.child_workflow_id = Some(workflow_id.clone());
        });
        let shown = object(json!({"workflowId": workflow_id, "runId": run_id}));
        self.draft.update_task(seq, Some(shown), |_| {});
        Ok(())
    }

    /// Returns the run that the input of a task describes, or why there is none.
    fn new_code_run(
        &mut self,
        task: &ExecutionTask,
        input: &Object,
    ) -> Try<Result<NewCodeRun, String>> {
        let text = |name: &str| {
            let given = input.get(name).and_then(Value::as_str);
            match given.filter(|text| !text.trim().is_empty()) {
                Some(text) if text.chars().count() > NAME_CHARS_MAX => {
                    Err(format!("{name} has more than {NAME_CHARS_MAX} characters"))
                }
                given => Ok(given.map(str::to_owned)),
            }
        };
        let required = |name: &str| {
            text(name)?.ok_or_else(|| format!("Missing '{name}' in DURABLE_WORKFLOW task."))
        };
        let read = || -> Result<_, String> {
            let arguments = input.get("arguments").unwrap_or(&Value::Null);
            let arguments = conversion::arguments(arguments)
                .map_err(|error| format!("The arguments cannot be sent to code: {error}"))?;
            let most = self.draft.limits.payload_bytes;
            if arguments.exceeds(usize::try_from(most).unwrap_or(usize::MAX)) {
                return Err(format!(
                    "The arguments have more than {most} bytes (limit: payload)"
                ));
            }
            let queue = TaskQueue::from(required("taskQueue")?);
            Ok((
                required("workflowType")?,
                queue,
                arguments,
                text("workflowId")?,
            ))
        };
        let (workflow_type, task_queue, arguments, given_id) = match read() {
            Ok(read) => read,
            Err(reason) => return Ok(Err(reason)),
        };
        let workflow_id: WorkflowId = match given_id {
            None => self.draft.ids.mint(),
            Some(given) => {
                // Each attempt is a workflow of its own.
                let id = match task.retry_count {
                    0 => WorkflowId::from(given),
                    retries => WorkflowId::from(format!("{given}-{}", retries + 1)),
                };
                match self.found.instances.get(&id) {
                    None => return Err(vec![Lookup::Instance(id)]),
                    Some(true) => {
                        return Ok(Err(format!("The workflow id {id} is in use")));
                    }
                    Some(false) => id,
                }
            }
        };
        let spec = &self.draft.spec;
        let parent = Parent {
            workflow_id: spec.workflow_id.clone(),
            run_id: spec.run_id.clone(),
            sequence: CommandSeq::new(task.seq),
            call_id: ChildCallId::from(task.id.as_str()),
            retry_policy: None,
            timeout_policy: None,
            attempt: u64::from(task.retry_count) + 1,
            retry: None,
            other_family: true,
        };
        Ok(Ok(NewCodeRun {
            workflow_id,
            workflow_type,
            task_queue,
            arguments,
            parent,
        }))
    }
}

/// Applies a report of a run of code to the task that waits for it.
pub(crate) fn report(
    report: &ReportChildRun,
    run: &Run,
    moment: Moment<'_>,
    found: &LookupResults,
) -> Step<Reported> {
    match try_report(report, run, moment, found) {
        Ok(decision) => Step::Decided(decision),
        Err(needs) => Step::Needs(needs),
    }
}

fn try_report(
    report: &ReportChildRun,
    run: &Run,
    moment: Moment<'_>,
    found: &LookupResults,
) -> Try<Decision<Reported>> {
    let mut draft = Draft::of(run, moment);
    let waits = draft.open_tasks().find(|task| {
        task.id.as_str() == report.call_id.as_str() && matches!(task.waiting, Waiting::Child(_))
    });
    let Some(task) = waits.filter(|_| run.core.closed.is_none()).map(Arc::clone) else {
        return Ok(Decision::unchanged(Reported::Taken));
    };
    let Some(closed) = &report.closed else {
        // The code continues as another run.
        draft.change_task(task.seq, |task| {
            task.waiting = Waiting::Child(report.run.run_id.clone());
        });
        return Ok(draft.finish(Ok(Reported::Taken)));
    };
    let (status, reason, output) = end_of(&task, &report.run.run_id, closed);
    let mut pass = Pass::new(draft, found)?;
    pass.draft.end_task(task.seq, status, reason, Some(output));
    pass.todo.push_back(task.seq);
    Ok(pass.run()?.finish(Ok(Reported::Taken)))
}

/// Returns how the task ends.
fn end_of(
    task: &ExecutionTask,
    run_id: &RunId,
    closed: &ChildClosed,
) -> (TaskStatus, Option<String>, Object) {
    let mut output = object(json!({"workflowId": task.child_workflow_id, "runId": run_id}));
    let (non_retryable, message) = match &closed.outcome {
        Some(Outcome::Output(result)) => {
            let result = conversion::json_of(result).unwrap_or_default();
            output.insert("result".to_owned(), result);
            (false, None)
        }
        Some(Outcome::Failure(failure)) => {
            output.insert("error".to_owned(), json!(failure.message));
            output.insert("errorType".to_owned(), json!(failure.exception_type));
            (failure.non_retryable, Some(failure.message.clone()))
        }
        None => (false, None),
    };
    let status = match closed.reason {
        ClosedReason::Completed | ClosedReason::Continued => TaskStatus::Completed,
        ClosedReason::Failed if non_retryable => TaskStatus::FailedWithTerminalError,
        ClosedReason::Failed => TaskStatus::Failed,
        ClosedReason::TimedOut => TaskStatus::TimedOut,
        ClosedReason::Cancelled | ClosedReason::Terminated => TaskStatus::Canceled,
    };
    let reason = (status != TaskStatus::Completed).then(|| {
        let kind = output.get("errorType").and_then(Value::as_str);
        let why = message.or_else(|| closed.note.clone());
        let why = why.unwrap_or_else(|| closed.reason.as_str().to_owned());
        match kind {
            Some(kind) => format!("{kind}: {why}"),
            None => why,
        }
    });
    (status, reason, output)
}
