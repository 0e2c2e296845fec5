//! Workflow tasks: poll, history, heartbeat, complete, fail.

use longhaul_host::api::{Completion, TaskHolder};
use longhaul_host::api::{Pressure, RunStatus, StickyClaim, StreamCursor, WorkflowClaim};
use longhaul_host::{Error, LeasedWorkflowTask, WorkflowWork};
use longhaul_protocol::history::PAYLOAD_CODEC;
use longhaul_protocol::id::{
    ActivityAttemptId, ActivityExecutionId, ChildCallId, CommandId, Namespace, RunId, SignalId,
    TaskId, TaskQueue, TimerId, UpdateId, WaitId, WorkerId, WorkflowId,
};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_protocol::workflow_command::parse_commands;
use longhaul_protocol::{Payload, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::history::{page_fields, page_size, with_page};
use super::polls::{self, Leased, read_poll};
use super::task_reply;
use super::{Call, MESSAGE_MAX, NAME_MAX, Reply, stack_trace, update_validation_tasks};
use crate::error;
use crate::gate::Refusal;
use crate::heavy;
use crate::request::body::Body;
use crate::views::cancellation::cancellation_json;
use crate::views::page_token::{page_token, parse_page_token};

pub(super) async fn poll(call: Call) -> Result<Reply, Refusal> {
    let body = &call.body;
    let poll = read_poll(&call);
    let page_size = page_size(&call);
    let encoding = body.text("accept_history_encoding", NAME_MAX);
    let kinds = body.texts("task_kinds").unwrap_or_default();
    body.check()?;
    let validates = kinds
        .iter()
        .any(|kind| kind == update_validation_tasks::TASK_KIND);
    let polled = if validates {
        call.host()
            .workflow_tasks()
            .poll_work(&poll, page_size)
            .await
    } else {
        let polled = call.host().workflow_tasks().poll(&poll, page_size).await;
        polled.map(|polled| polled.map(|task| WorkflowWork::Task(Box::new(task))))
    };
    let render = |work| async move {
        match work {
            WorkflowWork::Task(task) => Leased {
                leased_at: task.claim.leased_at,
                lease_expires_at: task.claim.lease_expires_at,
                task: heavy::work(task.history.bytes(), move || {
                    task_json(&task, encoding.as_deref())
                })
                .await,
            },
            WorkflowWork::Validation(task) => Leased {
                leased_at: task.lease.leased_at,
                lease_expires_at: task.lease.expires_at,
                task: heavy::work(task.bytes(), move || {
                    update_validation_tasks::task_json(&task)
                })
                .await,
            },
        }
    };
    polls::reply(&call.app, polled, &poll, "workflow_task", render).await
}

/// A key that is always null in this release.
type Null = Option<()>;

/// A task as it is sent, without its history. Every key of the resume context is present, and null where it does not apply.
#[derive(Serialize)]
struct TaskView<'a> {
    task_id: &'a TaskId,
    task_kind: &'static str,
    task_type: &'static str,
    workflow_id: &'a WorkflowId,
    run_id: &'a RunId,
    namespace: &'a Namespace,
    workflow_type: &'a str,
    workflow_task_attempt: u64,
    lease_owner: &'a WorkerId,
    lease_expires_at: Timestamp,
    task_queue: &'a TaskQueue,
    connection: Null,
    compatibility: Option<&'a str>,
    priority: u8,
    fairness_key: Option<&'a str>,
    payload_codec: &'static str,
    arguments: &'a Payload,
    run_status: RunStatus,
    cancel_requested: bool,
    sticky_replay_mode: &'static str,
    cancellation_request: Option<Value>,
    last_history_sequence: HistorySeq,
    history_size_bytes: u64,
    history_fan_out: u64,
    continue_as_new_recommended: bool,
    history_budget_pressure: &'static str,
    history_budget_pressure_dimensions: &'a [&'static str],
    workflow_wait_kind: &'a Option<String>,
    open_wait_id: &'a Option<String>,
    resume_source_kind: &'a Option<String>,
    resume_source_id: &'a Option<String>,
    workflow_update_id: &'a Option<UpdateId>,
    update_name: &'a Option<String>,
    workflow_signal_id: &'a Option<SignalId>,
    signal_name: &'a Option<String>,
    signal_wait_id: &'a Option<WaitId>,
    signal_arguments: &'a Option<Payload>,
    workflow_command_id: &'a Option<CommandId>,
    activity_execution_id: &'a Option<ActivityExecutionId>,
    activity_attempt_id: &'a Option<ActivityAttemptId>,
    activity_type: &'a Option<String>,
    child_call_id: &'a Option<ChildCallId>,
    child_workflow_run_id: &'a Option<RunId>,
    workflow_sequence: Option<CommandSeq>,
    workflow_event_type: &'a Option<String>,
    timer_id: &'a Option<TimerId>,
    condition_wait_id: &'a Option<WaitId>,
    condition_key: &'a Option<String>,
    condition_definition_fingerprint: &'a Option<String>,
    execution_mode: &'a Option<String>,
}

/// Returns the task as text: the view with the first page of history.
fn task_json(task: &LeasedWorkflowTask, accept_encoding: Option<&str>) -> String {
    let claim = &task.claim;
    let WorkflowClaim {
        spec,
        resume,
        budget,
        ..
    } = claim;
    let view = TaskView {
        task_id: &claim.task_id,
        task_kind: "workflow",
        task_type: "workflow",
        workflow_id: &spec.workflow_id,
        run_id: &spec.run_id,
        namespace: &spec.namespace,
        workflow_type: &spec.workflow_type,
        workflow_task_attempt: claim.attempt,
        lease_owner: &claim.owner,
        lease_expires_at: claim.lease_expires_at,
        task_queue: &spec.task_queue,
        connection: None,
        compatibility: spec.routing.compatibility.as_deref(),
        priority: spec.routing.priority,
        fairness_key: spec.routing.fairness_key.as_deref(),
        payload_codec: PAYLOAD_CODEC,
        arguments: &spec.arguments,
        run_status: claim.run_status,
        cancel_requested: claim.cancellation.is_some(),
        sticky_replay_mode: claim.replay_mode.as_str(),
        cancellation_request: claim.cancellation.as_deref().map(cancellation_json),
        last_history_sequence: claim.observed_sequence,
        history_size_bytes: budget.bytes,
        history_fan_out: budget.fan_out,
        continue_as_new_recommended: budget.pressure == Pressure::ContinueAsNewRecommended,
        history_budget_pressure: budget.pressure.as_str(),
        history_budget_pressure_dimensions: &budget.dimensions,
        workflow_wait_kind: &resume.workflow_wait_kind,
        open_wait_id: &resume.open_wait_id,
        resume_source_kind: &resume.resume_source_kind,
        resume_source_id: &resume.resume_source_id,
        workflow_update_id: &resume.workflow_update_id,
        update_name: &resume.update_name,
        workflow_signal_id: &resume.workflow_signal_id,
        signal_name: &resume.signal_name,
        signal_wait_id: &resume.signal_wait_id,
        signal_arguments: &claim.signal_arguments,
        workflow_command_id: &resume.workflow_command_id,
        activity_execution_id: &resume.activity_execution_id,
        activity_attempt_id: &resume.activity_attempt_id,
        activity_type: &resume.activity_type,
        child_call_id: &resume.child_call_id,
        child_workflow_run_id: &resume.child_workflow_run_id,
        workflow_sequence: resume.workflow_sequence,
        workflow_event_type: &resume.workflow_event_type,
        timer_id: &resume.timer_id,
        condition_wait_id: &resume.condition_wait_id,
        condition_key: &resume.condition_key,
        condition_definition_fingerprint: &resume.condition_definition_fingerprint,
        execution_mode: &resume.execution_mode,
    };
    let mut text = serde_json::to_string(&view).expect("a task is plain data");
    text.pop();
    text.push(',');
    text.push_str(&page_fields(&task.history, accept_encoding));
    text.push('}');
    text
}

/// Reads which lease the caller reports with. The published stream contract calls the owner `worker_id`.
pub(super) fn read_holder(call: &Call) -> TaskHolder {
    let owner = call
        .body
        .required_text_of(&["lease_owner", "worker_id"], NAME_MAX);
    TaskHolder {
        namespace: call.namespace.clone(),
        task_id: call.task_id(),
        owner: WorkerId::from(owner),
        attempt: call.body.required_count("workflow_task_attempt", 1),
        principal: Some(call.caller.principal.to_string()),
    }
}

/// Returns a function that renders the refusal of `operation` on a workflow task. A refusal names the ids that the caller sent and
/// states that nothing was recorded.
pub(super) fn rejected<'a>(
    operation: &'static str,
    holder: &'a TaskHolder,
) -> impl Fn(Error) -> Refusal + 'a {
    move |error| {
        let refusal = error::refusal(&error)
            .with("task_id", holder.task_id.as_str())
            .with("workflow_task_attempt", holder.attempt)
            .with("recorded", false);
        let is_contended = matches!(error, Error::Contended);
        match error {
            Error::Contended | Error::Unavailable => refusal
                .with("operation", operation)
                .with("outcome", if is_contended { "deferred" } else { "unknown" })
                .with("worker_id", holder.owner.as_str())
                .with("lease_owner", holder.owner.as_str())
                .with("task_queue", Value::Null)
                .with("backend", json!({"lock_pressure": is_contended})),
            _ => refusal.with("outcome", "rejected"),
        }
    }
}

pub(super) async fn history(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let size = page_size(&call);
    let token = body
        .text("next_history_page_token", NAME_MAX)
        .or_else(|| body.text("page_token", NAME_MAX));
    let after = body.count("after_sequence", 0);
    let encoding = body.text("accept_history_encoding", NAME_MAX);
    if token.is_none() && after.is_none() {
        body.refuse("next_history_page_token", "is required");
    }
    body.check()?;
    let after = match token {
        Some(token) => parse_page_token(&token)?,
        None => after.map_or(HistorySeq::ZERO, HistorySeq::new),
    };
    let page = call
        .host()
        .workflow_tasks()
        .history(&holder, after, size)
        .await
        .map_err(rejected("read_workflow_task_history", &holder))?;
    // Invariant: a page never names the token that requested it. A client that follows its own token never ends.
    debug_assert!(
        page.next_after
            .is_none_or(|next| page_token(next) != page_token(after))
    );
    let own = json!({"task_id": holder.task_id, "workflow_task_attempt": holder.attempt});
    let bytes = page.bytes();
    let render = move || with_page(&own, &page, encoding.as_deref());
    Ok(Reply::text(heavy::work(bytes, render).await))
}

pub(super) async fn heartbeat(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    call.body.check()?;
    let renewed = call
        .host()
        .workflow_tasks()
        .heartbeat(&holder)
        .await
        .map_err(rejected("heartbeat_workflow_task", &holder))?;
    Ok(Reply::ok(&json!({
        "task_id": holder.task_id,
        "workflow_task_attempt": holder.attempt,
        "lease_owner": holder.owner,
        "renewed": true,
        "lease_expires_at": renewed.lease_expires_at,
        "run_status": renewed.run_status,
        "task_status": "leased",
        "reason": null,
        "cancellation_request": renewed.cancellation.as_deref().map(cancellation_json),
    })))
}

pub(super) async fn complete(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let commands = match body.value("commands") {
        Some(commands) => parse_commands(&commands).map_err(|errors| body.refuse_all(errors)),
        None => Err(body.refuse("commands", "must contain at least one command")),
    };
    let cursors = read_cursors(body);
    let sticky = read_sticky(body);
    let completion = Completion {
        commands: body.finish(commands)?,
        cursors,
        sticky,
    };
    let answer = call
        .host()
        .workflow_tasks()
        .complete(&holder, completion)
        .await
        .map_err(rejected("complete_workflow_task", &holder))?;
    Ok(Reply::recorded(
        task_reply::render(&answer.outcome),
        answer.duplicate,
    ))
}

/// Reads how far the workflow has read its message streams.
fn read_cursors(body: &Body) -> Vec<StreamCursor> {
    let read = |entry: &Value| {
        Some(StreamCursor {
            stream_name: entry.get("stream_name")?.as_str()?.to_owned(),
            through_position: entry.get("through_position")?.as_u64()?,
        })
    };
    let field = "message_stream_cursors";
    let cursors = match body.value(field) {
        None => Some(Vec::new()),
        Some(Value::Array(entries)) => entries.iter().map(read).collect(),
        Some(_) => None,
    };
    cursors.unwrap_or_else(|| {
        body.refuse(field, "must be a list of {stream_name, through_position}");
        Vec::new()
    })
}

/// Reads a worker's offer to keep the run in memory. It only saves replay time, so one for another run is ignored.
fn read_sticky(body: &Body) -> Option<StickyClaim> {
    body.nested("sticky_cache", |claim| StickyClaim {
        worker_id: WorkerId::from(claim.required_text("worker_id", NAME_MAX)),
        run_id: RunId::from(claim.required_text("run_id", NAME_MAX)),
        ttl_seconds: claim
            .required_count("ttl_seconds", 1)
            .min(STICKY_TTL_SECONDS_MAX),
    })
}

/// Longest time that a worker is expected to keep a run in memory: an hour.
const STICKY_TTL_SECONDS_MAX: u64 = 3600;

/// The failure of a workflow task, as the worker reports it.
struct TaskFailure {
    message: String,
    failure_type: Option<String>,
    reason: Option<String>,
    stack_trace: Option<String>,
}

pub(super) async fn fail(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let failure = body.required_nested("failure", |failure| TaskFailure {
        message: failure.required_text("message", MESSAGE_MAX),
        failure_type: failure.text("type", NAME_MAX),
        reason: failure.text("reason", NAME_MAX),
        stack_trace: stack_trace(failure),
    });
    let failure = body.finish(failure)?;
    let answer = call
        .host()
        .workflow_tasks()
        .fail(
            &holder,
            &failure.message,
            failure.failure_type.as_deref(),
            failure.reason.as_deref(),
            failure.stack_trace.as_deref(),
        )
        .await
        .map_err(rejected("fail_workflow_task", &holder))?;
    Ok(Reply::recorded(
        task_reply::render(&answer.outcome),
        answer.duplicate,
    ))
}
