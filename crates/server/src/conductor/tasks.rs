//! Tasks of definition runs, as their workers poll and report them.

use std::time::Duration;

use http::StatusCode;
use longhaul_host::BatchPoll;
use longhaul_host::api::{ExecutionOutput, ExecutionReport};
use longhaul_protocol::conductor::{ResultStatus, TaskResult};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use super::logs::read_logs;
use crate::gate::Refusal;

/// The longest wait of a poll.
const WAIT_MS_MAX: i64 = 30_000;

/// The wait of a poll that names none.
const WAIT_MS_DEFAULT: i64 = 100;

/// The most tasks of one poll.
const COUNT_MAX: i64 = 1000;

fn read_poll(call: &Call, count: i64, wait_ms: i64) -> BatchPoll {
    let text = |name: &str| {
        call.text(name)
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned)
    };
    BatchPoll {
        namespace: call.namespace.clone(),
        task_type: call.segment("a").to_owned(),
        domain: text("domain"),
        worker_id: text("workerid").or_else(|| text("workerId")),
        count: usize::try_from(count.clamp(1, COUNT_MAX)).unwrap_or(1),
        timeout: Duration::from_millis(u64::try_from(wait_ms.clamp(0, WAIT_MS_MAX)).unwrap_or(0)),
    }
}

pub(super) async fn poll(call: Call) -> Result<Answer, Refusal> {
    let count = call.number("count")?.unwrap_or(1);
    let wait = call.number("timeout")?.unwrap_or(WAIT_MS_DEFAULT);
    let poll = read_poll(&call, count, wait);
    let tasks = call.host().execution_tasks().poll(&poll).await;
    Ok(Answer::json(&tasks.map_err(refused)?))
}

pub(super) async fn poll_one(call: Call) -> Result<Answer, Refusal> {
    let poll = read_poll(&call, 1, WAIT_MS_DEFAULT);
    let tasks = call.host().execution_tasks().poll(&poll).await;
    Ok(match tasks.map_err(refused)?.first() {
        Some(task) => Answer::json(task),
        None => Answer::Nothing,
    })
}

fn read_report(result: &TaskResult) -> Result<ExecutionReport, Refusal> {
    if result.task_id.is_empty() || result.workflow_instance_id.is_empty() {
        return Err(bad_request(
            "taskId and workflowInstanceId must not be empty".to_owned(),
        ));
    }
    if result.extend_lease {
        return Ok(ExecutionReport::ExtendLease);
    }
    read_status_report(result)
}

/// Reads what a result reports, without the task that it names.
pub(super) fn read_status_report(result: &TaskResult) -> Result<ExecutionReport, Refusal> {
    let Some(status) = result.status else {
        let words = "IN_PROGRESS, COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR or CANCELED";
        return Err(bad_request(format!("status: must be {words}")));
    };
    Ok(ExecutionReport::Status {
        status,
        output: ExecutionOutput::Replace(result.output_data.clone()),
        reason: result.reason_for_incompletion.clone(),
        worker_id: result.worker_id.clone(),
        callback_after_seconds: result.callback_after_seconds,
        logs: read_logs(&result.logs),
    })
}

pub(super) async fn update(call: Call) -> Result<Answer, Refusal> {
    let result: TaskResult = call.body()?;
    let report = read_report(&result)?;
    let tasks = call.host().execution_tasks();
    let (workflow_id, task_id) = (&result.workflow_instance_id, &result.task_id);
    let updated = tasks.update(&call.namespace, workflow_id, task_id, report);
    let updated = updated.await;
    let updated = updated.map_err(refused)?;
    Ok(Answer::Text(updated.task_id.to_string()))
}

pub(super) async fn update_and_take_next(call: Call) -> Result<Answer, Refusal> {
    let result: TaskResult = call.body()?;
    let report = read_report(&result)?;
    let tasks = call.host().execution_tasks();
    let (workflow_id, task_id) = (&result.workflow_instance_id, &result.task_id);
    let updated = tasks
        .update_and_take_next(&call.namespace, workflow_id, task_id, report)
        .await;
    // Clients take 404 for a server without this route.
    let (_, next) = updated
        .map_err(refused)
        .map_err(|refusal| match refusal.status {
            StatusCode::NOT_FOUND => Refusal {
                status: StatusCode::BAD_REQUEST,
                ..refusal
            },
            _ => refusal,
        })?;
    Ok(match next {
        Some(task) => Answer::json(&task),
        None => Answer::Nothing,
    })
}

fn read_report_by_reference(call: &Call) -> Result<ExecutionReport, Refusal> {
    let status = call.segment("c").parse::<ResultStatus>();
    let status = status.map_err(|error| bad_request(format!("status: {error}")))?;
    Ok(ExecutionReport::Status {
        status,
        output: ExecutionOutput::Merge(call.object()?),
        reason: None,
        worker_id: call.text("workerid").map(str::to_owned),
        callback_after_seconds: 0,
        logs: Vec::new(),
    })
}

pub(super) async fn update_by_reference(call: Call) -> Result<Answer, Refusal> {
    let report = read_report_by_reference(&call)?;
    let (id, reference) = (call.segment("a"), call.segment("b"));
    let tasks = call.host().execution_tasks();
    let updated = tasks
        .update_by_reference(&call.namespace, id, reference, report)
        .await;
    Ok(Answer::Text(updated.map_err(refused)?.task_id.to_string()))
}

pub(super) async fn update_by_reference_and_read(call: Call) -> Result<Answer, Refusal> {
    let report = read_report_by_reference(&call)?;
    let (id, reference) = (call.segment("a"), call.segment("b"));
    let tasks = call.host().execution_tasks();
    let run = tasks
        .update_by_reference_and_read(&call.namespace, id, reference, report)
        .await;
    Ok(Answer::json(&run.map_err(refused)?.workflow(true)))
}

pub(super) async fn get(call: Call) -> Result<Answer, Refusal> {
    let task = call
        .host()
        .execution_tasks()
        .get(&call.namespace, call.segment("a"))
        .await;
    Ok(Answer::json(&task.map_err(refused)?))
}
