//! Payloads: application values in requests, replies and history. `docs/protocol/payloads.md` has the rules.
//!
//! A payload is text that was checked once and is then carried verbatim. It is decoded only to be shown, merged or
//! inspected. This module owns the codec and the shapes that a payload may have in a request. The caller decides how large
//! a payload may be and checks it with [`Payload::exceeds`], because size is not shape.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::Error as _;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod blob;
mod decode;
mod display;
mod encode;
mod envelope;
mod error;
mod field;
mod json;
mod map;
pub mod memo;
mod value;

#[cfg(test)]
mod tests;

pub use blob::validate_blob;
pub use decode::{decode, validate};
pub use display::{Projection, display};
pub use encode::encode;
pub use envelope::Json;
pub use error::CodecError;
pub use field::{
    FieldError, activity_result, command_payload, envelope_only, failure_details, input_list,
    optional_command_payload, payload_codec, plain_json, query_result,
};
pub use json::{encoded_bytes_min, from_json};
pub use map::Map;
pub use value::{Kind, Value};

/// The only codec of the protocol.
pub const CODEC: &str = "avro";

/// How many containers may be nested in one value. The format has no limit, but published workers crash on a few
/// hundred levels, so the server refuses such frames.
pub const DEPTH_MAX: usize = 256;

/// Single-object marker and format version.
const FRAME_MARKER: [u8; 2] = [0xc3, 0x01];

/// Marker and the fingerprint of `durable_workflow.protocol.Value` version 1, least significant byte first.
const FRAME_PREFIX: [u8; 10] = [0xc3, 0x01, 0xe2, 0xa3, 0x3d, 0xff, 0x55, 0x80, 0x22, 0x37];

const NULL_BLOB: &str = "wwHioz3/VYAiNwA=";
const EMPTY_LIST_BLOB: &str = "wwHioz3/VYAiNwwA";

/// An inline payload whose blob was validated. Cloning is cheap.
///
/// `==` compares the text. Two blobs with the same meaning can differ (map order, block layout), so decode with
/// [`Payload::decode`] before you compare values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    blob: Arc<str>,
}

impl Payload {
    /// Takes a blob as a client sent it, after validating it completely.
    ///
    /// # Errors
    /// As [`validate_blob`].
    pub fn from_blob(blob: &str) -> Result<Self, CodecError> {
        validate_blob(blob)?;
        Ok(Self { blob: blob.into() })
    }

    /// Encodes a value in canonical form.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode(value: &Value) -> Result<Self, CodecError> {
        Ok(Self {
            blob: blob::to_text(&encode(value)?).into(),
        })
    }

    /// The null value: an absent result.
    #[must_use]
    pub fn null() -> Self {
        Self {
            blob: NULL_BLOB.into(),
        }
    }

    /// The empty array: absent arguments.
    #[must_use]
    pub fn empty_list() -> Self {
        Self {
            blob: EMPTY_LIST_BLOB.into(),
        }
    }

    /// Decodes the value. Fails only if the stored text is damaged.
    ///
    /// # Errors
    /// As [`decode()`].
    pub fn decode(&self) -> Result<Value, CodecError> {
        decode(&blob::to_frame(&self.blob)?)
    }

    /// Decodes the value as JSON for people and dashboards. Programs should read the envelope.
    ///
    /// # Errors
    /// As [`decode()`].
    pub fn display(&self) -> Result<serde_json::Value, CodecError> {
        self.decode().map(|value| display(&value).to_json())
    }

    /// Returns the base64 text.
    #[must_use]
    pub fn blob(&self) -> &str {
        &self.blob
    }

    /// Whether the text is longer than `limit` characters. The payload limit counts base64 text.
    #[must_use]
    pub fn exceeds(&self, limit: usize) -> bool {
        self.blob.len() > limit
    }

    /// Returns the case of the value, read from the first bytes only; `None` if the stored text is damaged.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        blob::peek_kind(&self.blob)
    }

    /// Whether the value is an array, as arguments are.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.kind() == Some(Kind::Array)
    }

    /// Whether the value is a map.
    #[must_use]
    pub fn is_map(&self) -> bool {
        self.kind() == Some(Kind::Map)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut envelope = serializer.serialize_struct("Payload", 2)?;
        envelope.serialize_field("codec", CODEC)?;
        envelope.serialize_field("blob", &*self.blob)?;
        envelope.end()
    }
}

/// Reads back what this server stored. The blob is trusted and not validated again. Payloads of requests go through the
/// functions that name a field, such as [`input_list`] and [`command_payload`].
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            codec: Cow<'a, str>,
            #[serde(borrow)]
            blob: Cow<'a, str>,
        }
        let envelope = Envelope::deserialize(deserializer)?;
        if envelope.codec != CODEC {
            return Err(D::Error::custom(CodecError::UnsupportedCodec));
        }
        Ok(Self {
            blob: envelope.blob.into(),
        })
    }
}
