//! Message streams into a workflow.

use http::StatusCode;
use longhaul_host::api::MessageStream;
use longhaul_protocol::Reason;
use longhaul_protocol::payload;
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::{Value, json};

use super::commands::target;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;

/// Characters of a message id.
const MESSAGE_ID_MAX: usize = 191;

/// Bytes of a stream's name.
const STREAM_NAME_MAX: usize = 128;

pub(in crate::control) async fn append(call: Call) -> Result<Reply, Refusal> {
    let stream_name = stream_name(&call)?;
    call.check_input()?;
    let body = &call.body;
    let message_id = body.characters("message_id", MESSAGE_ID_MAX);
    if message_id.is_none() && body.raw("message_id").is_none() {
        body.refuse("message_id", "is required");
    }
    let arguments = body.payload(payload::input_list(body.raw("input"), "input"));
    let target = target(&call)?;
    let arguments = body.finish(arguments)?;
    let message_id = message_id.unwrap_or_default();
    let appended = call
        .host()
        .workflows()
        .append_message(&target, &stream_name, &message_id, arguments)
        .await
        .map_err(|error| {
            crate::error::refusal(&error)
                .with("accepted", false)
                .with("workflow_id", target.workflow_id.as_str())
                .with("stream_name", stream_name.as_str())
                .with("message_id", message_id.as_str())
        })?;
    let status = if appended.duplicate {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok(Reply::new(
        status,
        json!({
            "accepted": true,
            "duplicate": appended.duplicate,
            "position": appended.position,
            "workflow_id": target.workflow_id,
            "stream_name": stream_name,
            "message_id": message_id,
        }),
    ))
}

pub(in crate::control) async fn list(call: Call) -> Result<Reply, Refusal> {
    let streams = call
        .host()
        .workflows()
        .message_streams(&call.namespace, &call.workflow_id())
        .await?;
    let shown: Vec<Value> = streams
        .iter()
        .map(|(name, stream)| show(name, stream))
        .collect();
    Ok(Reply::ok(json!({
        "workflow_id": call.workflow_id(),
        "count": shown.len(),
        "streams": shown,
    })))
}

pub(in crate::control) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let stream_name = stream_name(&call)?;
    let streams = call
        .host()
        .workflows()
        .message_streams(&call.namespace, &call.workflow_id())
        .await?;
    let found = streams.iter().find(|(name, _)| *name == stream_name);
    let Some((name, stream)) = found else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            Reason::StreamNotFound,
            "The workflow has no such message stream.",
        )
        .with("workflow_id", call.workflow_id().as_str())
        .with("stream_name", stream_name));
    };
    Ok(Reply::ok(json!({"stream": show(name, stream)})))
}

fn stream_name(call: &Call) -> Result<String, Refusal> {
    let name = call.segment("stream_name");
    let fits = !name.is_empty()
        && name.len() <= STREAM_NAME_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    if fits {
        return Ok(name.to_owned());
    }
    let message = format!(
        "must have 1 to {STREAM_NAME_MAX} letters, digits, dots, colons, dashes or underscores"
    );
    Err(Refusal::invalid(&FieldErrors::from([(
        "stream_name".to_owned(),
        vec![message],
    )])))
}

fn show(name: &str, stream: &MessageStream) -> Value {
    json!({
        "stream_name": name,
        "last_position": stream.last_position,
        "cursor_position": stream.cursor_position,
        "pending_count": stream.last_position - stream.cursor_position,
        "duplicate_count": stream.duplicate_count,
        // Malformed input is refused before it reaches a stream.
        "malformed_count": 0,
        "last_input_outcome": stream.last_input_outcome,
        "last_input_message_id": stream.last_input_message_id,
        "last_input_at": stream.last_input_at,
    })
}
