//! Activity tasks: poll, complete, fail, heartbeat, status.

use longhaul_host::Error;
use longhaul_host::api::AttemptIdentity;
use longhaul_host::api::{
    ActivityClaim, Deadlines, Failure, HeartbeatReply, Rejection, activity_reason,
};
use longhaul_protocol::Reason;
use longhaul_protocol::history::PAYLOAD_CODEC;
use longhaul_protocol::id::{ActivityAttemptId, CommandId, WorkerId};
use longhaul_protocol::payload::{activity_result, failure_details};
use serde_json::{Map, Value, json};

use super::polls::{self, Leased, read_poll};
use super::task_reply;
use super::{Call, MESSAGE_MAX, NAME_MAX, Reply, stack_trace};
use crate::error;
use crate::gate::Refusal;
use crate::request::body::Body;
use crate::views::worker_session::affinity;

/// Largest heartbeat details, as JSON text.
const DETAILS_MAX: usize = 64 * 1024;

/// Longest progress message and unit.
const PROGRESS_MESSAGE_MAX: usize = 280;
const PROGRESS_UNIT_MAX: usize = 64;

pub(super) async fn poll(call: Call) -> Result<Reply, Refusal> {
    let poll = read_poll(&call);
    call.body.check()?;
    let polled = call.host().activity_tasks().poll(&poll).await;
    let render = |claim: ActivityClaim| async move {
        Leased {
            task: task_json(&claim).to_string(),
            leased_at: claim.attempt.started_at,
            lease_expires_at: claim.lease_expires_at,
        }
    };
    polls::reply(&call.app, polled, &poll, "activity_task", render).await
}

fn task_json(claim: &ActivityClaim) -> Value {
    let ActivityClaim {
        spec,
        activity,
        attempt,
        ..
    } = claim;
    let timeout = |pick: fn(&longhaul_host::api::RetryPolicy) -> Option<u64>| {
        activity.retry.as_ref().and_then(pick)
    };
    let mut task = json!({
        "task_id": activity.task_id,
        "task_type": "activity",
        "workflow_id": spec.workflow_id,
        "run_id": spec.run_id,
        "namespace": spec.namespace,
        "activity_execution_id": activity.execution_id,
        "activity_attempt_id": attempt.id,
        "attempt_id": attempt.id,
        "attempt_number": attempt.number,
        "activity_type": activity.activity_type,
        "payload_codec": PAYLOAD_CODEC,
        "arguments": claim.arguments,
        "retry_policy": activity.retry,
        "task_queue": activity.queue,
        "connection": activity.worker_session.as_ref().and_then(|options| options.connection.as_deref()),
        "lease_owner": attempt.owner,
        "lease_expires_at": claim.lease_expires_at,
        "deadlines": deadlines_json(&activity.deadlines(spec)),
        "start_to_close_timeout": timeout(|retry| retry.start_to_close_timeout),
        "schedule_to_start_timeout": timeout(|retry| retry.schedule_to_start_timeout),
        "schedule_to_close_timeout": timeout(|retry| retry.schedule_to_close_timeout),
        "heartbeat_timeout": timeout(|retry| retry.heartbeat_timeout),
        "idempotency_key": activity.execution_id,
        "cancel_requested": false,
    });
    // The published schema does not allow null here.
    if let Some(options) = &activity.worker_session {
        let session = claim.session.as_deref();
        task["worker_session"] = affinity(options, &activity.queue, &spec.namespace, session);
    }
    task
}

fn deadlines_json(deadlines: &Deadlines) -> Value {
    json!({
        "schedule_to_start": deadlines.schedule_to_start,
        "start_to_close": deadlines.start_to_close,
        "schedule_to_close": deadlines.schedule_to_close,
        "heartbeat": deadlines.heartbeat,
        "run": deadlines.run,
        "execution": deadlines.execution,
    })
}

/// Reads which attempt the caller reports about.
fn read_report(call: &Call) -> AttemptIdentity {
    let text = |names: &[&str]| call.body.required_text_of(names, NAME_MAX);
    AttemptIdentity {
        namespace: call.namespace.clone(),
        task_id: call.task_id(),
        attempt_id: ActivityAttemptId::from(text(&["activity_attempt_id", "attempt_id"])),
        owner: WorkerId::from(text(&["lease_owner", "worker_id"])),
        principal: Some(call.caller.principal.to_string()),
    }
}

/// Returns a function that renders the refusal of `operation` on an activity task. The worker acts differently on a run that was
/// cancelled, terminated or completed, so the reason of a closed run names how it closed.
fn rejected<'a>(
    operation: &'static str,
    report: &'a AttemptIdentity,
) -> impl Fn(Error) -> Refusal + 'a {
    move |error| {
        let mut refusal = error::refusal(&error)
            .with("task_id", report.task_id.as_str())
            .with("activity_attempt_id", report.attempt_id.as_str())
            .with("recorded", false);
        match error {
            Error::Rejected(Rejection::RunClosed(closed)) => {
                refusal.reason = activity_reason(closed.closed.reason);
                refusal
                    .with("outcome", "ignored")
                    .with("activity_status", "cancelled")
                    .with("attempt_status", "cancelled")
            }
            Error::Contended | Error::Unavailable => refusal
                .with("operation", operation)
                .with("outcome", "unknown")
                .with("worker_id", report.owner.as_str())
                .with("lease_owner", report.owner.as_str())
                .with("task_queue", Value::Null),
            _ => refusal.with("outcome", "ignored"),
        }
    }
}

pub(super) async fn complete(call: Call) -> Result<Reply, Refusal> {
    let report = read_report(&call);
    let body = &call.body;
    let result = body.payload(activity_result(body.raw("result"), "result"));
    let result = body.finish(result)?;
    let answer = call
        .host()
        .activity_tasks()
        .complete(&report, result)
        .await
        .map_err(rejected("complete_activity_task", &report))?;
    Ok(Reply::recorded(
        task_reply::render(&answer.outcome),
        answer.duplicate,
    ))
}

pub(super) async fn fail(call: Call) -> Result<Reply, Refusal> {
    let report = read_report(&call);
    let failure = call.body.required_nested("failure", read_failure);
    let failure = call.body.finish(failure)?;
    let answer = call
        .host()
        .activity_tasks()
        .fail(&report, failure)
        .await
        .map_err(rejected("fail_activity_task", &report))?;
    Ok(Reply::recorded(
        task_reply::render(&answer.outcome),
        answer.duplicate,
    ))
}

/// Reads the reported failure. External executors send `retryable`, SDKs send `non_retryable`.
fn read_failure(body: &Body) -> Failure {
    let code = body.value("code");
    if code
        .as_ref()
        .is_some_and(|code| !code.is_i64() && !code.is_string())
    {
        body.refuse("code", "must be an integer or a string");
    }
    let mut diagnostics = body.value("diagnostics");
    let mut details = None;
    if let Some(raw) = body.raw("details") {
        match body.payload(failure_details(raw, "details")) {
            Ok(Some(payload)) => details = Some(payload),
            // Plain JSON has no codec and is meant for people, so it is kept with the diagnostics.
            Ok(None) => diagnostics = merged(diagnostics, "details", body.value("details")),
            Err(_) => {}
        }
    }
    let non_retryable =
        body.flag("non_retryable").unwrap_or(false) || body.flag("retryable") == Some(false);
    Failure {
        message: body.required_text("message", MESSAGE_MAX),
        failure_type: body.text("type", NAME_MAX),
        class: body.text("class", NAME_MAX),
        code,
        non_retryable,
        details,
        diagnostics,
        runtime_diagnostics: body.value("runtime_diagnostics"),
        stack_trace: stack_trace(body),
    }
}

fn merged(diagnostics: Option<Value>, key: &str, value: Option<Value>) -> Option<Value> {
    let mut map = match diagnostics {
        Some(Value::Object(map)) => map,
        Some(other) => Map::from_iter([("reported".to_owned(), other)]),
        None => Map::new(),
    };
    map.insert(key.to_owned(), value.unwrap_or_default());
    Some(Value::Object(map))
}

pub(super) async fn heartbeat(call: Call) -> Result<Reply, Refusal> {
    let report = read_report(&call);
    let progress = read_progress(&call.body);
    call.body.check()?;
    let pulse = call
        .host()
        .activity_tasks()
        .heartbeat(&report, progress)
        .await
        .map_err(rejected("heartbeat_activity_task", &report))?;
    Ok(Reply::ok(&pulse_json(&report, &pulse)))
}

pub(super) async fn status(call: Call) -> Result<Reply, Refusal> {
    let report = read_report(&call);
    call.body.check()?;
    let pulse = call
        .host()
        .activity_tasks()
        .status(&report)
        .await
        .map_err(rejected("read_activity_task_status", &report))?;
    let mut body = pulse_json(&report, &pulse);
    body["deadlines"] = deadlines_json(&pulse.deadlines);
    body["cancellation_acknowledgement"] = json!(pulse.stop_order.as_ref().map(|order| {
        json!({
            "callback_state": if order.stopped { "stopped" } else { "unknown" },
            "request_id": order.request_id,
            "root_request_id": order.root_request_id,
            "cleanup_deadline_at": order.cleanup_deadline_at,
            "cancellation_history_event_id": order.event_id,
        })
    }));
    Ok(Reply::ok(&body))
}

/// Records that the worker's callback stopped, as requested.
pub(super) async fn acknowledge_cancellation(call: Call) -> Result<Reply, Refusal> {
    let report = read_report(&call);
    let request_id = CommandId::from(call.body.required_text("request_id", NAME_MAX));
    call.body.check()?;
    let acknowledged = call
        .host()
        .activity_tasks()
        .acknowledge_stop(&report, &request_id)
        .await
        .map_err(rejected("acknowledge_activity_cancellation", &report))?;
    Ok(Reply::ok(&json!({
        "task_id": report.task_id,
        "activity_attempt_id": report.attempt_id,
        "lease_owner": report.owner,
        "request_id": request_id,
        "acknowledged": true,
        "duplicate": acknowledged.duplicate,
        "reason": null,
        "heartbeat_recorded": false,
        "history_event_id": acknowledged.event_id,
    })))
}

/// Reads the progress of a heartbeat: `details` of any shape, or the four progress fields. The stream contract sends either of them
/// under `progress`.
pub(super) fn read_progress(body: &Body) -> Option<Value> {
    let mut progress = Map::new();
    match body.value("progress") {
        Some(Value::Object(map)) if map.keys().all(|key| PROGRESS_KEYS.contains(&key.as_str())) => {
            progress = map
        }
        Some(other) => {
            progress.insert("details".to_owned(), other);
        }
        None => {}
    }
    for key in PROGRESS_KEYS {
        if let Some(value) = body.value(key) {
            progress.insert(key.to_owned(), value);
        }
    }
    for (key, max) in [
        ("message", PROGRESS_MESSAGE_MAX),
        ("unit", PROGRESS_UNIT_MAX),
    ] {
        if progress
            .get(key)
            .is_some_and(|value| value.as_str().is_none_or(|text| text.chars().count() > max))
        {
            body.refuse(
                key,
                &format!("must be a string of at most {max} characters"),
            );
        }
    }
    for key in ["current", "total"] {
        if progress
            .get(key)
            .is_some_and(|value| !value.as_f64().is_some_and(|number| number >= 0.0))
        {
            body.refuse(key, "must be a number of at least 0");
        }
    }
    let size = progress
        .get("details")
        .map_or(0, |details| details.to_string().len());
    if size > DETAILS_MAX {
        body.refuse(
            "details",
            &format!("must not be larger than {DETAILS_MAX} bytes of JSON"),
        );
    }
    (!progress.is_empty()).then_some(Value::Object(progress))
}

const PROGRESS_KEYS: [&str; 5] = ["message", "current", "total", "unit", "details"];

fn pulse_json(report: &AttemptIdentity, pulse: &HeartbeatReply) -> Value {
    json!({
        "task_id": report.task_id,
        "activity_attempt_id": report.attempt_id,
        "lease_owner": report.owner,
        "can_continue": pulse.can_continue,
        "cancel_requested": pulse.cancel_requested,
        "heartbeat_recorded": pulse.recorded,
        "reason": pulse.reason.map(Reason::as_str),
        "lease_expires_at": pulse.lease_expires_at,
        "last_heartbeat_at": pulse.last_heartbeat_at,
        "run_closed_reason": pulse.closed.as_ref().map(|closed| closed.reason.as_str()),
        "run_closed_at": pulse.closed.as_ref().map(|closed| closed.at),
        "worker_session": pulse.session.as_ref().map(|pulse| {
            affinity(&pulse.options, &pulse.queue, &report.namespace, pulse.session.as_ref())
        }),
        "task_status": pulse.task_status.as_str(),
        "attempt_status": pulse.attempt_status,
        "activity_status": pulse.activity_status,
        "run_status": pulse.run_status.as_str(),
    })
}
