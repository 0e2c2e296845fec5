//! Values that are recorded once and read back by every replay (engine.md §5.8).

use serde::Serialize;
use serde_json::{Map, Value};

use crate::payload::Payload;

/// A recorded value.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SideEffectRecorded {
    pub sequence: u64,
    pub result: Payload,
    pub payload_codec: &'static str,
}

/// A recorded choice of version.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct VersionMarkerRecorded {
    pub sequence: u64,
    pub change_id: String,
    pub version: i32,
    pub min_supported: i32,
    pub max_supported: i32,
}

/// Attributes as sent, and after the merge.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SearchAttributesUpserted {
    pub sequence: u64,
    pub attributes: Map<String, Value>,
    pub merged: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute_types: Option<Map<String, Value>>,
}

/// Memo entries as sent, and after the merge.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct MemoUpserted {
    pub sequence: u64,
    pub entries: Payload,
    pub merged: Payload,
}
