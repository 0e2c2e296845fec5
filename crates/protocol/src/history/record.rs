//! Events of values that are recorded once and read back by every replay.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::payload::Payload;
use crate::sequence::CommandSeq;

/// A value that the workflow code computed once.
#[derive(Clone, Debug, Serialize)]
pub struct SideEffectRecorded {
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The recorded value.
    pub result: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
}

/// The version of changed workflow code that this run uses.
#[derive(Clone, Debug, Serialize)]
pub struct VersionMarkerRecorded {
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The name of the change in the workflow code.
    pub change_id: String,
    /// The version that this run uses.
    pub version: i32,
    /// The oldest version that the code supported.
    pub min_supported: i32,
    /// The newest version that the code supported.
    pub max_supported: i32,
}

/// A change of search attributes.
#[derive(Clone, Debug, Serialize)]
pub struct SearchAttributesUpserted {
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The attributes as the command sent them; null removes one.
    pub attributes: Map<String, Value>,
    /// All search attributes after the change.
    pub merged: Value,
    /// The types that the command named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute_types: Option<Map<String, Value>>,
}

/// A change of the memo.
#[derive(Clone, Debug, Serialize)]
pub struct MemoUpserted {
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The entries as the command sent them.
    pub entries: Payload,
    /// The whole memo after the change.
    pub merged: Payload,
}
