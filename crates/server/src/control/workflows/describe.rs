//! `GET /api/workflows/{w}` and `…/runs/{r}`: everything about one run. Both SDKs poll it for results and read the envelopes; the plain
//! copies beside them are for people.

use longhaul_host::Description;
use longhaul_host::api::{
    CommandRow, CommandStatus, CommandType, Outcome, Program, Run, RunFailure, first_wait,
};
use longhaul_protocol::payload::{CODEC, Payload};
use serde_json::{Map, Value, json};

use super::command_list::next_page_token;
use super::compatibility::show_compatibility;
use super::memo_shown;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::control::origin;
use crate::gate::Refusal;

/// How many of the newest commands a description shows. The others are in the list of commands.
const COMMANDS_SHOWN: usize = 50;

pub(in crate::control) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let description = call
        .host()
        .workflows()
        .describe(&call.namespace, &call.workflow_id(), call.run_id().as_ref())
        .await?;
    let pin = description.run.spec.routing.compatibility.as_deref();
    let workers = call.host().workers().pinned(&call.namespace, [pin]).await?;
    let mut body = identity(&description);
    show_compatibility(&mut body, &workers, pin, &description.run.spec.task_queue);
    show_payloads(&mut body, &description.run);
    if let Some(Outcome::Failure(failure)) = description.run.outcome() {
        show_failure(&mut body, &description.run, failure);
    }
    body.insert("actions".to_owned(), actions(&description));
    let run = &description.run;
    let page = call
        .host()
        .workflows()
        .commands(run.run_id(), None, COMMANDS_SHOWN)
        .await?;
    // The page is newest first, and a description is oldest first.
    let shown = || page.commands.iter().rev();
    let commands: Vec<Value> = shown().map(|row| command(row, run)).collect();
    let updates: Vec<Value> = shown().filter_map(|row| update(row, run)).collect();
    body.insert("commands_scope".to_owned(), json!("selected_run"));
    body.insert("command_count".to_owned(), json!(page.total));
    body.insert("commands".to_owned(), json!(commands));
    body.insert(
        "commands_next_page_token".to_owned(),
        json!(next_page_token(&page)),
    );
    body.insert("updates_scope".to_owned(), json!("selected_run"));
    body.insert("updates".to_owned(), json!(updates));
    Ok(Reply::ok(Value::Object(body)))
}

pub(super) fn identity(description: &Description) -> Map<String, Value> {
    let Run { spec, core, .. } = &description.run;
    let closed = core.closed.as_ref();
    let (wait_kind, wait_reason) = first_wait(&description.run)
        .map(|wait| (wait.kind(), wait.describe(&description.run)))
        .unzip();
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("workflow_id", json!(spec.workflow_id));
    set("run_id", json!(spec.run_id));
    set("namespace", json!(spec.namespace));
    if spec.program == Program::Definition {
        set("program", json!(spec.program.as_str()));
    }
    set("workflow_type", json!(spec.workflow_type));
    set("business_key", json!(spec.business_key));
    set("status", json!(core.status.as_str()));
    set("status_bucket", json!(core.status.bucket()));
    set("is_terminal", json!(core.status.is_terminal()));
    set(
        "closed_reason",
        json!(closed.map(|closed| closed.reason.as_str())),
    );
    set(
        "reason",
        json!(closed.and_then(|closed| closed.note.as_deref())),
    );
    set("task_queue", json!(spec.task_queue));
    set("run_number", json!(spec.run_number));
    set("run_count", json!(description.run_count));
    set("is_current_run", json!(description.is_current));
    set("payload_codec", json!(CODEC));
    set(
        "execution_timeout_seconds",
        json!(spec.execution_timeout_seconds),
    );
    set("run_timeout_seconds", json!(spec.run_timeout_seconds));
    set("execution_deadline_at", json!(spec.execution_deadline_at));
    set("run_deadline_at", json!(spec.run_deadline_at));
    set("started_at", json!(spec.started_at));
    set("closed_at", json!(closed.map(|closed| closed.at)));
    set("last_progress_at", json!(core.last_event_at));
    // A follower of the history starts here to read only new events.
    set("last_history_sequence", json!(core.last_history_sequence));
    set("wait_kind", json!(wait_kind));
    set("wait_reason", json!(wait_reason));
    set("memo", memo_shown(core.memo.as_ref()));
    set("search_attributes", json!(core.search_attributes));
    body
}

/// Shows arguments and result. A stored payload that cannot be decoded is shown as null with a diagnosis; the request does not fail.
fn show_payloads(body: &mut Map<String, Value>, run: &Run) {
    let output = match run.outcome() {
        Some(Outcome::Output(output)) => Some(output),
        Some(Outcome::Failure(_)) | None => None,
    };
    let mut diagnostics = Vec::new();
    let mut show = |field: &str, payload: Option<&Payload>| {
        let shown = payload
            .map(Payload::display)
            .transpose()
            .unwrap_or_else(|error| {
                diagnostics.push(json!({"field": field, "reason": error.reason()}));
                None
            });
        body.insert(field.to_owned(), json!(shown));
        body.insert(format!("{field}_envelope"), json!(payload));
    };
    show("input", Some(&run.spec.arguments));
    show("output", output);
    if !diagnostics.is_empty() {
        body.insert("payload_diagnostics".to_owned(), json!(diagnostics));
    }
}

fn show_failure(body: &mut Map<String, Value>, run: &Run, failure: &RunFailure) {
    let mut exception = failure.exception.clone();
    // The worker's own description of the exception is kept; missing fields are taken from the failure.
    exception
        .entry("type")
        .or_insert_with(|| json!(failure.exception_type));
    exception
        .entry("class")
        .or_insert_with(|| json!(failure.exception_class));
    exception
        .entry("message")
        .or_insert_with(|| json!(failure.message));
    let own = json!({
        "message": failure.message,
        "reason": run.core.closed.as_ref().and_then(|closed| closed.note.as_deref()),
        "exception_type": failure.exception_type,
        "exception_class": failure.exception_class,
        "failure_category": failure.failure_category,
        "non_retryable": failure.non_retryable,
        "source_kind": "workflow_run",
        "source_id": run.spec.run_id,
        "event_sequence": failure.event_sequence,
    });
    let mut whole = own.clone();
    whole["exception"] = json!(exception);
    whole["activity_failures"] = json!([]);
    whole["failures"] = json!([own]);
    body.insert("error".to_owned(), json!(failure.message));
    body.insert("failure".to_owned(), whole);
    body.insert("exception".to_owned(), json!(exception));
    body.insert("failures".to_owned(), json!([own]));
}

/// Shows what an operator can do with this run now.
fn actions(description: &Description) -> Value {
    let takes_commands = description.accepts_commands();
    json!({
        "can_signal": takes_commands,
        // A closed run answers queries too.
        "can_query": true,
        "can_update": takes_commands,
        "can_cancel": takes_commands,
        "can_terminate": takes_commands,
        "can_repair": takes_commands,
        "can_archive": description.accepts_archive(),
    })
}

pub(in crate::control) fn command(row: &CommandRow, run: &Run) -> Value {
    let is_accepted = row.status == CommandStatus::Accepted;
    // A signal is applied when the workflow consumes it, which is an event of its history. Other commands take effect when accepted.
    let is_applied = is_accepted && row.command_type != CommandType::Signal;
    let update = row.update.as_deref();
    let failure = update.and_then(|update| update.failure.as_ref());
    let context = origin::shown(row, run);
    let correlation_id = context["request"]["correlation_id"].clone();
    let (applied_at, completed_at) = match update {
        Some(update) => (update.applied_at, update.closed_at),
        None => {
            let at = is_applied.then_some(row.at);
            (at, at)
        }
    };
    json!({
        "id": row.command_id,
        "sequence": row.sequence,
        "type": row.command_type,
        "target_scope": row.target_scope,
        "requested_run_id": row.requested_run_id,
        "resolved_run_id": run.spec.run_id,
        "target_name": row.target_name,
        "source": "control_plane",
        "context": context,
        "principal": principal(row.principal.as_deref()),
        "request_id": row.request_id,
        "correlation_id": correlation_id,
        "status": row.status,
        "outcome": row.outcome,
        "reason": row.reason,
        "rejection_reason": row.rejection_reason,
        "validation_errors": update.map(|update| json!(update.validation_errors)).unwrap_or_else(|| json!({})),
        "update_id": update.map(|update| &update.update_id),
        "update_status": update.map(|update| update.status.as_str()),
        "failure_id": failure.map(|failure| &failure.failure_id),
        "failure_message": failure.map(|failure| &failure.message),
        "accepted_at": is_accepted.then_some(row.at),
        "applied_at": applied_at,
        "rejected_at": (!is_accepted).then_some(row.at),
        "completed_at": completed_at,
    })
}

/// Renders one row of `updates`; `None` for a command that is not an update.
fn update(row: &CommandRow, run: &Run) -> Option<Value> {
    let update = row.update.as_deref()?;
    let failure = update.failure.as_ref();
    Some(json!({
        "id": update.update_id,
        "command_id": row.command_id,
        "workflow_id": run.spec.workflow_id,
        "run_id": run.spec.run_id,
        "target_scope": row.target_scope,
        "requested_run_id": row.requested_run_id,
        "resolved_run_id": run.spec.run_id,
        "update_name": row.target_name,
        "status": update.status.as_str(),
        "outcome": row.outcome,
        "command_sequence": row.sequence,
        "workflow_sequence": update.workflow_sequence,
        "rejection_reason": row.rejection_reason,
        "validation_errors": update.validation_errors,
        "failure_id": failure.map(|failure| &failure.failure_id),
        "failure_message": failure.map(|failure| &failure.message),
        "principal": principal(row.principal.as_deref()),
        "request_id": row.request_id,
        "accepted_at": update.accepted_at,
        "applied_at": update.applied_at,
        "rejected_at": update.rejected_at,
        "closed_at": update.closed_at,
    }))
}

/// Renders the caller of a command, which is stored as JSON text.
pub(in crate::control) fn principal(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null)
}
