//! Local activities whose attempts are written down as they happen: `/workflow-tasks/{task}/local-activities/…`
//! (local-activities.md §12.2). Every success carries the token with which the worker reads history again.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use longhaul_host::TaskHolder;
use longhaul_host::engine::run::local_activity::attempt::{
    LocalBeat, LocalPulse, LocalReport, Settled,
};
use longhaul_host::engine::run::local_activity::checkpoint::Checkpointed;
use longhaul_host::engine::run::local_activity::prepare::{Cleanup, Prepared};
use longhaul_protocol::id::{CommandId, RunId};
use longhaul_protocol::payload::activity_result;
use longhaul_protocol::workflow_command::{
    FieldErrors, LocalActivityCall, LocalFailure, parse_checkpoint, parse_descriptor,
};
use longhaul_protocol::{Payload, Reason};
use serde_json::{Value, json};

use super::activity_tasks::read_progress;
use super::history::{page_token, with_page};
use super::workflow_tasks::{MESSAGE_MAX, NAME_MAX, read_holder, rejected};
use super::{AttemptPath, Id, envelope, pass};
use crate::App;
use crate::gate::Passed;
use crate::heavy;
use crate::request::body::Body;

pub(super) async fn checkpoint(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    answer_checkpoint(&app, &task_id, request, false).await
}

pub(super) async fn checkpoint_group(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    answer_checkpoint(&app, &task_id, request, true).await
}

async fn answer_checkpoint(
    app: &App,
    task_id: &str,
    request: Request<HttpBody>,
    is_group: bool,
) -> Response {
    let result = async {
        let passed = pass(app, request).await?;
        let holder = read_holder(&passed, task_id);
        let body = &passed.body;
        let checkpoint_id = body.required_text("checkpoint_id", NAME_MAX);
        let start_sequence = body.required_count("start_sequence", 1);
        let commands = body.value("commands").unwrap_or_default();
        let commands = parse_checkpoint(&commands, is_group).unwrap_or_else(|errors| {
            refuse_all(body, errors);
            Vec::new()
        });
        let after = body.count("history_after", 0);
        body.check()?;
        let checkpointed = app
            .host()
            .checkpoint_commands(&holder, &checkpoint_id, start_sequence, commands)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        Ok(with_events(app, &holder, after, checkpoint_json(&holder, &checkpointed)).await)
    };
    envelope::respond_text(app, StatusCode::OK, result.await)
}

/// Our own addition: a worker that says how much history it has gets what is new with the answer, and need not ask for it. Others
/// never say it.
async fn with_events(app: &App, holder: &TaskHolder, after: Option<u64>, answer: Value) -> String {
    if let Some(after) = after.filter(|_| answer["claim_released"] != true) {
        let size = app.options().history_page_size as usize;
        // Without them the worker asks as others do.
        if let Ok(page) = app.host().workflow_task_history(holder, after, size).await {
            let bytes = page.bytes();
            return heavy::work(bytes, move || with_page(&answer, &page, None)).await;
        }
    }
    answer.to_string()
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
        "history_refresh_page_token": page_token(0),
    })
}

pub(super) async fn prepare(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id);
        let body = &passed.body;
        let sequence = body.required_count("sequence", 1);
        let worker_attempt_id = body.required_text("worker_attempt_id", NAME_MAX);
        let call = read_descriptor(&passed);
        let after = body.count("history_after", 0);
        body.check()?;
        let call = call.expect("a body without mistakes has a descriptor");
        let prepared = app
            .host()
            .prepare_local_activity(&holder, sequence, &worker_attempt_id, &call)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        Ok(with_events(&app, &holder, after, prepared_json(&holder, &prepared)).await)
    };
    envelope::respond_text(&app, StatusCode::OK, result.await)
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
        "history_refresh_page_token": page_token(0),
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

pub(super) async fn recover(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id);
        let sequence = passed.body.required_count("sequence", 1);
        let call = read_descriptor(&passed);
        let after = passed.body.count("history_after", 0);
        passed.body.check()?;
        let call = call.expect("a body without mistakes has a descriptor");
        let (run_id, settled) = app
            .host()
            .recover_local_activity(&holder, sequence, &call)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        let mut answer = settled_json(&holder, &run_id, &settled);
        answer["recovered"] = json!(true);
        answer["callback_stop_state"] = json!("unknown");
        Ok(with_events(&app, &holder, after, answer).await)
    };
    envelope::respond_text(&app, StatusCode::OK, result.await)
}

pub(super) async fn control(
    State(app): State<App>,
    path: AttemptPath,
    request: Request<HttpBody>,
) -> Response {
    answer_beat(&app, &path, request, |body| {
        if body.flag("renew_lease") != Some(true) {
            body.refuse("renew_lease", "must be true");
        }
        LocalBeat::Control
    })
    .await
}

pub(super) async fn heartbeat(
    State(app): State<App>,
    path: AttemptPath,
    request: Request<HttpBody>,
) -> Response {
    answer_beat(&app, &path, request, |body| LocalBeat::Heartbeat {
        progress: read_progress(body),
    })
    .await
}

async fn answer_beat(
    app: &App,
    path: &AttemptPath,
    request: Request<HttpBody>,
    read: fn(&Body) -> LocalBeat,
) -> Response {
    let result = async {
        let passed = pass(app, request).await?;
        let holder = read_holder(&passed, &path.task_id);
        let beat = read(&passed.body);
        passed.body.check()?;
        let pulse = app
            .host()
            .beat_local_activity(&holder, &path.attempt_id, &beat)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        Ok(pulse_json(&holder, &pulse))
    };
    envelope::respond(app, StatusCode::OK, result.await)
}

/// A published client refuses a heartbeat that says it renewed, and a control that does not; both renew.
fn pulse_json(holder: &TaskHolder, pulse: &LocalPulse) -> Value {
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
        "history_refresh_page_token": page_token(0),
    });
    if let Some(cancellation) = &pulse.stop {
        answer["fenced"] = json!(true);
        answer["cancellation_request"] = cancellation.context.clone();
        answer["cancellation_history_event_id"] = json!(cancellation.event_id);
    }
    answer
}

pub(super) async fn outcome(
    State(app): State<App>,
    path: AttemptPath,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &path.task_id);
        let report = read_report(&passed.body);
        let after = passed.body.count("history_after", 0);
        passed.body.check()?;
        let (run_id, settled) = app
            .host()
            .settle_local_activity(&holder, &path.attempt_id, &report)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        let mut answer = settled_json(&holder, &run_id, &settled);
        answer["recorded"] = json!(true);
        Ok(with_events(&app, &holder, after, answer).await)
    };
    envelope::respond_text(&app, StatusCode::OK, result.await)
}

fn settled_json(holder: &TaskHolder, run_id: &RunId, settled: &Settled) -> Value {
    let created: Vec<_> = settled.retry_task_id.iter().collect();
    json!({
        "duplicate": settled.duplicate,
        "reason": null,
        "workflow_run_id": run_id,
        "workflow_task_id": holder.task_id,
        "workflow_task_attempt": holder.attempt,
        "activity_execution_id": settled.execution_id,
        "activity_attempt_id": settled.attempt_id,
        "worker_attempt_id": settled.worker_attempt_id,
        "event_id": settled.event_id,
        "event_type": settled.event_type,
        "recorded_at": settled.recorded_at,
        "claim_released": settled.retry_task_id.is_some(),
        "created_task_ids": created,
        "history_refresh_page_token": page_token(0),
    })
}

pub(super) async fn acknowledge_cancellation(
    State(app): State<App>,
    path: AttemptPath,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &path.task_id);
        let request_id = CommandId::from(passed.body.required_text("request_id", NAME_MAX));
        passed.body.check()?;
        let (event_id, duplicate) = app
            .host()
            .acknowledge_local_stop(&holder, &path.attempt_id, &request_id)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        Ok(json!({
            "acknowledged": true,
            "duplicate": duplicate,
            "reason": null,
            "workflow_task_id": holder.task_id,
            "workflow_task_attempt": holder.attempt,
            "activity_attempt_id": path.attempt_id,
            "request_id": request_id,
            "history_event_id": event_id,
            "history_refresh_page_token": page_token(0),
        }))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

fn read_descriptor(passed: &Passed) -> Option<LocalActivityCall> {
    let body = &passed.body;
    let descriptor = body.value("descriptor").unwrap_or_default();
    match parse_descriptor(&descriptor, "descriptor") {
        Ok(call) => Some(call),
        Err(errors) => {
            refuse_all(body, errors);
            None
        }
    }
}

fn refuse_all(body: &Body, errors: FieldErrors) {
    for (field, messages) in errors {
        for message in messages {
            body.refuse(&field, &message);
        }
    }
}

fn read_report(body: &Body) -> LocalReport {
    let never_used = LocalReport::Completed(Payload::null());
    let Some(report) = body.nested("report") else {
        body.refuse("report", "is required");
        return never_used;
    };
    let read = match report.text("outcome", NAME_MAX).as_deref() {
        Some("completed") => {
            if !report.has("result") {
                report.refuse("result", "is required for a success");
            }
            let result = report.payload(activity_result(report.raw("result"), "result"));
            LocalReport::Completed(result.unwrap_or_else(Payload::null))
        }
        Some("failed") => LocalReport::Failed(LocalFailure {
            message: report.required_text("message", MESSAGE_MAX),
            exception_type: report.text("exception_type", NAME_MAX),
            non_retryable: report.flag("non_retryable").unwrap_or(false),
        }),
        _ => {
            report.refuse("outcome", "must be completed or failed");
            never_used
        }
    };
    body.absorb("report", &report);
    read
}
