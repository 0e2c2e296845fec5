//! Commands on workflows: signal, cancel, terminate, repair, archive, each for the current run or for a named one.
//!
//! Replies have no top-level `status`, `accepted` or `success`, so that the state of the run and of the command are not confused.

use http::StatusCode;
use longhaul_host::api::{CleanupBudget, MESSAGE_STREAM_SIGNAL, Receipt, Rejection, Stop};
use longhaul_host::{CommandTarget, Error, Host};
use longhaul_protocol::Reason;
use longhaul_protocol::payload;
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::{Map, Value, json};

use crate::control::Call;
use crate::control::cluster::OPERATION_NAME_LENGTH_MAX;
use crate::control::envelope::Reply;
use crate::gate::Refusal;
use crate::views::cancellation::cancellation_json;

/// Characters of a request id. One SDK counts bytes, the other characters; this accepts both.
const REQUEST_ID_MAX: usize = 255;

/// Characters of the reason given to cancel or terminate.
const REASON_MAX: usize = 1000;

pub(in crate::control) async fn signal(call: Call) -> Result<Reply, Refusal> {
    let name = call.segment("signal_name").to_owned();
    let result = signal_named(call, &name).await;
    result.map_err(|refusal| refusal.with("signal_name", name))
}

async fn signal_named(call: Call, name: &str) -> Result<Reply, Refusal> {
    if name == MESSAGE_STREAM_SIGNAL {
        let message = "This signal name is reserved for the runtime.";
        return Err(Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Reason::RuntimeReservedSignal,
            message,
        ));
    }
    check_name(name, "signal_name")?;
    if let Err(error) = call.check_input() {
        return Err(refused(&error, &target(&call)?, Some("signal")));
    }
    let body = &call.body;
    let arguments = body.payload(payload::input_list(body.raw("input"), "input"));
    body.check_codec();
    let is_dry_run = body.flag("dry_run").unwrap_or(false);
    let has_input = body.raw("input").is_some();
    let target = target(&call)?;
    let arguments = body.finish(arguments)?;
    if is_dry_run {
        return preview(call.host(), &target, name, has_input).await;
    }
    let receipt = call
        .host()
        .workflows()
        .signal(&target, name, arguments)
        .await
        .map_err(|error| refused(&error, &target, Some("signal")))?;
    let mut body = shared(&receipt, &target);
    body.insert("signal_name".to_owned(), json!(name));
    Ok(Reply::new(StatusCode::ACCEPTED, Value::Object(body)))
}

/// Longest time a caller may give workflow code to clean up.
const CLEANUP_SECONDS_MAX: u64 = 3600;

/// Asks workflow code to clean up and end.
pub(in crate::control) async fn request_cancellation(call: Call) -> Result<Reply, Refusal> {
    let reason = call.body.note("reason", REASON_MAX);
    let seconds = call
        .body
        .count("cleanup_timeout_seconds", 1)
        .unwrap_or_else(|| call.host().config().limits.cleanup_seconds);
    if seconds > CLEANUP_SECONDS_MAX {
        call.body.refuse(
            "cleanup_timeout_seconds",
            &format!("must be at most {CLEANUP_SECONDS_MAX}"),
        );
    }
    let target = target(&call)?;
    let budget = CleanupBudget::Seconds(seconds);
    let receipt = call
        .host()
        .workflows()
        .request_cancellation(&target, reason.as_deref(), budget)
        .await
        .map_err(|error| refused(&error, &target, None))?;
    let status = if receipt.duplicate {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok(Reply::new(
        status,
        json!({
            "workflow_id": target.workflow_id,
            "run_id": receipt.run_id,
            "accepted": true,
            "duplicate": receipt.duplicate,
            "run_status": receipt.run_status.as_str(),
            "cancellation_request": cancellation_json(&receipt.cancellation),
        }),
    ))
}

/// Checks the name of a signal, query or update.
pub(in crate::control) fn check_name(name: &str, field: &str) -> Result<(), Refusal> {
    if name.trim().is_empty()
        || name.len() > OPERATION_NAME_LENGTH_MAX
        || name.chars().any(char::is_control)
    {
        let message = format!(
            "must have 1 to {OPERATION_NAME_LENGTH_MAX} bytes, not all blank, no control characters"
        );
        return Err(Refusal::invalid(&FieldErrors::from([(
            field.to_owned(),
            vec![message],
        )])));
    }
    Ok(())
}

/// Shows what a signal would do. Nothing is recorded.
async fn preview(
    host: &Host,
    target: &CommandTarget,
    name: &str,
    has_input: bool,
) -> Result<Reply, Refusal> {
    let preview = host.workflows().preview_signal(target, name).await?;
    Ok(Reply::ok(json!({
        "workflow_id": target.workflow_id,
        "run_id": preview.run_id,
        "workflow_type": preview.workflow_type,
        "requested_run_id": target.run_id,
        "resolved_run_id": preview.run_id,
        "target_scope": scope(target),
        "signal_name": name,
        "command_status": "preview",
        "command_source": "control_plane",
        "outcome": "signal_preview",
        "reason": null,
        "rejection_reason": null,
        "validation_errors": {},
        "preview": {
            "input_present": has_input,
            "request_id_present": target.request_id.is_some(),
            "would_record_signal": preview.would_record,
        },
    })))
}

pub(in crate::control) async fn cancel(call: Call) -> Result<Reply, Refusal> {
    stop(call, Stop::Cancel).await
}

pub(in crate::control) async fn terminate(call: Call) -> Result<Reply, Refusal> {
    stop(call, Stop::Terminate).await
}

async fn stop(call: Call, how: Stop) -> Result<Reply, Refusal> {
    let reason = call.body.note("reason", REASON_MAX);
    let target = target(&call)?;
    let receipt = call
        .host()
        .workflows()
        .stop(&target, how, reason.as_deref())
        .await
        .map_err(|error| refused(&error, &target, None))?;
    Ok(Reply::ok(Value::Object(shared(&receipt, &target))))
}

/// Checks whether the run is stuck, and repairs it.
pub(in crate::control) async fn repair(call: Call) -> Result<Reply, Refusal> {
    let target = target(&call)?;
    let receipt = call
        .host()
        .workflows()
        .repair(&target)
        .await
        .map_err(|error| refused(&error, &target, None))?;
    Ok(Reply::ok(Value::Object(shared(&receipt, &target))))
}

/// Archives a closed run, which protects it from retention.
pub(in crate::control) async fn archive(call: Call) -> Result<Reply, Refusal> {
    let reason = call.body.note("reason", REASON_MAX);
    let target = target(&call)?;
    let receipt = call
        .host()
        .workflows()
        .archive(&target, reason.as_deref())
        .await
        .map_err(|error| refused(&error, &target, None))?;
    Ok(Reply::ok(Value::Object(shared(&receipt, &target))))
}

/// Returns the target of the command. This is the last reading of the body, so it fails with all mistakes in it.
pub(in crate::control) fn target(call: &Call) -> Result<CommandTarget, Refusal> {
    let request_id = call.body.characters("request_id", REQUEST_ID_MAX);
    call.body.check()?;
    Ok(CommandTarget {
        namespace: call.namespace.clone(),
        workflow_id: call.workflow_id(),
        run_id: call.run_id(),
        request_id,
        principal: Some(call.caller.principal.to_string()),
        context: Some(call.context()),
    })
}

fn scope(target: &CommandTarget) -> &'static str {
    if target.run_id.is_some() {
        "run"
    } else {
        "instance"
    }
}

/// Renders an accepted command, or a repeat of it.
pub(in crate::control) fn shared(receipt: &Receipt, target: &CommandTarget) -> Map<String, Value> {
    let command = &receipt.command;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("workflow_id", json!(target.workflow_id));
    set("run_id", json!(receipt.run_id));
    set("requested_run_id", json!(command.requested_run_id));
    set("resolved_run_id", json!(receipt.run_id));
    set("target_scope", json!(command.target_scope));
    set("workflow_type", json!(receipt.workflow_type));
    set("command_id", json!(command.command_id));
    set("command_sequence", json!(command.sequence));
    set("command_status", json!(command.status));
    set("command_source", json!("control_plane"));
    set("outcome", json!(command.outcome));
    set("reason", Value::Null);
    set("rejection_reason", Value::Null);
    set("validation_errors", json!({}));
    set("request_id", json!(command.request_id));
    set("retained", json!(receipt.retained));
    // A repeat with different content is refused, so an accepted one was compared.
    set("intent_verified", json!(true));
    body
}

/// Adds the fields of a refused command. Missing targets and failures of the server are not commands and keep their fields.
pub(in crate::control) fn refused(
    error: &Error,
    target: &CommandTarget,
    kind: Option<&str>,
) -> Refusal {
    let mut refusal = crate::error::refusal(error).with("workflow_id", target.workflow_id.as_str());
    if let Some(run_id) = &target.run_id {
        refusal = refusal.with("run_id", run_id.as_str());
    }
    match error {
        Error::Rejected(rejection) => {
            let reason = refusal.reason.as_str();
            refusal = refusal
                .with("requested_run_id", json!(target.run_id))
                .with("target_scope", scope(target))
                .with("command_status", "rejected")
                .with("command_source", "control_plane")
                .with("rejection_reason", reason);
            if !refusal.extra.contains_key("validation_errors") {
                refusal = refusal.with("validation_errors", json!({}));
            }
            if let Rejection::UnknownSignal { .. } = rejection {
                refusal = refusal.with("command_contract_source", "workflow_contract");
            }
            refusal
        }
        Error::Internal if kind.is_some() => refusal
            .with("command_status", "indeterminate")
            .with("outcome", "operation_failed")
            .with("rejection_category", "internal"),
        _ => refusal,
    }
}
