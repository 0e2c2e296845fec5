//! Processes one workflow task: replays the history, runs local activities, and sends the commands.

use std::sync::Arc;

use longhaul_protocol::Payload;
use serde_json::{Value, json};

use super::api::{Refused, classify};
use super::shared::Shared;
use super::wire::{HistoryPage, WorkflowTask};
use crate::transport::RequestError;
use crate::workflow::{Decision, Execution, Handled, HistoryEvent, ReplayError, RunInfo};

/// The failure type that acknowledges a task without commands.
const WAITING: &str = "WorkflowTaskWaitingForHistory";

/// Why a task ended without commands.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The code does not match the history, or it panicked.
    Replay(ReplayError),
    /// The server refused a request.
    Request(RequestError),
    /// The server has released the claim.
    Released,
    /// The lease is lost. Nothing is reported; the server dispatches the task again.
    LeaseLost(RequestError),
}

impl From<ReplayError> for Stopped {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}

impl From<RequestError> for Stopped {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

/// Processes a task. Errors are reported to the server, logged and counted.
pub(super) async fn process(shared: &Arc<Shared>, mut task: WorkflowTask) {
    match complete(shared, &mut task).await {
        Ok(()) => shared.counters.workflow_tasks.add(),
        Err(Stopped::Released) => {}
        Err(Stopped::LeaseLost(error)) => {
            shared.counters.leases_lost.add();
            tracing::warn!(task_id = task.task_id, %error, "lost the lease of a workflow task");
        }
        Err(Stopped::Replay(error)) => fail(shared, &task, &error).await,
        Err(Stopped::Request(error)) => refused(shared, &task, &error).await,
    }
}

async fn complete(shared: &Arc<Shared>, task: &mut WorkflowTask) -> Result<(), Stopped> {
    if task.payload_codec != longhaul_protocol::payload::CODEC {
        return Err(Stopped::Replay(ReplayError::Damaged {
            position: 0,
            event_type: "task".to_owned(),
            problem: format!(
                "payloads have the codec `{}`; this worker reads `avro`",
                task.payload_codec
            ),
        }));
    }
    let mut execution = open(shared, task).await?;
    if let Some(update_id) = task.workflow_update_id.clone() {
        return complete_update(shared, task, execution, &update_id).await;
    }
    deliver_cancellation(shared, task, &mut execution).await?;
    match super::local_activities::run(shared, task, &mut execution).await {
        Ok(()) => {}
        Err(Stopped::Released) => {
            keep_in_memory(shared, task, execution);
            return Err(Stopped::Released);
        }
        Err(stopped) => return Err(stopped),
    }
    let decision = execution.decide()?;
    shared.check_capabilities(&decision.commands)?;
    let keep = !decision.closes;
    send(shared, task, decision).await?;
    if keep {
        keep_in_memory(shared, task, execution);
    }
    Ok(())
}

/// Returns the run after a replay of its history: from the cache, or from the beginning.
async fn open(shared: &Arc<Shared>, task: &mut WorkflowTask) -> Result<Execution, Stopped> {
    let known = shared.cache.take(&task.run_id);
    let page = task.take_history();
    let seen = known.as_ref().map_or(0, Execution::applied);
    let mut events = read_pages(shared, task, page, seen).await?;
    let mut execution = match known.filter(|known| known.fits(&events)) {
        Some(known) => {
            shared.counters.cache_hits.add();
            known
        }
        None => {
            shared.counters.cache_misses.add();
            if events.first().is_none_or(|first| first.sequence != 1) {
                let from_the_beginning = HistoryPage::rest_after(0);
                events = read_pages(shared, task, from_the_beginning, 0).await?;
            }
            begin(shared, task)?
        }
    };
    execution
        .journal()
        .suggest_continue_as_new(task.continue_as_new_recommended.unwrap_or(false));
    execution.apply(&events)?;
    Ok(execution)
}

/// Returns all events from a page on. Calls that a later page records must be known when the code makes them, so all pages are
/// read first. Pages of events up to `seen` are skipped.
async fn read_pages(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    mut page: HistoryPage,
    seen: u64,
) -> Result<Vec<HistoryEvent>, RequestError> {
    let mut events: Vec<HistoryEvent> = Vec::new();
    loop {
        let mut token = page.next_history_page_token.take();
        events.extend(page.take_events()?);
        if token.is_some() && events.last().is_some_and(|last| last.sequence < seen) {
            events.clear();
            token = HistoryPage::rest_after(seen).next_history_page_token;
        }
        let Some(token) = token else {
            return Ok(events);
        };
        page = shared
            .api
            .history(task, &token, shared.history_page_size())
            .await?;
    }
}

/// Creates an execution for a run that is not in the cache.
fn begin(shared: &Arc<Shared>, task: &WorkflowTask) -> Result<Execution, Stopped> {
    let Some(definition) = shared.workflows.get(task.workflow_type.as_str()) else {
        return Err(Stopped::Replay(ReplayError::UnknownWorkflow {
            workflow_type: task.workflow_type.clone(),
        }));
    };
    let info = RunInfo {
        workflow_id: task.workflow_id.clone(),
        run_id: task.run_id.clone(),
        workflow_type: task.workflow_type.clone(),
        task_queue: task
            .task_queue
            .clone()
            .unwrap_or_else(|| shared.queue.clone()),
        namespace: task
            .namespace
            .clone()
            .unwrap_or_else(|| shared.api.connection.namespace.to_string()),
    };
    let arguments = task.arguments.clone().unwrap_or_else(Payload::empty_list);
    Ok(Execution::new(definition, info, arguments))
}

/// Processes the task of an update: only its handler runs. The workflow continues with its next task.
async fn complete_update(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    mut execution: Execution,
    update_id: &str,
) -> Result<(), Stopped> {
    shared.counters.updates.add();
    let failed = |failure: &crate::Failure| {
        json!({
            "type": "fail_update",
            "update_id": update_id,
            "message": failure.message(),
            "exception_type": failure.exception_type(),
            "non_retryable": failure.is_non_retryable(),
        })
    };
    let (command, keep) = match execution.update(update_id)? {
        Handled::Completed(result) => (
            json!({"type": "complete_update", "update_id": update_id, "result": result}),
            true,
        ),
        // A failed handler may have changed the state, and the history will not have that. So the run is not cached.
        Handled::Failed(failure) => (failed(&failure), false),
        Handled::Unknown => (
            failed(&crate::Failure::of_type(
                "UnknownUpdate",
                "the workflow has no handler for this update",
            )),
            true,
        ),
    };
    let decision = Decision {
        commands: vec![command],
        closes: false,
    };
    send(shared, task, decision).await?;
    if keep {
        keep_in_memory(shared, task, execution);
    }
    Ok(())
}

/// Delivers a cancellation request to the code, unless the code has new commands.
async fn deliver_cancellation(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    execution: &mut Execution,
) -> Result<(), Stopped> {
    let Some(request) = &task.cancellation_request else {
        return Ok(());
    };
    if execution.is_cancelled() || execution.has_news() {
        return Ok(());
    }
    let Some((sequence, kind)) = execution.journal().cancellation_point() else {
        return Ok(());
    };
    let delivered = shared
        .api
        .deliver_cancellation(
            task,
            json!({
                "request_id": request.request_id,
                "sequence": sequence,
                "call_kind": kind.wire_name(),
                "sequence_span": 1,
            }),
        )
        .await?;
    if !delivered.delivered {
        return Err(Stopped::Released);
    }
    let token = request.history_refresh_page_token.clone();
    refresh(shared, task, execution, token).await
}

/// Fetches new events under the same claim and replays them.
pub(super) async fn refresh(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    execution: &mut Execution,
    token: Option<String>,
) -> Result<(), Stopped> {
    let from = HistoryPage {
        next_history_page_token: token,
        ..HistoryPage::default()
    };
    let events = read_pages(shared, task, from, execution.applied()).await?;
    execution.apply(&events)?;
    Ok(())
}

async fn send(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    decision: Decision,
) -> Result<(), Stopped> {
    if decision.commands.is_empty() {
        let keys = json!({"failure": {
            "message": "Workflow task waiting for scheduled history.",
            "type": WAITING,
        }});
        let _acknowledged: Value = shared.api.workflow_task(task, &["fail"], keys).await?;
        return Ok(());
    }
    let mut keys = json!({"commands": decision.commands});
    if !decision.closes && shared.is_sticky() {
        keys["sticky_cache"] = json!({
            "worker_id": shared.api.worker_id,
            "workflow_id": task.workflow_id,
            "run_id": task.run_id,
            "build_id": shared.build_id,
            "ttl_seconds": 600,
        });
    }
    let _recorded: Value = shared.api.workflow_task(task, &["complete"], keys).await?;
    Ok(())
}

fn keep_in_memory(shared: &Arc<Shared>, task: &WorkflowTask, execution: Execution) {
    shared.cache.put(&task.run_id, execution, &shared.counters);
}

/// Reports to the server that the task failed, and why.
async fn fail(shared: &Arc<Shared>, task: &WorkflowTask, error: &ReplayError) {
    shared.counters.workflow_tasks_failed.add();
    tracing::error!(
        workflow_id = task.workflow_id,
        run_id = task.run_id,
        workflow_type = task.workflow_type,
        %error,
        "workflow task failed"
    );
    let mut failure = json!({"message": error.to_string(), "type": error.failure_type()});
    if let Some(sequence) = error.sequence() {
        failure["sequence"] = json!(sequence);
    }
    let reported: Result<Value, RequestError> = shared
        .api
        .workflow_task(task, &["fail"], json!({"failure": failure}))
        .await;
    if let Err(error) = reported {
        tracing::warn!(task_id = task.task_id, %error, "could not report a failed workflow task");
    }
}

/// Handles a refused report.
async fn refused(shared: &Arc<Shared>, task: &WorkflowTask, error: &RequestError) {
    match classify(error) {
        Refused::RunCancelled => {
            shared.counters.runs_cancelled.add();
            tracing::info!(
                workflow_id = task.workflow_id,
                run_id = task.run_id,
                "the run was cancelled during its workflow task"
            );
        }
        Refused::LeaseLost => {
            shared.counters.leases_lost.add();
            tracing::warn!(task_id = task.task_id, %error, "lost the lease of a workflow task");
        }
        Refused::Unknown => {
            shared.counters.workflow_tasks_failed.add();
            tracing::warn!(task_id = task.task_id, %error, "could not report a workflow task");
        }
        Refused::Rejected => {
            let problem = ReplayError::Refused {
                problem: error.to_string(),
            };
            fail(shared, task, &problem).await;
        }
    }
}
