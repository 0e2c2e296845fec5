//! Definition runs: start, read, terminate, pause, resume.

use longhaul_host::StartExecution;
use longhaul_protocol::conductor::{StartWorkflowRequest, WorkflowStatusView};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use super::metadata::version;
use crate::gate::Refusal;

fn priority(number: i64) -> Result<u8, Refusal> {
    u8::try_from(number)
        .ok()
        .filter(|priority| *priority <= 99)
        .ok_or_else(|| bad_request("priority: must be from 0 to 99".to_owned()))
}

/// Reads the request to start a run.
pub(super) fn read_start(request: StartWorkflowRequest) -> Result<StartExecution, Refusal> {
    if request.name.is_empty() {
        return Err(bad_request("name: must not be empty".to_owned()));
    }
    Ok(StartExecution {
        name: request.name,
        version: version(request.version.map(i64::from))?,
        definition: request.workflow_def,
        input: request.input,
        correlation_id: request.correlation_id,
        priority: priority(i64::from(request.priority))?,
        task_to_domain: request.task_to_domain,
        created_by: request.created_by,
    })
}

pub(super) async fn start(call: Call) -> Result<Answer, Refusal> {
    let start = read_start(call.body()?)?;
    start_run(&call, start).await
}

pub(super) async fn start_by_name(call: Call) -> Result<Answer, Refusal> {
    let start = StartExecution {
        name: call.segment("a").to_owned(),
        version: version(call.number("version")?)?,
        input: call.object()?,
        correlation_id: call.text("correlationId").map(str::to_owned),
        priority: priority(call.number("priority")?.unwrap_or(0))?,
        ..StartExecution::default()
    };
    start_run(&call, start).await
}

async fn start_run(call: &Call, start: StartExecution) -> Result<Answer, Refusal> {
    let started = call.host().executions().start(&call.namespace, start).await;
    Ok(Answer::Text(started.map_err(refused)?.to_string()))
}

pub(super) async fn get(call: Call) -> Result<Answer, Refusal> {
    let with_tasks = call.flag("includeTasks")?.unwrap_or(true);
    let id = call.segment("a");
    let found = call
        .host()
        .executions()
        .get(&call.namespace, id, with_tasks)
        .await;
    Ok(Answer::json(&found.map_err(refused)?.workflow(with_tasks)))
}

pub(super) async fn status(call: Call) -> Result<Answer, Refusal> {
    let id = call.segment("a");
    let found = call
        .host()
        .executions()
        .get(&call.namespace, id, false)
        .await;
    let run = found.map_err(refused)?.workflow(false);
    let with = |name: &str| call.flag(name).map(|flag| flag.unwrap_or(false));
    Ok(Answer::json(&WorkflowStatusView {
        workflow_id: run.workflow_id,
        correlation_id: run.correlation_id,
        output: with("includeOutput")?.then_some(run.output),
        variables: with("includeVariables")?.then_some(run.variables),
        status: run.status,
    }))
}

pub(super) async fn tasks(call: Call) -> Result<Answer, Refusal> {
    let id = call.segment("a");
    let found = call
        .host()
        .executions()
        .get(&call.namespace, id, true)
        .await;
    let tasks = found.map_err(refused)?.workflow(true).tasks;
    let start = usize::try_from(call.number("start")?.unwrap_or(0)).unwrap_or(0);
    let count = usize::try_from(call.number("count")?.unwrap_or(15)).unwrap_or(15);
    let statuses = call.texts("status");
    let total = tasks.len();
    let results: Vec<_> = tasks
        .into_iter()
        .filter(|task| statuses.is_empty() || statuses.contains(&task.status.as_str()))
        .skip(start)
        .take(count)
        .collect();
    Ok(Answer::json(&longhaul_protocol::conductor::SearchResult {
        total_hits: i64::try_from(total).unwrap_or(i64::MAX),
        results,
    }))
}

pub(super) async fn terminate(call: Call) -> Result<Answer, Refusal> {
    let reason = call.text("reason");
    let id = call.segment("a");
    let ended = call
        .host()
        .executions()
        .terminate(&call.namespace, id, reason)
        .await;
    ended.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn pause(call: Call) -> Result<Answer, Refusal> {
    let id = call.segment("a");
    let paused = call
        .host()
        .executions()
        .pause(&call.namespace, id, None)
        .await;
    paused.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn resume(call: Call) -> Result<Answer, Refusal> {
    let id = call.segment("a");
    let resumed = call.host().executions().resume(&call.namespace, id).await;
    resumed.map_err(refused)?;
    Ok(Answer::Void)
}
