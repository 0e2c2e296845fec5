//! Local activities whose attempts are recorded as they happen: `/workflow-tasks/{task}/local-activities/…`. Every success
//! contains the token with which the worker reads history again.

use longhaul_host::api::TaskHolder;
use longhaul_host::api::{
    Checkpointed, Cleanup, EndedAttempt, LocalHeartbeatReply, LocalHeartbeatRequest, LocalReport,
    Prepared,
};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{CommandId, RunId};
use longhaul_protocol::payload::activity_result;
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_protocol::workflow_command::{
    CheckpointKind, LocalActivityCall, LocalFailure, parse_checkpoint, parse_descriptor,
};
use serde_json::{Value, json};

use super::activity_tasks::read_progress;
use super::history::with_page;
use super::workflow_tasks::{read_holder, rejected};
use super::{Call, MESSAGE_MAX, NAME_MAX, Reply};
use crate::App;
use crate::gate::Refusal;
use crate::heavy;
use crate::request::body::{Body, Mistake};
use crate::views::page_token::page_token;

pub(super) async fn checkpoint(call: Call) -> Result<Reply, Refusal> {
    record_checkpoint(call, CheckpointKind::Prefix).await
}

pub(super) async fn checkpoint_group(call: Call) -> Result<Reply, Refusal> {
    record_checkpoint(call, CheckpointKind::Group).await
}

async fn record_checkpoint(call: Call, kind: CheckpointKind) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let checkpoint_id = body.required_text("checkpoint_id", NAME_MAX);
    let start_sequence = CommandSeq::new(body.required_count("start_sequence", 1));
    let commands = body.value("commands").unwrap_or_default();
    let commands = parse_checkpoint(&commands, kind).map_err(|errors| body.refuse_all(errors));
    let after = body.count("history_after", 0);
    let commands = body.finish(commands)?;
    let checkpointed = call
        .host()
        .local_activities()
        .checkpoint(&holder, &checkpoint_id, start_sequence, commands)
        .await
        .map_err(rejected("checkpoint_local_activities", &holder))?;
    let shown = checkpoint_json(&holder, &checkpointed);
    Ok(with_events(&call.app, &holder, after, shown).await)
}

/// Adds the events after `after` to the reply, so that the worker does not have to read them with another request. This is an
/// extension: a worker that does not send `history_after` gets no events.
async fn with_events(app: &App, holder: &TaskHolder, after: Option<u64>, body: Value) -> Reply {
    if let Some(after) = after.filter(|_| body["claim_released"] != true) {
        let size = app.options().history_page_size as usize;
        // If the events cannot be read now, the worker reads them with its next request.
        if let Ok(page) = app
            .host()
            .workflow_tasks()
            .history(holder, after.into(), size)
            .await
        {
            let bytes = page.bytes();
            return Reply::text(heavy::work(bytes, move || with_page(&body, &page, None)).await);
        }
    }
    Reply::ok(&body)
}

fn checkpoint_json(holder: &TaskHolder, checkpointed: &Checkpointed) -> Value {
    let checkpoint = &checkpointed.checkpoint;
    let local_activities: Vec<Value> = checkpoint
        .local_activities
        .iter()
        .map(|(sequence, id)| json!({"sequence": sequence, "activity_execution_id": id}))
        .collect();
    json!({
        "checkpointed": true,
        "duplicate": checkpointed.duplicate,
        "reason": null,
        "checkpoint_id": checkpoint.id,
        "task_id": holder.task_id,
        "workflow_run_id": checkpointed.run_id,
        "workflow_task_attempt": holder.attempt,
        "lease_owner": holder.owner,
        "start_sequence": checkpoint.start_sequence,
        "next_sequence": checkpoint.next_sequence,
        "local_activities": local_activities,
        "history_refresh_page_token": page_token(HistorySeq::ZERO),
    })
}

pub(super) async fn prepare(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let sequence = CommandSeq::new(body.required_count("sequence", 1));
    let worker_attempt_id = body.required_text("worker_attempt_id", NAME_MAX);
    let descriptor = read_descriptor(body);
    let after = body.count("history_after", 0);
    let descriptor = body.finish(descriptor)?;
    let prepared = call
        .host()
        .local_activities()
        .prepare(&holder, sequence, &worker_attempt_id, &descriptor)
        .await
        .map_err(rejected("prepare_local_activity", &holder))?;
    Ok(with_events(&call.app, &holder, after, prepared_json(&holder, &prepared)).await)
}

fn prepared_json(holder: &TaskHolder, prepared: &Prepared) -> Value {
    let attempt = &prepared.attempt;
    json!({
        "prepared": true,
        "duplicate": prepared.duplicate,
        "reason": null,
        "workflow_task_id": holder.task_id,
        "workflow_task_attempt": holder.attempt,
        "lease_owner": holder.owner,
        "worker_attempt_id": attempt.worker_attempt_id,
        "activity_execution_id": prepared.execution_id,
        "activity_attempt_id": attempt.id,
        "attempt_number": attempt.number,
        "server_time": prepared.now,
        "lease_expires_at": attempt.lease_expires_at,
        "start_to_close_deadline_at": attempt.close_deadline_at,
        "schedule_to_close_deadline_at": prepared.schedule_to_close_deadline_at,
        "heartbeat_deadline_at": attempt.heartbeat_deadline_at,
        "cancellation_cleanup": cleanup_json(prepared.cleanup.as_ref()),
        "history_refresh_page_token": page_token(HistorySeq::ZERO),
    })
}

fn cleanup_json(cleanup: Option<&Cleanup>) -> Value {
    cleanup.map_or(Value::Null, |cleanup| {
        json!({
            "request_id": cleanup.request_id,
            "root_request_id": cleanup.root_request_id,
            "delivery_history_event_id": cleanup.delivery_history_event_id,
            "cleanup_deadline_at": cleanup.cleanup_deadline_at,
        })
    })
}

pub(super) async fn recover(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let sequence = CommandSeq::new(body.required_count("sequence", 1));
    let descriptor = read_descriptor(body);
    let after = body.count("history_after", 0);
    let descriptor = body.finish(descriptor)?;
    let (run_id, ended) = call
        .host()
        .local_activities()
        .recover(&holder, sequence, &descriptor)
        .await
        .map_err(rejected("recover_local_activity", &holder))?;
    let mut shown = ended_json(&holder, &run_id, &ended);
    shown["recovered"] = json!(true);
    shown["callback_stop_state"] = json!("unknown");
    Ok(with_events(&call.app, &holder, after, shown).await)
}

pub(super) async fn control(call: Call) -> Result<Reply, Refusal> {
    if call.body.flag("renew_lease") != Some(true) {
        call.body.refuse("renew_lease", "must be true");
    }
    renew(
        call,
        "control_local_activity",
        LocalHeartbeatRequest::Control,
    )
    .await
}

pub(super) async fn heartbeat(call: Call) -> Result<Reply, Refusal> {
    let progress = read_progress(&call.body);
    let beat = LocalHeartbeatRequest::Heartbeat { progress };
    renew(call, "heartbeat_local_activity", beat).await
}

async fn renew(
    call: Call,
    operation: &'static str,
    beat: LocalHeartbeatRequest,
) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    call.body.check()?;
    let pulse = call
        .host()
        .local_activities()
        .heartbeat(&holder, &call.attempt_id(), &beat)
        .await
        .map_err(rejected(operation, &holder))?;
    Ok(Reply::ok(&pulse_json(&holder, &pulse)))
}

/// Renders the reply to a control or a heartbeat. Both renew the lease, but a published client expects `renewed` to be true for a
/// control and false for a heartbeat.
fn pulse_json(holder: &TaskHolder, pulse: &LocalHeartbeatReply) -> Value {
    let attempt = &pulse.attempt;
    let active = pulse.stop.is_none();
    let recorded = pulse.heartbeat_event_id.is_some();
    let lease = Some(attempt.lease_expires_at).filter(|_| active);
    let mut answer = json!({
        "active": active,
        "renewed": active && !recorded,
        "stop_required": !active,
        "reason": (!active).then_some(Reason::CancellationRequested.as_str()),
        "workflow_task_id": holder.task_id,
        "workflow_task_attempt": holder.attempt,
        "lease_owner": holder.owner,
        "activity_execution_id": pulse.execution_id,
        "activity_attempt_id": attempt.id,
        "lease_expires_at": lease,
        "workflow_lease_expires_at": lease,
        "start_to_close_deadline_at": attempt.close_deadline_at,
        "schedule_to_close_deadline_at": pulse.schedule_to_close_deadline_at,
        "heartbeat_deadline_at": attempt.heartbeat_deadline_at,
        "heartbeat_recorded": recorded,
        "heartbeat_history_event_id": pulse.heartbeat_event_id,
        "run_status": pulse.run_status,
        "task_status": "leased",
        "server_time": pulse.now,
        "cancellation_cleanup": cleanup_json(pulse.cleanup.as_ref()),
        "history_refresh_page_token": page_token(HistorySeq::ZERO),
    });
    if let Some(cancellation) = &pulse.stop {
        answer["fenced"] = json!(true);
        answer["cancellation_request"] = cancellation.context.clone();
        answer["cancellation_history_event_id"] = json!(cancellation.event_id);
    }
    answer
}

pub(super) async fn outcome(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let report = read_report(&call.body);
    let after = call.body.count("history_after", 0);
    let report = call.body.finish(report)?;
    let (run_id, ended) = call
        .host()
        .local_activities()
        .end_attempt(&holder, &call.attempt_id(), &report)
        .await
        .map_err(rejected("report_local_activity_outcome", &holder))?;
    let mut shown = ended_json(&holder, &run_id, &ended);
    shown["recorded"] = json!(true);
    Ok(with_events(&call.app, &holder, after, shown).await)
}

fn ended_json(holder: &TaskHolder, run_id: &RunId, ended: &EndedAttempt) -> Value {
    let created: Vec<_> = ended.retry_task_id.iter().collect();
    json!({
        "duplicate": ended.duplicate,
        "reason": null,
        "workflow_run_id": run_id,
        "workflow_task_id": holder.task_id,
        "workflow_task_attempt": holder.attempt,
        "activity_execution_id": ended.execution_id,
        "activity_attempt_id": ended.attempt_id,
        "worker_attempt_id": ended.worker_attempt_id,
        "event_id": ended.event_id,
        "event_type": ended.event_type,
        "recorded_at": ended.recorded_at,
        "claim_released": ended.retry_task_id.is_some(),
        "created_task_ids": created,
        "history_refresh_page_token": page_token(HistorySeq::ZERO),
    })
}

pub(super) async fn acknowledge_cancellation(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let attempt_id = call.attempt_id();
    let request_id = CommandId::from(call.body.required_text("request_id", NAME_MAX));
    call.body.check()?;
    let acknowledged = call
        .host()
        .local_activities()
        .acknowledge_stop(&holder, &attempt_id, &request_id)
        .await
        .map_err(rejected("acknowledge_local_activity_cancellation", &holder))?;
    Ok(Reply::ok(&json!({
        "acknowledged": true,
        "duplicate": acknowledged.duplicate,
        "reason": null,
        "workflow_task_id": holder.task_id,
        "workflow_task_attempt": holder.attempt,
        "activity_attempt_id": attempt_id,
        "request_id": request_id,
        "history_event_id": acknowledged.event_id,
        "history_refresh_page_token": page_token(HistorySeq::ZERO),
    })))
}

fn read_descriptor(body: &Body) -> Result<LocalActivityCall, Mistake> {
    let descriptor = body.value("descriptor").unwrap_or_default();
    parse_descriptor(&descriptor, "descriptor").map_err(|errors| body.refuse_all(errors))
}

fn read_report(body: &Body) -> Result<LocalReport, Mistake> {
    let read = |report: &Body| match report.text("outcome", NAME_MAX).as_deref() {
        Some("completed") => {
            if !report.has("result") {
                report.refuse("result", "is required for a success");
            }
            let result = report.payload(activity_result(report.raw("result"), "result"));
            result.map(LocalReport::Completed)
        }
        Some("failed") => Ok(LocalReport::Failed(LocalFailure {
            message: report.required_text("message", MESSAGE_MAX),
            exception_type: report.text("exception_type", NAME_MAX),
            non_retryable: report.flag("non_retryable").unwrap_or(false),
        })),
        _ => Err(report.refuse("outcome", "must be completed or failed")),
    };
    body.nested("report", read)
        .unwrap_or_else(|| Err(body.refuse("report", "is required")))
}
