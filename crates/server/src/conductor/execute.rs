//! Requests that wait for a run: a start, a signal, a change of its state.

use std::time::Duration;

use longhaul_host::api::{ExecutionOutput, ExecutionReport};
use longhaul_host::{ConductorRefusal, ExecutionView, Mock, Mocks, WaitUntil, Waited};
use longhaul_protocol::conductor::{
    Object, ResultStatus, ReturnStrategy, StartWorkflowRequest, Task, TaskMock, TaskRun,
    WorkflowRun, WorkflowStateUpdate, WorkflowStatus, WorkflowTestRequest,
};
use serde_json::json;

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use super::workflows::{check_size, read_start};
use crate::gate::Refusal;

/// The wait of a request that names none, in seconds.
const WAIT_SECONDS_DEFAULT: i64 = 10;

/// The longest wait.
const WAIT_SECONDS_MAX: i64 = 120;

pub(super) async fn execute(call: Call) -> Result<Answer, Refusal> {
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

/// Runs a workflow in memory, with outputs of the caller in the place of workers.
pub(super) async fn test(call: Call) -> Result<Answer, Refusal> {
    let mut request: WorkflowTestRequest = call.body()?;
    let mocks = mocks_of(&mut request);
    let start = read_start(StartWorkflowRequest {
        name: request.name,
        version: request.version,
        correlation_id: request.correlation_id,
        input: request.input,
        task_to_domain: request.task_to_domain,
        workflow_def: request.workflow_def,
        priority: request.priority,
        created_by: request.created_by,
        ..StartWorkflowRequest::default()
    })?;
    check_size(&call, &start)?;
    let executions = call.host().executions();
    let tested = executions.test(&call.namespace, start, mocks).await;
    Ok(Answer::json(&tested.map_err(refused)?))
}

/// Takes the mocks out of a request. The recursion is as deep as the JSON, which its reader bounds.
fn mocks_of(request: &mut WorkflowTestRequest) -> Mocks {
    /// The longest time that a mock takes: a year.
    const MILLIS_MAX: i64 = 365 * 24 * 3600 * 1000;
    let mock = |mock: TaskMock| {
        let millis = mock.execution_time.saturating_add(mock.queue_wait_time);
        Mock {
            status: mock.status,
            output: mock.output,
            takes: Duration::from_millis(millis.clamp(0, MILLIS_MAX).unsigned_abs()),
        }
    };
    let tasks = std::mem::take(&mut request.task_ref_to_mock_output);
    let tasks = tasks.into_iter();
    let inner = std::mem::take(&mut request.sub_workflow_test_request);
    Mocks {
        tasks: tasks
            .map(|(name, mocks)| (name, mocks.into_iter().map(mock).collect()))
            .collect(),
        sub_workflows: inner
            .into_iter()
            .map(|(name, mut inner)| (name, mocks_of(&mut inner)))
            .collect(),
    }
}

/// The wait after a signal that names none, in milliseconds.
const SIGNAL_MILLIS_DEFAULT: i64 = 5000;

pub(super) async fn signal(call: Call) -> Result<Answer, Refusal> {
    let report = read_signal(&call)?;
    let executions = call.host().executions();
    let signalled = executions.signal(&call.namespace, call.segment("a"), report);
    signalled.await.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn signal_and_wait(call: Call) -> Result<Answer, Refusal> {
    let report = read_signal(&call)?;
    let strategy = read_strategy(&call)?;
    let millis = call.number("timeoutMillis")?;
    let millis = millis.filter(|millis| *millis > 0);
    let millis = millis.unwrap_or(SIGNAL_MILLIS_DEFAULT);
    let until = WaitUntil {
        references: Vec::new(),
        timeout: Duration::from_millis(millis.min(WAIT_SECONDS_MAX * 1000).unsigned_abs()),
    };
    let id = call.segment("a");
    let executions = call.host().executions();
    let signalled = executions.signal(&call.namespace, id, report).await;
    if !signalled.map_err(refused)? {
        let workflow_id = id.to_owned();
        return Err(refused(
            ConductorRefusal::NoBlockedTask { workflow_id }.into(),
        ));
    }
    let waited = executions.wait(&call.namespace, id, &until).await;
    let request_id = call.text("requestId").unwrap_or(id).to_owned();
    Ok(render(&waited.map_err(refused)?, strategy, request_id))
}

fn read_signal(call: &Call) -> Result<ExecutionReport, Refusal> {
    let status = call.segment("b").parse::<ResultStatus>();
    let status = status.map_err(|error| bad_request(format!("status: {error}")))?;
    Ok(report(status, call.object()?))
}

/// Returns a report that adds members to the output.
fn report(status: ResultStatus, output: Object) -> ExecutionReport {
    ExecutionReport::Status {
        status,
        output: ExecutionOutput::Merge(output),
        reason: None,
        worker_id: None,
        callback_after_seconds: 0,
        logs: Vec::new(),
    }
}

pub(super) async fn set_variables(call: Call) -> Result<Answer, Refusal> {
    let (id, variables) = (call.segment("a"), call.object()?);
    let executions = call.host().executions();
    let updated = executions.update_state(&call.namespace, id, variables, None);
    updated.await.map_err(refused)?;
    let run = executions.get(&call.namespace, id, true).await;
    Ok(Answer::json(&run.map_err(refused)?.workflow(true)))
}

pub(super) async fn update_state(call: Call) -> Result<Answer, Refusal> {
    let update: WorkflowStateUpdate = call.body()?;
    let until = read_wait(&call)?;
    let task = match (update.task_reference_name, update.task_result) {
        (Some(reference), Some(result)) if !reference.is_empty() => {
            let status = result.status.unwrap_or(ResultStatus::Completed);
            Some((reference, report(status, result.output_data)))
        }
        (None, None) => None,
        (Some(_), None) => {
            return Err(bad_request(
                "taskResult: must be given with taskReferenceName".to_owned(),
            ));
        }
        _ => {
            return Err(bad_request(
                "taskReferenceName: must be given with taskResult".to_owned(),
            ));
        }
    };
    let id = call.segment("a");
    let executions = call.host().executions();
    let updated = executions.update_state(&call.namespace, id, update.variables, task);
    updated.await.map_err(refused)?;
    let waited = executions.wait(&call.namespace, id, &until).await;
    let request_id = call.text("requestId").unwrap_or(id).to_owned();
    let strategy = ReturnStrategy::TargetWorkflow;
    Ok(render(&waited.map_err(refused)?, strategy, request_id))
}

/// Reads what the answer shows.
fn read_strategy(call: &Call) -> Result<ReturnStrategy, Refusal> {
    match call.text("returnStrategy") {
        None => Ok(ReturnStrategy::TargetWorkflow),
        Some(word) => word
            .parse()
            .map_err(|error| bad_request(format!("returnStrategy: {error}"))),
    }
}

/// Reads what ends the wait.
fn read_wait(call: &Call) -> Result<WaitUntil, Refusal> {
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

fn render(waited: &Waited, strategy: ReturnStrategy, request_id: String) -> Answer {
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
