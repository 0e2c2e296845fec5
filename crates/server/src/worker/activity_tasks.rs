//! Activity tasks: poll, complete, fail, heartbeat, status (worker-protocol §8).

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use longhaul_host::engine::Rejection;
use longhaul_host::engine::rejection::activity_reason;
use longhaul_host::engine::run::activity::claim::ActivityClaim;
use longhaul_host::engine::run::activity::heartbeat::Pulse;
use longhaul_host::engine::run::activity::report::Failure;
use longhaul_host::engine::run::activity::schedule::Deadlines;
use longhaul_host::{ActivityReport, Error};
use longhaul_protocol::Reason;
use longhaul_protocol::history::PAYLOAD_CODEC;
use longhaul_protocol::id::{ActivityAttemptId, CommandId, TaskId, WorkerId};
use longhaul_protocol::payload::{activity_result, failure_details};
use serde_json::{Map, Value, json};

use super::polls::{self, read_poll};
use super::workflow_tasks::with_duplicate;
use super::{Id, envelope, pass, stack_trace};
use crate::App;
use crate::error;
use crate::gate::{Passed, Refusal};
use crate::request::body::Body;
use crate::views::worker_session::affinity;

/// Longest ids and types.
const NAME_MAX: usize = 255;

/// Longest failure text. Both SDKs trim theirs to this.
const MESSAGE_MAX: usize = 1024 * 1024;

/// Largest heartbeat details, as JSON text.
const DETAILS_MAX: usize = 64 * 1024;

/// Longest progress message and unit.
const PROGRESS_MESSAGE_MAX: usize = 280;
const PROGRESS_UNIT_MAX: usize = 64;

pub(super) async fn poll(State(app): State<App>, request: Request<HttpBody>) -> Response {
    match try_poll(&app, request).await {
        Ok(response) => response,
        Err(refusal) => envelope::refused(&app, refusal),
    }
}

async fn try_poll(app: &App, request: Request<HttpBody>) -> Result<Response, Refusal> {
    let Passed {
        namespace, body, ..
    } = pass(app, request).await?;
    let poll = read_poll(&body, namespace);
    body.check()?;
    let polled = app.host().poll_activity_task(&poll).await;
    polls::answer(app, polled, &poll, "activity_task", |claim| {
        let task = task_json(&claim).to_string();
        let leased_at = claim.attempt.started_at;
        polls::leased(app, &task, leased_at, claim.lease_expires_at)
    })
}

fn task_json(claim: &ActivityClaim) -> Value {
    let ActivityClaim {
        spec,
        activity,
        attempt,
        ..
    } = claim;
    let timeout = |pick: fn(&longhaul_host::engine::run::state::RetryPolicy) -> Option<u64>| {
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
    // The published schema knows no null here.
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

fn read_report(passed: &Passed, task_id: &str) -> ActivityReport {
    ActivityReport {
        namespace: passed.namespace.clone(),
        task_id: TaskId::from(task_id),
        attempt_id: ActivityAttemptId::from(
            passed
                .body
                .required_text_of(&["activity_attempt_id", "attempt_id"], NAME_MAX),
        ),
        owner: WorkerId::from(
            passed
                .body
                .required_text_of(&["lease_owner", "worker_id"], NAME_MAX),
        ),
        principal: Some(passed.caller.principal.to_string()),
    }
}

/// A refused report (§8.5). Who closed the run matters to the worker, so the reason says it.
fn rejected(error: &Error, report: &ActivityReport) -> Refusal {
    let mut refusal = error::refusal(error)
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
            .with("operation", "complete_activity_task")
            .with("outcome", "unknown")
            .with("worker_id", report.owner.as_str())
            .with("lease_owner", report.owner.as_str())
            .with("task_queue", Value::Null),
        _ => refusal.with("outcome", "ignored"),
    }
}

pub(super) async fn complete(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let report = read_report(&passed, &task_id);
        let result = passed
            .body
            .payload(activity_result(passed.body.raw("result"), "result"));
        passed.body.check()?;
        let result = result.ok_or_else(|| {
            Refusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                Reason::ValidationFailed,
                "result",
            )
        })?;
        let answer = app
            .host()
            .complete_activity_task(&report, result)
            .await
            .map_err(|error| rejected(&error, &report))?;
        Ok(with_duplicate(answer.body, answer.duplicate))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

pub(super) async fn fail(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let report = read_report(&passed, &task_id);
        let failure = match passed.body.nested("failure") {
            Some(nested) => {
                let failure = read_failure(&nested);
                passed.body.absorb("failure", &nested);
                failure
            }
            None => {
                if passed.body.raw("failure").is_none() {
                    passed.body.refuse("failure", "is required");
                }
                Failure::default()
            }
        };
        passed.body.check()?;
        let answer = app
            .host()
            .fail_activity_task(&report, failure)
            .await
            .map_err(|error| rejected(&error, &report))?;
        Ok(with_duplicate(answer.body, answer.duplicate))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

/// The failure as reported; an external executor says `retryable` where an SDK says `non_retryable`.
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
            Some(Some(payload)) => details = Some(payload),
            // Plain JSON is for people: it stands with the diagnostics, without a codec.
            Some(None) => diagnostics = merged(diagnostics, "details", body.value("details")),
            None => {}
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

pub(super) async fn heartbeat(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let report = read_report(&passed, &task_id);
        let progress = read_progress(&passed.body);
        passed.body.check()?;
        let pulse = app
            .host()
            .heartbeat_activity_task(&report, progress)
            .await
            .map_err(|error| rejected(&error, &report))?;
        Ok(pulse_json(&report, &pulse))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

pub(super) async fn status(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let report = read_report(&passed, &task_id);
        passed.body.check()?;
        let pulse = app
            .host()
            .activity_task_status(&report)
            .await
            .map_err(|error| rejected(&error, &report))?;
        let mut answer = pulse_json(&report, &pulse);
        answer["deadlines"] = deadlines_json(&pulse.deadlines);
        answer["cancellation_acknowledgement"] = json!(pulse.stop_order.as_ref().map(|order| {
            json!({
                "callback_state": if order.stopped { "stopped" } else { "unknown" },
                "request_id": order.request_id,
                "root_request_id": order.root_request_id,
                "cleanup_deadline_at": order.cleanup_deadline_at,
                "cancellation_history_event_id": order.event_id,
            })
        }));
        Ok(answer)
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

/// The worker's callback stopped, as it was asked to (§8.8).
pub(super) async fn acknowledge_cancellation(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let report = read_report(&passed, &task_id);
        let request_id = CommandId::from(passed.body.required_text("request_id", NAME_MAX));
        passed.body.check()?;
        let acknowledged = app
            .host()
            .acknowledge_activity_stop(&report, &request_id)
            .await
            .map_err(|error| rejected(&error, &report))?;
        Ok(json!({
            "task_id": report.task_id,
            "activity_attempt_id": report.attempt_id,
            "lease_owner": report.owner,
            "request_id": request_id,
            "acknowledged": true,
            "duplicate": acknowledged.duplicate,
            "reason": null,
            "heartbeat_recorded": false,
            "history_event_id": acknowledged.event_id,
        }))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

/// `details` of any shape, the four progress fields, or the stream contract's `progress`, which is either of the two (§8.6).
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

fn pulse_json(report: &ActivityReport, pulse: &Pulse) -> Value {
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
