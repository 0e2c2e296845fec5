//! Starts a run and waits for it.

use std::time::Duration;

use longhaul_host::{ExecutionView, WaitUntil, Waited};
use longhaul_protocol::conductor::{
    ReturnStrategy, StartWorkflowRequest, Task, TaskRun, WorkflowRun, WorkflowStatus,
};
use serde_json::json;

use super::{check_size, read_start};
use crate::conductor::answer::Answer;
use crate::conductor::call::{Call, bad_request, refused};
use crate::gate::Refusal;

/// The wait of a request that names none, in seconds.
const WAIT_SECONDS_DEFAULT: i64 = 10;

/// The longest wait.
pub(in crate::conductor) const WAIT_SECONDS_MAX: i64 = 120;

pub(in crate::conductor) async fn execute(call: Call) -> Result<Answer, Refusal> {
    let mut request: StartWorkflowRequest = call.body()?;
    call.segment("a").clone_into(&mut request.name);
    let version: i32 = call
        .segment("b")
        .parse()
        .map_err(|_| bad_request("The version in the path must be a whole number.".to_owned()))?;
    request.version = Some(version).filter(|version| *version != 0);
    let is_dynamic = request
        .workflow_def
        .as_ref()
        .is_some_and(|definition| !definition.tasks.is_empty());
    if is_dynamic {
        let metadata = json!({"dynamic": true});
        request.input.insert("_systemMetadata".to_owned(), metadata);
    } else {
        request.workflow_def = None;
    }
    let strategy = read_strategy(&call)?;
    let until = read_wait(&call)?;
    let start = read_start(request)?;
    check_size(&call, &start)?;
    let executions = call.host().executions();
    let started = executions.start(&call.namespace, start).await;
    let id = started.map_err(refused)?;
    let waited = executions.wait(&call.namespace, id.as_str(), &until).await;
    let request_id = match call.text("requestId") {
        Some(given) => given.to_owned(),
        // Every run has an id of its own, so it also names the request that started it.
        None => id.to_string(),
    };
    Ok(render(&waited.map_err(refused)?, strategy, request_id))
}

/// Reads what the answer shows.
pub(in crate::conductor) fn read_strategy(call: &Call) -> Result<ReturnStrategy, Refusal> {
    match call.text("returnStrategy") {
        None => Ok(ReturnStrategy::TargetWorkflow),
        Some(word) => word
            .parse()
            .map_err(|error| bad_request(format!("returnStrategy: {error}"))),
    }
}

/// Reads what ends the wait.
pub(in crate::conductor) fn read_wait(call: &Call) -> Result<WaitUntil, Refusal> {
    let seconds = call.number("waitForSeconds")?;
    let seconds = seconds
        .filter(|seconds| *seconds > 0)
        .unwrap_or(WAIT_SECONDS_DEFAULT)
        .min(WAIT_SECONDS_MAX);
    let references = call.texts("waitUntilTaskRef");
    Ok(WaitUntil {
        references: references.into_iter().map(str::to_owned).collect(),
        timeout: Duration::from_secs(seconds.unsigned_abs()),
    })
}

pub(in crate::conductor) fn render(
    waited: &Waited,
    strategy: ReturnStrategy,
    request_id: String,
) -> Answer {
    let target = waited.target.workflow(false);
    let shown = Shown {
        strategy,
        target_id: &target.workflow_id,
        target_status: target.status,
        request_id: Some(request_id),
        has_timed_out: waited.has_timed_out,
    };
    match (strategy, &waited.blocking) {
        (ReturnStrategy::BlockingTask | ReturnStrategy::BlockingTaskInput, Some((view, task))) => {
            Answer::json(&shown.task(view, task))
        }
        (ReturnStrategy::BlockingWorkflow, Some((view, _))) => Answer::json(&shown.run(view)),
        _ => Answer::json(&shown.run(&waited.target)),
    }
}

/// The members that every answer has.
struct Shown<'a> {
    strategy: ReturnStrategy,
    target_id: &'a str,
    target_status: WorkflowStatus,
    request_id: Option<String>,
    has_timed_out: bool,
}

impl Shown<'_> {
    fn run(self, view: &ExecutionView) -> WorkflowRun {
        let run = view.workflow(true);
        WorkflowRun {
            response_type: self.strategy,
            target_workflow_id: self.target_id.to_owned(),
            target_workflow_status: self.target_status,
            request_id: self.request_id,
            workflow_id: run.workflow_id,
            correlation_id: run.correlation_id,
            input: run.input,
            output: run.output,
            signal_timeout: self.has_timed_out,
            priority: run.priority,
            variables: run.variables,
            tasks: run.tasks,
            created_by: run.created_by,
            create_time: run.create_time,
            status: run.status,
            update_time: run.update_time,
        }
    }

    fn task(self, view: &ExecutionView, task: &Task) -> TaskRun {
        let run = view.workflow(false);
        TaskRun {
            response_type: self.strategy,
            target_workflow_id: self.target_id.to_owned(),
            target_workflow_status: self.target_status,
            request_id: self.request_id,
            workflow_id: run.workflow_id,
            correlation_id: run.correlation_id,
            input: task.input_data.clone(),
            output: task.output_data.clone(),
            signal_timeout: self.has_timed_out,
            task_type: task.task_type.clone(),
            task_id: task.task_id.clone(),
            reference_task_name: task.reference_task_name.clone(),
            retry_count: task.retry_count,
            task_def_name: task.task_def_name.clone(),
            retried_task_id: task.retried_task_id.clone(),
            workflow_type: Some(run.workflow_name),
            reason_for_incompletion: task.reason_for_incompletion.clone(),
            priority: run.priority,
            created_by: task.worker_id.clone(),
            create_time: task.start_time,
            update_time: task.update_time,
            status: task.status,
            ..TaskRun::default()
        }
    }
}
