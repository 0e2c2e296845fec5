//! Operators that need no worker and no other run: TERMINATE, SET_VARIABLE, WAIT, INLINE, LAMBDA, JSON_JQ_TRANSFORM. Also the beginning of
//! tasks that were put off.

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::TaskId;
use serde_json::{Value, json};

use super::switch::Evaluated;
use crate::conductor::definition::Operator;
use crate::conductor::execution::command::update::too_large;
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::retry::is_begun_by_pass;
use crate::conductor::execution::state::{ExecutionTask, TaskTimeouts, Waiting};
use crate::conductor::execution::value::{json_bytes, object};
use crate::conductor::limits::VARIABLES_BYTES_MAX;
use crate::conductor::script_result::Evaluator;
use crate::conductor::wait_time::WaitTime;
use crate::run::state::PartKey;

/// The delay that a task shows when no timer ends its wait.
const NO_TIMER_SECONDS: i64 = i32::MAX as i64;

/// How an operator ends: its status, its reason and its output.
type End = (TaskStatus, Option<String>, Option<Object>);

impl Pass<'_, '_> {
    /// Adds the task of an operator that needs no worker and no other run.
    pub(super) fn add_direct(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let operator = place.operator();
        if let Operator::Terminate = operator {
            self.add_terminate(place, id, input)
        } else if let Operator::SetVariable = operator {
            self.add_set_variable(place, id, input)
        } else if let Operator::Wait = operator {
            self.add_wait(place, id, input)
        } else if let Operator::Inline
        | Operator::Lambda
        | Operator::JsonJqTransform
        | Operator::PullWorkflowMessages = operator
        {
            self.add_for_pass(place, id, input)
        } else if let Operator::Noop = operator {
            let task = self.operator_task(place, id, TaskStatus::InProgress);
            self.add_ended(task, Object::new(), TaskStatus::Completed, None, None);
            Ok(())
        } else {
            // HUMAN and YIELD wait for an update.
            let mut task = self.operator_task(place, id, TaskStatus::InProgress);
            task.callback_after_seconds = 0;
            task.timeouts = TaskTimeouts::of(&*self.task_def(place.node().task(), &task.def_name)?);
            self.draft.add_task(task, input);
            Ok(())
        }
    }

    fn add_terminate(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let (status, reason, output) = end_of_terminate(&input);
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        self.add_ended(task, input, status, reason, output);
        Ok(())
    }

    fn add_set_variable(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let mut variables = self.load_run_value(PartKey::Variables)?;
        variables.extend(input.clone());
        let bytes = json_bytes(&variables);
        if bytes > VARIABLES_BYTES_MAX {
            let reason = format!(
                "The variables of the workflow would have {bytes} bytes, more than {VARIABLES_BYTES_MAX} (limit: variables)"
            );
            let status = TaskStatus::FailedWithTerminalError;
            return self.add_failed(place, id, input, status, reason);
        }
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        let seq = self.draft.add_task(task, input);
        self.draft.set_variables(variables);
        self.draft.end_task(seq, TaskStatus::Completed, None, None);
        self.todo.push_back(seq);
        Ok(())
    }

    fn add_wait(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let now = self.draft.now;
        // Another attempt of a WAIT that was cancelled keeps the time of the first one.
        let again = self.again_at(place);
        let since = again.and_then(|again| again.waits_since).unwrap_or(now);
        let due = match WaitTime::of(&input) {
            Ok(time) => time.due(since),
            Err(error) => {
                let status = TaskStatus::FailedWithTerminalError;
                return self.add_failed(place, id, input, status, error.to_string());
            }
        };
        let mut task = self.operator_task(place, id, TaskStatus::InProgress);
        task.timeouts = TaskTimeouts::of(&*self.task_def(place.node().task(), &task.def_name)?);
        task.first_scheduled_at = since;
        task.wait_until(due, now);
        if due.is_some_and(|due| due <= now) {
            task.waiting = Waiting::Nothing;
            self.add_ended(task, input, TaskStatus::Completed, None, None);
        } else {
            self.draft.add_task(task, input);
        }
        Ok(())
    }

    /// Adds a task that begins when the pass comes to it. A script or a jq program is evaluated then, so that many branches do not need all their
    /// scripts in one decision.
    fn add_for_pass(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let mut task = self.operator_task(place, id, TaskStatus::InProgress);
        if let Operator::PullWorkflowMessages = place.operator() {
            task.timeouts = TaskTimeouts::of(&*self.task_def(place.node().task(), &task.def_name)?);
        }
        let seq = self.draft.add_task(task, input);
        self.todo.push_back(seq);
        Ok(())
    }

    fn end_of_inline(&mut self, input: &Object) -> Try<End> {
        let failed = |status, reason: String| {
            let output = object(json!({"error": reason}));
            (status, Some(reason), Some(output))
        };
        let terminal = TaskStatus::FailedWithTerminalError;
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let name = text("evaluatorType")
            .filter(|name| !name.is_empty())
            .unwrap_or("javascript");
        let Some(expression) = text("expression").filter(|text| !text.trim().is_empty()) else {
            let reason = "Empty 'expression' in INLINE task.".to_owned();
            return Ok(failed(terminal, reason));
        };
        let evaluator = Evaluator::of(name);
        Ok(match self.evaluate(&evaluator, expression, input)? {
            Evaluated::Value(result) => {
                let output = object(json!({"result": result}));
                (TaskStatus::Completed, None, Some(output))
            }
            Evaluated::Failed {
                reason,
                is_retriable: true,
            } => failed(TaskStatus::Failed, reason),
            Evaluated::Failed { reason, .. } => failed(terminal, reason),
            Evaluated::NoEvaluator(_) => failed(
                terminal,
                format!("Unknown evaluator '{name}' in INLINE task."),
            ),
        })
    }

    /// Returns how a LAMBDA ends. Its script is the body of a function.
    fn end_of_lambda(&mut self, input: &Object) -> Try<End> {
        let body = input.get("scriptExpression").and_then(Value::as_str);
        let Some(body) = body.filter(|text| !text.trim().is_empty()) else {
            let reason = "Empty 'scriptExpression' in LAMBDA task.".to_owned();
            return Ok((TaskStatus::Failed, Some(reason), None));
        };
        // A comment may end the last line of the body.
        let script = format!("(function () {{ {body}\n}})()");
        Ok(match self.script(&script, input)? {
            Ok(result) => {
                let output = object(json!({"result": result}));
                (TaskStatus::Completed, None, Some(output))
            }
            Err(failure) => {
                let output = object(json!({"error": failure.message}));
                (TaskStatus::Failed, Some(failure.message), Some(output))
            }
        })
    }

    /// Returns how a JSON_JQ_TRANSFORM ends: with the results of its program, which sees the whole input.
    fn end_of_jq(&mut self, input: &Object) -> Try<End> {
        let program = input.get("queryExpression").and_then(Value::as_str);
        let results = match program.filter(|program| !program.trim().is_empty()) {
            Some(program) => self.jq(program, input)?.map_err(|failure| failure.message),
            None => Err("Missing 'queryExpression' in JSON_JQ_TRANSFORM task.".to_owned()),
        };
        Ok(match results {
            Ok(results) => {
                let first = results.first().unwrap_or(&Value::Null);
                let output = object(json!({"result": first, "resultList": results}));
                match too_large(&output) {
                    None => (TaskStatus::Completed, None, Some(output)),
                    Some(reason) => {
                        let output = object(json!({"error": reason}));
                        (
                            TaskStatus::FailedWithTerminalError,
                            Some(reason),
                            Some(output),
                        )
                    }
                }
            }
            Err(reason) => {
                let output = object(json!({"error": reason}));
                (TaskStatus::Failed, Some(reason), Some(output))
            }
        })
    }

    /// Begins an open task that the pass has come to, or whose delay is over.
    pub(crate) fn begin(&mut self, task: &ExecutionTask, place: &Place) -> Try<()> {
        let operator = place.operator();
        if let Operator::SubWorkflow(_) = operator {
            return self.begin_sub_workflow(task.seq);
        }
        if let Operator::StartWorkflow = operator {
            return self.begin_start_workflow(task);
        }
        if let Operator::Event { sink } = operator {
            return self.begin_event(task, place, sink);
        }
        if let Operator::PullWorkflowMessages = operator {
            return self.begin_pull(task);
        }
        if let Operator::DurableWorkflow = operator {
            return self.begin_code_run(task.seq);
        }
        if !is_begun_by_pass(operator) {
            return self.begin_queued(task, place);
        }
        let input = self.load_object(&task.input)?;
        let end = if let Operator::Inline = operator {
            Some(self.end_of_inline(&input)?)
        } else if let Operator::Lambda = operator {
            Some(self.end_of_lambda(&input)?)
        } else if let Operator::JsonJqTransform = operator {
            Some(self.end_of_jq(&input)?)
        } else if let Operator::Terminate = operator {
            Some(end_of_terminate(&input))
        } else if let Operator::Wait = operator {
            return self.begin_wait(task, &input);
        } else {
            None
        };
        if task.status == TaskStatus::Scheduled {
            self.draft.start_task(task.seq, |_| {});
        }
        // Any other operator waits for an update.
        let Some((status, reason, output)) = end else {
            return Ok(());
        };
        self.draft.end_task(task.seq, status, reason, output);
        self.todo.push_back(task.seq);
        Ok(())
    }

    /// Begins another attempt of a WAIT. Its time counts from now.
    fn begin_wait(&mut self, task: &ExecutionTask, input: &Object) -> Try<()> {
        let now = self.draft.now;
        let due = WaitTime::of(input).map(|time| time.due(now));
        let wait_until = due.clone().unwrap_or(Some(now));
        self.draft
            .start_task(task.seq, |task| task.wait_until(wait_until, now));
        let (status, reason) = match due {
            Err(error) => (TaskStatus::FailedWithTerminalError, Some(error.to_string())),
            Ok(Some(due)) if due <= now => (TaskStatus::Completed, None),
            Ok(_) => return Ok(()),
        };
        self.draft.end_task(task.seq, status, reason, None);
        self.todo.push_back(task.seq);
        Ok(())
    }
}

impl ExecutionTask {
    /// Sets the time that ends the wait, and the seconds until then that clients see.
    fn wait_until(&mut self, due: Option<Timestamp>, now: Timestamp) {
        self.callback_after_seconds = due.map_or(NO_TIMER_SECONDS, |due| {
            i64::try_from(now.micros_until(due).div_ceil(1_000_000)).unwrap_or(NO_TIMER_SECONDS)
        });
        self.waiting = due.map_or(Waiting::Nothing, Waiting::Time);
    }
}

/// Returns how a TERMINATE task with this input ends. The run ends after it, if it completed.
fn end_of_terminate(input: &Object) -> End {
    let status = input.get("terminationStatus").unwrap_or(&Value::Null);
    if !matches!(status.as_str(), Some("COMPLETED" | "FAILED" | "TERMINATED")) {
        let reason = format!(
            "Invalid terminationStatus {status}, must be one of COMPLETED, FAILED, TERMINATED"
        );
        return (TaskStatus::Failed, Some(reason), None);
    }
    let output = match input.get("workflowOutput") {
        Some(Value::Object(output)) => output.clone(),
        None | Some(Value::Null) => Object::new(),
        Some(other) => object(json!({"output": other})),
    };
    (TaskStatus::Completed, None, Some(output))
}
