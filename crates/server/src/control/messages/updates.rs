//! Updates: a message with a result, for the current run or a named one.

use longhaul_host::api::{Receipt, Rejection, UpdateRecord, UpdateStatus};
use std::time::Duration;

use http::StatusCode;
use longhaul_host::{CommandTarget, Error, UpdateWait};
use longhaul_protocol::payload;
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::{Map, Value, json};

use super::commands::{check_name, refused, shared, target};
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::control::workflows::principal;
use crate::gate::Refusal;

/// How long a caller waits that does not send a timeout.
const WAIT_SECONDS_DEFAULT: u64 = 10;

/// Longest wait. It holds one request; a caller that waits longer sends the same request id again.
const WAIT_SECONDS_MAX: u64 = 300;

pub(in crate::control) const WAIT_FOR: [&str; 2] = ["accepted", "completed"];

pub(in crate::control) async fn update(call: Call) -> Result<Reply, Refusal> {
    let name = call.segment("update_name").to_owned();
    let result = update_named(call, &name).await;
    result.map_err(|refusal| refusal.with("update_name", name))
}

async fn update_named(call: Call, name: &str) -> Result<Reply, Refusal> {
    check_name(name, "update_name")?;
    if let Err(error) = call.check_input() {
        return Err(refused_update(&error, &target(&call)?));
    }
    let body = &call.body;
    let arguments = body.payload(payload::input_list(body.raw("input"), "input"));
    body.check_codec();
    let (wait, seconds) = read_wait(&call);
    let target = target(&call)?;
    let arguments = body.finish(arguments)?;
    let receipt = call
        .host()
        .workflows()
        .update(&target, name, arguments, wait)
        .await
        .map_err(|error| refused_update(&error, &target))?;
    Ok(answer(&receipt, &target, name, wait, seconds))
}

/// Reads which stage the caller waits for, and how many seconds.
fn read_wait(call: &Call) -> (UpdateWait, Option<u64>) {
    let body = &call.body;
    if body.raw("wait_policy").is_some() {
        body.refuse("wait_policy", "is not a field; use wait_for");
    }
    let seconds = body.count("wait_timeout_seconds", 1);
    match body.text("wait_for", 32).as_deref() {
        None | Some("accepted") => (UpdateWait::Accepted, None),
        Some("completed") => {
            let seconds = seconds
                .unwrap_or(WAIT_SECONDS_DEFAULT)
                .min(WAIT_SECONDS_MAX);
            (
                UpdateWait::Completed(Duration::from_secs(seconds)),
                Some(seconds),
            )
        }
        Some(_) => {
            body.refuse("wait_for", "must be accepted or completed");
            (UpdateWait::Accepted, None)
        }
    }
}

fn answer(
    receipt: &Receipt,
    target: &CommandTarget,
    name: &str,
    wait: UpdateWait,
    seconds: Option<u64>,
) -> Reply {
    let mut body = shared(receipt, target);
    let status = receipt
        .command
        .update
        .as_deref()
        .map_or(UpdateStatus::Accepted, |update| update.status);
    body.extend(update_fields(receipt, name));
    let waited = matches!(wait, UpdateWait::Completed(_));
    body.insert(
        "wait_for".to_owned(),
        json!(if waited { "completed" } else { "accepted" }),
    );
    body.insert(
        "wait_timed_out".to_owned(),
        json!(waited && status == UpdateStatus::Accepted),
    );
    body.insert("wait_timeout_seconds".to_owned(), json!(seconds));
    let status = match status {
        UpdateStatus::Completed if waited => StatusCode::OK,
        UpdateStatus::Failed if waited => StatusCode::UNPROCESSABLE_ENTITY,
        UpdateStatus::Accepted
        | UpdateStatus::Rejected
        | UpdateStatus::Completed
        | UpdateStatus::Failed => StatusCode::ACCEPTED,
    };
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        let message = body.get("failure_message").cloned().unwrap_or_default();
        body.insert("message".to_owned(), message);
    }
    Reply::new(status, Value::Object(body))
}

/// Renders the fields that every reply about an update has. The result is present only after the update ended, because one SDK treats
/// a null as the result.
fn update_fields(receipt: &Receipt, name: &str) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("update_name", json!(name));
    set("principal", principal(receipt.command.principal.as_deref()));
    if let Some(update) = receipt.command.update.as_deref() {
        let failure = update.failure.as_ref();
        set("update_id", json!(update.update_id));
        set("update_status", json!(update.status.as_str()));
        set("workflow_sequence", json!(update.workflow_sequence));
        set(
            "failure_id",
            json!(failure.map(|failure| &failure.failure_id)),
        );
        set(
            "failure_message",
            json!(failure.map(|failure| &failure.message)),
        );
        set("accepted_at", json!(update.accepted_at));
        set("applied_at", json!(update.applied_at));
        set("rejected_at", json!(update.rejected_at));
        set("closed_at", json!(update.closed_at));
        if update.closed_at.is_some() {
            set("result", json!(shown(update)));
            set("result_envelope", json!(update.result));
        }
        if !update.validation_errors.is_empty() {
            set("validation_errors", json!(update.validation_errors));
        }
    }
    body
}

fn shown(update: &UpdateRecord) -> Option<Value> {
    let result = update.result.as_ref()?;
    result.display().ok()
}

fn refused_update(error: &Error, target: &CommandTarget) -> Refusal {
    let mut refusal = refused(error, target, Some("update"));
    if let Error::Rejected(Rejection::UpdateRefused(update)) = error {
        let receipt = &update.receipt;
        let name = receipt.command.target_name.as_deref().unwrap_or_default();
        let mut fields = shared(receipt, target);
        fields.extend(update_fields(receipt, name));
        fields.insert("reason".to_owned(), json!(update.reason.as_str()));
        fields.insert("rejection_reason".to_owned(), json!(update.reason.as_str()));
        fields.insert("command_status".to_owned(), json!("rejected"));
        let errors: &FieldErrors = &receipt
            .command
            .update
            .as_deref()
            .map(|record| record.validation_errors.clone())
            .unwrap_or_default();
        fields.insert("validation_errors".to_owned(), json!(errors));
        if !errors.is_empty() {
            fields.insert("errors".to_owned(), json!(errors));
        }
        if !update.declared.is_empty() {
            fields.insert("declared_updates".to_owned(), json!(update.declared));
        }
        for (name, value) in fields {
            refusal = refusal.with(&name, value);
        }
    }
    refusal
}
