//! One operation on many workflows. The answer names the ids that succeeded and, for each other one, the error of the single request.

use futures::future::join_all;
use longhaul_host::{AfterTermination, DefinitionUsed, Error, RetriedRun};
use longhaul_protocol::conductor::{BulkResponse, Workflow};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use crate::gate::Refusal;

/// Ids of one request. The clients know this bound.
const IDS_MAX: usize = 1000;

/// Workflows that are worked on at the same time. Their commits share syncs; more would keep other requests waiting.
const AT_ONCE: usize = 32;

/// Makes an operation on each id of the body.
async fn on_each<T: serde::Serialize, F>(
    call: &Call,
    operation: impl Fn(String) -> F,
) -> Result<Answer, Refusal>
where
    F: Future<Output = Result<T, Error>>,
{
    let ids: Vec<String> = call.body()?;
    if ids.is_empty() || ids.len() > IDS_MAX {
        return Err(bad_request(format!(
            "The body must be a list of 1 to {IDS_MAX} workflow ids, not {}.",
            ids.len()
        )));
    }
    let mut response = BulkResponse::default();
    for some in ids.chunks(AT_ONCE) {
        let outcomes = join_all(some.iter().cloned().map(&operation)).await;
        for (id, outcome) in some.iter().zip(outcomes) {
            match outcome {
                Ok(result) => response.bulk_successful_results.push(result),
                Err(error) => {
                    let message = refused(error).message;
                    response.bulk_error_results.insert(id.clone(), message);
                }
            }
        }
    }
    Ok(Answer::json(&response))
}

pub(super) async fn pause(call: Call) -> Result<Answer, Refusal> {
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let pause = async |id: String| executions.pause(namespace, &id, None).await.map(|()| id);
    on_each(&call, pause).await
}

pub(super) async fn resume(call: Call) -> Result<Answer, Refusal> {
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let resume = async |id: String| executions.resume(namespace, &id).await.map(|()| id);
    on_each(&call, resume).await
}

pub(super) async fn restart(call: Call) -> Result<Answer, Refusal> {
    let with = match call.flag("useLatestDefinitions")? {
        Some(true) => DefinitionUsed::Latest,
        Some(false) | None => DefinitionUsed::Own,
    };
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let restart = async |id: String| executions.restart(namespace, &id, with).await.map(|()| id);
    on_each(&call, restart).await
}

pub(super) async fn retry(call: Call) -> Result<Answer, Refusal> {
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let which = RetriedRun::Itself;
    let retry = async |id: String| executions.retry(namespace, &id, which).await.map(|()| id);
    on_each(&call, retry).await
}

pub(super) async fn terminate(call: Call) -> Result<Answer, Refusal> {
    let then = match call.flag("triggerFailureWorkflow")? {
        Some(true) => AfterTermination::StartFailureWorkflow,
        Some(false) | None => AfterTermination::Nothing,
    };
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let reason = call.text("reason");
    let terminate = async |id: String| {
        let ended = executions.terminate(namespace, &id, reason, then);
        ended.await.map(|()| id)
    };
    on_each(&call, terminate).await
}

pub(super) async fn remove(call: Call) -> Result<Answer, Refusal> {
    call.flag("archiveWorkflow")?;
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let remove = async |id: String| executions.remove(namespace, &id, None).await.map(|()| id);
    on_each(&call, remove).await
}

pub(super) async fn terminate_and_remove(call: Call) -> Result<Answer, Refusal> {
    call.flag("archiveWorkflow")?;
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let reason = call.text("reason");
    let remove = async |id: String| {
        let removed = executions.terminate_and_remove(namespace, &id, reason);
        removed.await.map(|()| id)
    };
    on_each(&call, remove).await
}

pub(super) async fn search(call: Call) -> Result<Answer, Refusal> {
    let with_tasks = call.flag("includeTasks")?.unwrap_or(true);
    let (executions, namespace) = (call.host().executions(), &call.namespace);
    let read = async |id: String| -> Result<Workflow, Error> {
        let found = executions.get(namespace, &id, with_tasks).await?;
        Ok(found.workflow(with_tasks))
    };
    on_each(&call, read).await
}
