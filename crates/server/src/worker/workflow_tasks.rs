//! Workflow tasks: poll, history, heartbeat, complete, fail (worker-protocol §4, §5).

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use longhaul_host::engine::run::message::stream::StreamCursor;
use longhaul_host::engine::run::state::Status;
use longhaul_host::engine::run::workflow_task::claim::WorkflowClaim;
use longhaul_host::engine::run::workflow_task::sticky::StickyClaim;
use longhaul_host::{Completion, Error, LeasedWorkflowTask, Polled, TaskHolder, WorkflowWork};
use longhaul_protocol::history::PAYLOAD_CODEC;
use longhaul_protocol::id::{
    ActivityAttemptId, ActivityExecutionId, ChildCallId, CommandId, Namespace, RunId, SignalId,
    TaskId, TaskQueue, TimerId, UpdateId, WaitId, WorkerId, WorkflowId,
};
use longhaul_protocol::workflow_command::parse_commands;
use longhaul_protocol::{Payload, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::cancellations::cancellation_json;
use super::history::{page_fields, page_size, page_token, parse_page_token, with_page};
use super::polls::{self, read_poll};
use super::{Id, envelope, pass, stack_trace, update_validation_tasks};
use crate::App;
use crate::error;
use crate::gate::{Passed, Refusal};
use crate::heavy;
use crate::request::body::Body;

/// Longest worker id and failure type.
pub(super) const NAME_MAX: usize = 255;

/// Longest failure text that is kept with a task.
pub(super) const MESSAGE_MAX: usize = 1024 * 1024;

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
    let page_size = page_size(app, &body);
    let encoding = body.text("accept_history_encoding", NAME_MAX);
    let kinds = body.texts("task_kinds").unwrap_or_default();
    body.check()?;
    let validates = kinds
        .iter()
        .any(|kind| kind == update_validation_tasks::TASK_KIND);
    let polled = if validates {
        app.host().poll_workflow_work(&poll, page_size).await
    } else {
        let polled = app.host().poll_workflow_task(&poll, page_size).await;
        polled.map(|polled| polled.map(|task| WorkflowWork::Task(Box::new(task))))
    };
    let shown = match polled {
        Ok(Polled::Leased(WorkflowWork::Task(task))) => {
            let moments = (task.claim.leased_at, task.claim.lease_expires_at);
            let bytes = task.history.bytes();
            let render = move || task_json(&task, encoding.as_deref());
            Ok(Polled::Leased((heavy::work(bytes, render).await, moments)))
        }
        Ok(Polled::Leased(WorkflowWork::Validation(task))) => {
            let moments = (task.lease.leased_at, task.lease.expires_at);
            let bytes = task.bytes();
            let render = move || update_validation_tasks::task_json(&task);
            Ok(Polled::Leased((heavy::work(bytes, render).await, moments)))
        }
        Ok(Polled::Empty) => Ok(Polled::Empty),
        Ok(Polled::Throttled(throttle)) => Ok(Polled::Throttled(throttle)),
        Err(error) => Err(error),
    };
    polls::answer(app, shown, &poll, "workflow_task", |(json, (from, to))| {
        polls::leased(app, &json, from, to)
    })
}

/// A key that is always null on this release.
type Null = Option<()>;

/// The task as a worker gets it, but for its history. Every key of the resume context is there, null where it does not apply.
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
    run_status: Status,
    cancel_requested: bool,
    sticky_replay_mode: &'static str,
    cancellation_request: Option<Value>,
    last_history_sequence: u64,
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
    workflow_sequence: Option<u64>,
    workflow_event_type: &'a Option<String>,
    timer_id: &'a Option<TimerId>,
    condition_wait_id: &'a Option<WaitId>,
    condition_key: &'a Option<String>,
    condition_definition_fingerprint: &'a Option<String>,
    execution_mode: &'a Option<String>,
}

/// The task as text: the view with the first page of history put into it.
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
        continue_as_new_recommended: budget.pressure == "continue_as_new_recommended",
        history_budget_pressure: budget.pressure,
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

/// Who speaks about the task. The published stream contract calls the owner `worker_id`.
pub(super) fn read_holder(passed: &Passed, task_id: &str) -> TaskHolder {
    TaskHolder {
        namespace: passed.namespace.clone(),
        task_id: TaskId::from(task_id),
        owner: WorkerId::from(
            passed
                .body
                .required_text_of(&["lease_owner", "worker_id"], NAME_MAX),
        ),
        attempt: passed.body.required_count("workflow_task_attempt", 1),
        principal: Some(passed.caller.principal.to_string()),
    }
}

/// A refused report: it names the caller's own ids, and says that nothing was recorded (§5.3).
pub(super) fn rejected(error: &Error, holder: &TaskHolder) -> Refusal {
    let refusal = error::refusal(error)
        .with("task_id", holder.task_id.as_str())
        .with("workflow_task_attempt", holder.attempt)
        .with("recorded", false);
    match error {
        Error::Contended | Error::Unavailable => refusal
            .with("operation", "complete_workflow_task")
            .with(
                "outcome",
                if matches!(error, Error::Contended) {
                    "deferred"
                } else {
                    "unknown"
                },
            )
            .with("worker_id", holder.owner.as_str())
            .with("lease_owner", holder.owner.as_str())
            .with("task_queue", Value::Null)
            .with(
                "backend",
                json!({"lock_pressure": matches!(error, Error::Contended)}),
            ),
        _ => refusal.with("outcome", "rejected"),
    }
}

pub(super) async fn history(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let answer = try_history(&app, &task_id, request).await;
    envelope::respond_text(&app, StatusCode::OK, answer)
}

async fn try_history(
    app: &App,
    task_id: &str,
    request: Request<HttpBody>,
) -> Result<String, Refusal> {
    let passed = pass(app, request).await?;
    let holder = read_holder(&passed, task_id);
    let body = &passed.body;
    let size = page_size(app, body);
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
        None => after.unwrap_or(0),
    };
    let page = app
        .host()
        .workflow_task_history(&holder, after, size)
        .await
        .map_err(|error| rejected(&error, &holder))?;
    // A page must never name the token that asked for it: a client that follows it would not end.
    debug_assert!(
        page.next_after
            .is_none_or(|next| page_token(next) != page_token(after))
    );
    let own = json!({"task_id": holder.task_id, "workflow_task_attempt": holder.attempt});
    let bytes = page.bytes();
    let render = move || with_page(&own, &page, encoding.as_deref());
    Ok(heavy::work(bytes, render).await)
}

pub(super) async fn heartbeat(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id);
        passed.body.check()?;
        let renewed = app
            .host()
            .heartbeat_workflow_task(&holder)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        Ok(json!({
            "task_id": holder.task_id,
            "workflow_task_attempt": holder.attempt,
            "lease_owner": holder.owner,
            "renewed": true,
            "lease_expires_at": renewed.lease_expires_at,
            "run_status": renewed.run_status,
            "task_status": "leased",
            "reason": null,
            "cancellation_request": renewed.cancellation.as_deref().map(cancellation_json),
        }))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

pub(super) async fn complete(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id);
        let commands = passed.body.value("commands");
        let commands = match commands {
            Some(commands) => parse_commands(&commands).unwrap_or_else(|errors| {
                for (field, messages) in errors {
                    for message in messages {
                        passed.body.refuse(&field, &message);
                    }
                }
                Vec::new()
            }),
            None => {
                passed
                    .body
                    .refuse("commands", "must hold at least one command");
                Vec::new()
            }
        };
        let completion = Completion {
            commands,
            cursors: read_cursors(&passed.body),
            sticky: read_sticky(&passed.body),
        };
        passed.body.check()?;
        let answer = app
            .host()
            .complete_workflow_task(&holder, completion)
            .await
            .map_err(|error| rejected(&error, &holder))?;
        Ok(with_duplicate(answer.body, answer.duplicate))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

/// How far the workflow has read its message streams; what it waits for there needs no answer of its own, because every message
/// is delivered as it comes.
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

/// A worker's claim that it keeps the run in memory. Only an optimisation hangs on it, so a malformed one is refused like any
/// other field and a foreign one is ignored.
fn read_sticky(body: &Body) -> Option<StickyClaim> {
    let claim = body.nested("sticky_cache")?;
    let sticky = StickyClaim {
        worker_id: WorkerId::from(claim.required_text("worker_id", NAME_MAX)),
        run_id: RunId::from(claim.required_text("run_id", NAME_MAX)),
        ttl_seconds: claim
            .required_count("ttl_seconds", 1)
            .min(STICKY_TTL_SECONDS_MAX),
    };
    body.absorb("sticky_cache", &claim);
    Some(sticky)
}

/// Longest time a worker may be expected to remember a run.
const STICKY_TTL_SECONDS_MAX: u64 = 3600;

pub(super) async fn fail(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id);
        let body = &passed.body;
        let failure = body.nested("failure");
        let (mut message, mut failure_type, mut reason) = (String::new(), None, None);
        let mut trace = None;
        match &failure {
            Some(failure) => {
                message = failure.required_text("message", MESSAGE_MAX);
                failure_type = failure.text("type", NAME_MAX);
                reason = failure.text("reason", NAME_MAX);
                trace = stack_trace(failure);
                body.absorb("failure", failure);
            }
            None if body.raw("failure").is_none() => body.refuse("failure", "is required"),
            None => {}
        }
        body.check()?;
        let answer = app
            .host()
            .fail_workflow_task(
                &holder,
                &message,
                failure_type.as_deref(),
                reason.as_deref(),
                trace.as_deref(),
            )
            .await;
        let answer = answer.map_err(|error| rejected(&error, &holder))?;
        Ok(with_duplicate(answer.body, answer.duplicate))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

/// The stored answer of the same call says that it is one.
pub(super) fn with_duplicate(mut body: Value, duplicate: bool) -> Value {
    if duplicate {
        body["duplicate"] = json!(true);
    }
    body
}
