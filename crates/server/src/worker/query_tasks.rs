//! Query tasks: poll, complete, fail, status (worker-protocol §9). They are never stored; a worker answers from the history that
//! comes with the task.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode, Uri};
use longhaul_host::{
    Error, LeasedQuestion, Polled, QueryResult, QuestionFailure, QuestionHolder, QuestionKind,
    question_reason,
};
use longhaul_protocol::Timestamp;
use longhaul_protocol::history::PAYLOAD_CODEC;
use longhaul_protocol::id::{Namespace, TaskId, WorkerId};
use longhaul_protocol::payload::query_result;
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::{Map, Value, json};

use super::history::events_json;
use super::polls::{self, read_poll};
use super::workflow_tasks::with_duplicate;
use super::{Id, envelope, pass};
use crate::App;
use crate::gate::{Passed, Refusal};
use crate::heavy;
use crate::request::body::Body;

/// Longest ids, types and reasons.
const NAME_MAX: usize = 255;

/// Longest failure text. Both SDKs trim theirs to this.
const MESSAGE_MAX: usize = 1024 * 1024;

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
    let polled = match app.host().poll_query_task(&poll).await {
        Ok(Polled::Leased(task)) => {
            let moments = (task.lease.leased_at, task.lease.expires_at);
            let (bytes, now) = (task.bytes(), app.host().now());
            let render = move || task_json(&task, now);
            Ok(Polled::Leased((heavy::work(bytes, render).await, moments)))
        }
        Ok(Polled::Empty) => Ok(Polled::Empty),
        Ok(Polled::Throttled(throttle)) => Ok(Polled::Throttled(throttle)),
        Err(error) => Err(error),
    };
    polls::answer(app, polled, &poll, "query_task", |(json, (from, to))| {
        polls::leased(app, &json, from, to)
    })
}

/// The three moments of the authority to answer, and the server's own: both SDKs compare them letter by letter.
fn task_json(task: &LeasedQuestion, server_time: Timestamp) -> String {
    let view = json!({
        "query_task_id": task.task_id,
        "task_id": task.task_id,
        "task_type": "query",
        "query_task_attempt": task.lease.attempt,
        "query_name": task.name,
        "query_arguments": task.arguments,
        "query_admitted_at": task.times.admitted_at,
        "query_deadline_at": task.times.deadline_at,
        "server_time": server_time,
    });
    with_run(view, task)
}

/// Adds what both kinds of question tell about their run and lease, and its whole history.
pub(super) fn with_run(mut view: Value, task: &LeasedQuestion) -> String {
    let run = &task.run;
    let shared = json!({
        "lease_owner": task.lease.owner,
        "lease_expires_at": task.lease.expires_at,
        "namespace": run.namespace,
        "task_queue": run.task_queue,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "compatibility": run.routing.compatibility,
        "payload_codec": PAYLOAD_CODEC,
        "workflow_arguments": run.arguments,
        "run_status": task.run_status.as_str(),
        "last_history_sequence": task.history.last().map_or(0, |event| event.sequence),
        "total_history_events": task.history.len(),
        "history_export": null,
    });
    if let (Value::Object(view), Value::Object(shared)) = (&mut view, shared) {
        view.extend(shared);
    }
    // History is passed on as it is stored, without being parsed.
    let mut text = view.to_string();
    text.pop();
    text.push_str(r#","history_events":"#);
    text.push_str(&events_json(&task.history));
    text.push('}');
    text
}

/// Who speaks about a question, and which attempt of it.
pub(super) fn read_holder(passed: &Passed, task_id: &str, attempt: &str) -> QuestionHolder {
    QuestionHolder {
        namespace: passed.namespace.clone(),
        task_id: TaskId::from(task_id),
        owner: WorkerId::from(
            passed
                .body
                .required_text_of(&["lease_owner", "worker_id"], NAME_MAX),
        ),
        attempt: passed.body.required_count(attempt, 1),
    }
}

pub(super) async fn complete(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id, "query_task_attempt");
        let body = &passed.body;
        let envelope = body.payload(query_result(
            body.raw("result_envelope"),
            body.raw("result"),
        ));
        let shown = body.value("result");
        body.check()?;
        let envelope = envelope.unwrap_or_else(longhaul_protocol::Payload::null);
        // Without a copy for people, the payload is shown; one that cannot be is null.
        let shown = shown.unwrap_or_else(|| envelope.display().unwrap_or_default());
        let repeated = app
            .host()
            .complete_query_task(&holder, QueryResult { shown, envelope })?;
        Ok(accepted(&holder, "completed", repeated))
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
        let holder = read_holder(&passed, &task_id, "query_task_attempt");
        let failure = read_failure(&passed.body, "The worker could not answer the query.");
        passed.body.check()?;
        let repeated = app.host().fail_query_task(&holder, failure)?;
        Ok(accepted(&holder, "failed", repeated))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

fn accepted(holder: &QuestionHolder, outcome: &str, repeated: bool) -> Value {
    let body = json!({
        "query_task_id": holder.task_id,
        "query_task_attempt": holder.attempt,
        "outcome": outcome,
        "reason": null,
    });
    with_duplicate(body, repeated)
}

/// The `failure` of a report; an empty message gets one that says something.
pub(super) fn read_failure(body: &Body, message: &str) -> QuestionFailure {
    let Some(nested) = body.nested("failure") else {
        if body.raw("failure").is_none() {
            body.refuse("failure", "is required");
        }
        return QuestionFailure::default();
    };
    let failure = QuestionFailure {
        message: nested
            .note("message", MESSAGE_MAX)
            .unwrap_or_else(|| message.to_owned()),
        reason: nested.text("reason", NAME_MAX),
        failure_type: nested.note("type", NAME_MAX),
        validation_errors: nested.object("validation_errors").unwrap_or_default(),
    };
    body.absorb("failure", &nested);
    failure
}

pub(super) async fn status(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let uri = request.uri().clone();
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = asked_about(&uri, passed.namespace, &task_id)?;
        Ok(Value::Object(status_json(&app, &holder)?))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

/// The same holder, from a query string.
fn asked_about(uri: &Uri, namespace: Namespace, task_id: &str) -> Result<QuestionHolder, Refusal> {
    let find = |name: &str| {
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    };
    let owner = find("lease_owner").filter(|owner| !owner.is_empty());
    let attempt = find("query_task_attempt").and_then(|attempt| attempt.parse().ok());
    match (owner, attempt.filter(|attempt| *attempt >= 1)) {
        (Some(owner), Some(attempt)) => Ok(QuestionHolder {
            namespace,
            task_id: TaskId::from(task_id),
            owner: WorkerId::from(owner),
            attempt,
        }),
        (owner, attempt) => {
            let mut errors = FieldErrors::new();
            let missing = [
                ("lease_owner", owner.is_none(), "is required"),
                (
                    "query_task_attempt",
                    attempt.is_none(),
                    "must be a number of at least 1",
                ),
            ];
            for (field, _, message) in missing.into_iter().filter(|(_, is_wrong, _)| *is_wrong) {
                errors.insert(field.to_owned(), vec![message.to_owned()]);
            }
            Err(Refusal::invalid(&errors))
        }
    }
}

fn status_json(app: &App, holder: &QuestionHolder) -> Result<Map<String, Value>, Error> {
    let held = app.host().query_task_status(holder)?;
    let reason = held
        .refusal
        .as_ref()
        .map(|refusal| question_reason(QuestionKind::Query, refusal).as_str());
    let body = json!({
        "query_task_id": holder.task_id,
        "query_task_attempt": holder.attempt,
        "lease_owner": held.lease.owner,
        "query_task_status": held.status,
        "can_continue": held.refusal.is_none(),
        "reason": reason,
        "server_time": app.host().now(),
        "lease_expires_at": held.lease.expires_at,
        "query_admitted_at": held.times.admitted_at,
        "query_deadline_at": held.times.deadline_at,
    });
    let Value::Object(body) = body else {
        unreachable!("written as an object")
    };
    Ok(body)
}
