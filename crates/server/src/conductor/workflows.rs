//! Definition runs: start, read, terminate, pause, resume.

pub(super) mod execute;
pub(super) mod reopening;
pub(super) mod signals;
pub(super) mod test_run;

use longhaul_host::api::{CORRELATION_ID_CHARS_MAX, NAME_CHARS_MAX, WORKFLOW_PAYLOAD_BYTES_MAX};
use longhaul_host::{AfterTermination, ConductorRefusal, Error, StartExecution};
use longhaul_protocol::conductor::{StartWorkflowRequest, WorkflowStatusView};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use super::metadata::{no_such_workflow, version};
use crate::gate::Refusal;

fn priority(number: i64) -> Result<u8, Refusal> {
    u8::try_from(number)
        .ok()
        .filter(|priority| *priority <= 99)
        .ok_or_else(|| bad_request("priority: must be from 0 to 99".to_owned()))
}

/// Characters of an idempotency key.
const KEY_CHARS_MAX: usize = 255;

/// Returns the idempotency key. An empty one is absent.
fn key(given: Option<String>) -> Result<Option<String>, Refusal> {
    let key = given.filter(|key| !key.is_empty());
    at_most("idempotencyKey", key.as_deref(), KEY_CHARS_MAX)?;
    Ok(key)
}

/// Reads a correlation id.
pub(super) fn correlation_id(given: Option<String>) -> Result<Option<String>, Refusal> {
    at_most("correlationId", given.as_deref(), CORRELATION_ID_CHARS_MAX)?;
    Ok(given)
}

/// Refuses a text over a limit. It may be large, so the answer does not repeat it.
fn at_most(member: &str, text: Option<&str>, most: usize) -> Result<(), Refusal> {
    if text.is_some_and(|text| text.chars().count() > most) {
        let message = format!("{member}: must have at most {most} characters");
        return Err(bad_request(message));
    }
    Ok(())
}

/// Reads the request to start a run.
pub(super) fn read_start(request: StartWorkflowRequest) -> Result<StartExecution, Refusal> {
    if request.name.is_empty() {
        return Err(bad_request("name: must not be empty".to_owned()));
    }
    let lists = request.task_to_domain.values();
    for domain in lists.flat_map(|list| list.split(',')) {
        at_most("taskToDomain", Some(domain), NAME_CHARS_MAX)?;
    }
    Ok(StartExecution {
        name: request.name,
        version: version(request.version.map(i64::from))?,
        definition: request.workflow_def,
        input: request.input,
        correlation_id: correlation_id(request.correlation_id)?,
        priority: priority(i64::from(request.priority))?,
        task_to_domain: request.task_to_domain,
        created_by: request.created_by,
        idempotency_key: key(request.idempotency_key)?,
        idempotency_strategy: request.idempotency_strategy,
    })
}

/// Refuses an input over the limit of workflows, which is below that of requests.
pub(super) fn check_size(call: &Call, start: &StartExecution) -> Result<(), Refusal> {
    let most = WORKFLOW_PAYLOAD_BYTES_MAX;
    if call.bytes().len() <= most {
        return Ok(());
    }
    let bytes = serde_json::to_vec(&start.input).map_or(0, |json| json.len());
    if bytes <= most {
        return Ok(());
    }
    Err(bad_request(format!(
        "input: has {bytes} bytes, more than {most} (limit: workflow input)"
    )))
}

pub(super) async fn start(call: Call) -> Result<Answer, Refusal> {
    let start = read_start(call.body()?)?;
    start_run(&call, start, refused).await
}

/// Puts a message into the inbox of a run.
pub(super) async fn push_message(call: Call) -> Result<Answer, Refusal> {
    let payload = call.object()?;
    let executions = call.host().executions();
    let pushed = executions.push_message(&call.namespace, call.segment("a"), payload);
    Ok(Answer::Text(pushed.await.map_err(refused)?))
}

pub(super) async fn start_by_name(call: Call) -> Result<Answer, Refusal> {
    let start = StartExecution {
        name: call.segment("a").to_owned(),
        version: version(call.number("version")?)?,
        input: call.object()?,
        correlation_id: correlation_id(call.text("correlationId").map(str::to_owned))?,
        priority: priority(call.number("priority")?.unwrap_or(0))?,
        ..StartExecution::default()
    };
    start_run(&call, start, |error| match error {
        Error::Conductor(ConductorRefusal::NoSuchDefinition { name, version }) => {
            no_such_workflow(&name, version)
        }
        error => refused(error),
    })
    .await
}

/// Starts a run. `refusal` words an error: the two forms of a start name a missing definition in different words.
async fn start_run(
    call: &Call,
    start: StartExecution,
    refusal: impl FnOnce(Error) -> Refusal,
) -> Result<Answer, Refusal> {
    check_size(call, &start)?;
    let started = call.host().executions().start(&call.namespace, start).await;
    Ok(Answer::Text(started.map_err(refusal)?.to_string()))
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
    let is_wanted = |status: &str| {
        let mut named = statuses.iter();
        statuses.is_empty() || named.any(|name| name.eq_ignore_ascii_case(status))
    };
    let wanted: Vec<_> = tasks
        .into_iter()
        .filter(|task| is_wanted(task.status.as_str()))
        .collect();
    let total = wanted.len();
    let results: Vec<_> = wanted.into_iter().skip(start).take(count).collect();
    Ok(Answer::json(&longhaul_protocol::conductor::SearchResult {
        total_hits: i64::try_from(total).unwrap_or(i64::MAX),
        results,
    }))
}

pub(super) async fn terminate(call: Call) -> Result<Answer, Refusal> {
    let reason = call.text("reason");
    let then = match call.flag("triggerFailureWorkflow")? {
        Some(true) => AfterTermination::StartFailureWorkflow,
        Some(false) | None => AfterTermination::Nothing,
    };
    let id = call.segment("a");
    let ended = call
        .host()
        .executions()
        .terminate(&call.namespace, id, reason, then)
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

pub(super) async fn remove(call: Call) -> Result<Answer, Refusal> {
    // There is no archive: a removed workflow is gone whatever the client asks for.
    call.flag("archiveWorkflow")?;
    let executions = call.host().executions();
    let removed = executions.remove(&call.namespace, call.segment("a"), None);
    removed.await.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn terminate_and_remove(call: Call) -> Result<Answer, Refusal> {
    call.flag("archiveWorkflow")?;
    let (id, reason) = (call.segment("a"), call.text("reason"));
    let executions = call.host().executions();
    let removed = executions.terminate_and_remove(&call.namespace, id, reason);
    removed.await.map_err(refused)?;
    Ok(Answer::Void)
}
