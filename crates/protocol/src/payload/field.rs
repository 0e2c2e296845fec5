//! Payload positions in requests: which JSON shapes each one accepts, and which field a refusal names. Envelopes are
//! recognised only at these positions, never inside application data.
//!
//! Positions that accept plain JSON need the text of the request ([`RawValue`]), because a parsed tree no longer has the
//! difference between `7` and `7.0`, which the codec keeps.

use serde_json::value::RawValue;
use thiserror::Error;

use super::envelope::{Envelope, Json, Shape, envelope_attempt};
use super::{CODEC, CodecError, Payload, from_json};

/// A refusal that names the field at fault, for the `errors` object of a 422.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// Where, such as `commands.0.result.blob`.
    pub path: String,
    /// What is wrong; begins with the reason and a colon when the reason is one of the codec's.
    pub message: String,
    /// The machine reason; `validation_failed` when only the text says more.
    pub reason: &'static str,
}

impl FieldError {
    pub(super) fn codec(path: impl Into<String>, error: &CodecError) -> Self {
        Self {
            path: path.into(),
            message: error.refusal(),
            reason: error.reason(),
        }
    }

    pub(super) fn plain(path: impl Into<String>, message: &str) -> Self {
        Self {
            path: path.into(),
            message: message.to_owned(),
            reason: "validation_failed",
        }
    }
}

/// A required payload of a workflow command: an envelope, or a bare base64 string.
///
/// # Errors
/// Names `<path>.codec` or `<path>.blob` for an envelope, `<path>` for anything else.
pub fn command_payload<'a>(json: impl Into<Json<'a>>, path: &str) -> Result<Payload, FieldError> {
    match Shape::of(json.into()) {
        Shape::Envelope(envelope) => envelope.payload(path),
        Shape::String(blob) => {
            Payload::from_blob(&blob).map_err(|error| FieldError::codec(path, &error))
        }
        Shape::Null | Shape::Other => Err(not_an_envelope(path)),
    }
}

/// An optional payload of a workflow command; null counts as absent.
///
/// # Errors
/// As [`command_payload`].
pub fn optional_command_payload<'a>(
    json: Option<impl Into<Json<'a>>>,
    path: &str,
) -> Result<Option<Payload>, FieldError> {
    match json.map(Into::into) {
        Some(json) if !json.is_null() => command_payload(json, path).map(Some),
        _ => Ok(None),
    }
}

/// A payload that must be an inline envelope, such as memo entries.
///
/// # Errors
/// As [`command_payload`], except that a bare string is refused too.
pub fn envelope_only<'a>(json: impl Into<Json<'a>>, path: &str) -> Result<Payload, FieldError> {
    match Shape::of(json.into()) {
        Shape::Envelope(envelope) => envelope.payload(path),
        Shape::Null | Shape::String(_) | Shape::Other => Err(not_an_envelope(path)),
    }
}

/// Arguments of a start, signal, query, update or schedule action: nothing, a JSON array that the server
/// encodes, or an envelope of an array.
///
/// # Errors
/// Names `<path>.codec` or `<path>.blob` for an envelope, `<path>` for anything else.
pub fn input_list(json: Option<&RawValue>, path: &str) -> Result<Payload, FieldError> {
    let Some(json) = json else {
        return Ok(Payload::empty_list());
    };
    match json.get().as_bytes().first() {
        Some(b'n') => Ok(Payload::empty_list()),
        Some(b'[') => plain_json(json, path),
        Some(b'{') => match Envelope::of_text(json) {
            Some(envelope) if envelope.codec.is_some() => envelope.list(path),
            Some(envelope) if envelope.is_empty() => Ok(Payload::empty_list()),
            _ => Err(not_a_list(path)),
        },
        _ => Err(not_a_list(path)),
    }
}

/// The result of an activity: an envelope, nothing, or any other JSON, which the server encodes.
///
/// # Errors
/// Names `<path>.codec` or `<path>.blob` for an envelope, `<path>` for plain JSON that cannot be encoded.
pub fn activity_result(json: Option<&RawValue>, path: &str) -> Result<Payload, FieldError> {
    let Some(json) = json else {
        return Ok(Payload::null());
    };
    match envelope_attempt(json.into()) {
        Some(envelope) => envelope.payload(path),
        None => plain_json(json, path),
    }
}

/// The result of a query: the envelope is the authority, the display copy is encoded only in its absence.
///
/// # Errors
/// Names `result_envelope`, its members, or `result`.
pub fn query_result(
    result_envelope: Option<&RawValue>,
    result: Option<&RawValue>,
) -> Result<Payload, FieldError> {
    match result_envelope.map(Json::from) {
        Some(envelope) if !envelope.is_null() => envelope_only(envelope, "result_envelope"),
        // The display copy is data as it stands: an object with a member named `codec` is no envelope here.
        _ => result.map_or_else(
            || Ok(Payload::null()),
            |result| plain_json(result, "result"),
        ),
    }
}

/// The details of a failure. `None` means plain JSON diagnostics, which the caller keeps as they are.
///
/// # Errors
/// Names `<path>.codec` or `<path>.blob` when the details try to be an envelope and fail.
pub fn failure_details<'a>(
    json: impl Into<Json<'a>>,
    path: &str,
) -> Result<Option<Payload>, FieldError> {
    envelope_attempt(json.into())
        .map(|envelope| envelope.payload(path))
        .transpose()
}

/// Any JSON, encoded by the server. No envelope is recognised.
///
/// # Errors
/// Names `path`: an integer or nesting the codec cannot hold.
pub fn plain_json(json: &RawValue, path: &str) -> Result<Payload, FieldError> {
    from_json(json.get())
        .and_then(|value| Payload::encode(&value))
        .map_err(|error| FieldError::codec(path, &error))
}

/// A `payload_codec` next to payloads: absent, null, or `avro`.
///
/// # Errors
/// Names `path`.
pub fn payload_codec(json: Option<&serde_json::Value>, path: &str) -> Result<(), FieldError> {
    match json {
        None | Some(serde_json::Value::Null) => Ok(()),
        Some(serde_json::Value::String(codec)) if codec == CODEC => Ok(()),
        Some(_) => Err(FieldError::codec(path, &CodecError::UnsupportedCodec)),
    }
}

fn not_an_envelope(path: &str) -> FieldError {
    FieldError::codec(
        path,
        &CodecError::InvalidEnvelope("a payload envelope {\"codec\", \"blob\"} is expected"),
    )
}

fn not_a_list(path: &str) -> FieldError {
    FieldError::plain(
        path,
        "must be a JSON array or a payload envelope {\"codec\", \"blob\"}",
    )
}

#[cfg(test)]
mod tests;
