//! Query tasks: poll, complete, fail, status. They are never stored; a worker answers from the history in the task.

use longhaul_host::{
    LeasedQuestion, QueryResult, QuestionFailure, QuestionHolder, QuestionKind, question_reason,
};
use longhaul_protocol::Timestamp;
use longhaul_protocol::history::PAYLOAD_CODEC;
use longhaul_protocol::id::WorkerId;
use longhaul_protocol::payload::query_result;
use serde_json::{Value, json};

use super::history::events_json;
use super::polls::{self, Leased, read_poll};
use super::{Call, MESSAGE_MAX, NAME_MAX, Reply};
use crate::gate::Refusal;
use crate::heavy;
use crate::request::body::{Body, Mistake};

pub(super) async fn poll(call: Call) -> Result<Reply, Refusal> {
    let poll = read_poll(&call);
    call.body.check()?;
    let polled = call.host().queries().poll(&poll).await;
    let now = call.host().now();
    let render = |task: LeasedQuestion| async move {
        Leased {
            leased_at: task.lease.leased_at,
            lease_expires_at: task.lease.expires_at,
            task: heavy::work(task.bytes(), move || task_json(&task, now)).await,
        }
    };
    polls::reply(&call.app, polled, &poll, "query_task", render).await
}

/// Returns a query task as text. Both SDKs compare the lease, admission and deadline times with the server time as text.
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

/// Adds the fields that query tasks and validation tasks share: the run, the lease and the whole history.
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
        "last_history_sequence": task.history.last().map_or(0, |event| event.sequence.get()),
        "total_history_events": task.history.len(),
        "history_export": null,
    });
    if let (Value::Object(view), Value::Object(shared)) = (&mut view, shared) {
        view.extend(shared);
    }
    // History is passed on as stored, without being parsed.
    let mut text = view.to_string();
    text.pop();
    text.push_str(r#","history_events":"#);
    text.push_str(&events_json(&task.history));
    text.push('}');
    text
}

/// Reads which lease on a question the caller reports with; `attempt` is the name of the field with the attempt.
pub(super) fn read_holder(call: &Call, attempt: &str) -> QuestionHolder {
    let owner = call
        .body
        .required_text_of(&["lease_owner", "worker_id"], NAME_MAX);
    QuestionHolder {
        namespace: call.namespace.clone(),
        task_id: call.task_id(),
        owner: WorkerId::from(owner),
        attempt: call.body.required_count(attempt, 1),
    }
}

pub(super) async fn complete(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call, "query_task_attempt");
    let body = &call.body;
    let envelope = body.payload(query_result(
        body.raw("result_envelope"),
        body.raw("result"),
    ));
    let shown = body.value("result");
    let envelope = body.finish(envelope)?;
    // Without a plain copy of the result, the payload is decoded for display. One that cannot be decoded is shown as null.
    let shown = shown.unwrap_or_else(|| envelope.display().unwrap_or_default());
    let repeated = call
        .host()
        .queries()
        .complete(&holder, QueryResult { shown, envelope })
        .await?;
    Ok(accepted(&holder, "completed", repeated))
}

pub(super) async fn fail(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call, "query_task_attempt");
    let failure = read_failure(&call.body, "The worker could not answer the query.");
    let failure = call.body.finish(failure)?;
    let repeated = call.host().queries().fail(&holder, failure).await?;
    Ok(accepted(&holder, "failed", repeated))
}

fn accepted(holder: &QuestionHolder, outcome: &str, repeated: bool) -> Reply {
    let body = json!({
        "query_task_id": holder.task_id,
        "query_task_attempt": holder.attempt,
        "outcome": outcome,
        "reason": null,
    });
    Reply::recorded(body, repeated)
}

/// Reads the `failure` of a report; `message` replaces an empty message.
pub(super) fn read_failure(body: &Body, message: &str) -> Result<QuestionFailure, Mistake> {
    body.required_nested("failure", |failure| QuestionFailure {
        message: failure
            .note("message", MESSAGE_MAX)
            .unwrap_or_else(|| message.to_owned()),
        reason: failure.text("reason", NAME_MAX),
        failure_type: failure.note("type", NAME_MAX),
        validation_errors: failure.object("validation_errors").unwrap_or_default(),
    })
}

pub(super) async fn status(call: Call) -> Result<Reply, Refusal> {
    let holder = holder_in_url(&call)?;
    let held = call.host().queries().status(&holder).await?;
    let reason = held
        .refusal
        .as_ref()
        .map(|refusal| question_reason(QuestionKind::Query, refusal).as_str());
    Ok(Reply::ok(&json!({
        "query_task_id": holder.task_id,
        "query_task_attempt": holder.attempt,
        "lease_owner": held.lease.owner,
        "query_task_status": held.status,
        "can_continue": held.refusal.is_none(),
        "reason": reason,
        "server_time": call.host().now(),
        "lease_expires_at": held.lease.expires_at,
        "query_admitted_at": held.times.admitted_at,
        "query_deadline_at": held.times.deadline_at,
    })))
}

/// Reads the lease from the URL's parameters.
fn holder_in_url(call: &Call) -> Result<QuestionHolder, Refusal> {
    let parameters = &call.parameters;
    let owner = parameters.text("lease_owner");
    if owner.is_none() {
        parameters.refuse("lease_owner", "is required");
    }
    let attempt = parameters
        .text("query_task_attempt")
        .and_then(|attempt| attempt.parse().ok())
        .filter(|attempt| *attempt >= 1);
    if attempt.is_none() {
        parameters.refuse("query_task_attempt", "must be a number of at least 1");
    }
    parameters.check()?;
    Ok(QuestionHolder {
        namespace: call.namespace.clone(),
        task_id: call.task_id(),
        owner: WorkerId::from(owner.unwrap_or_default()),
        attempt: attempt.unwrap_or_default(),
    })
}
