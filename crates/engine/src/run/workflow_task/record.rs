//! Commands that only record a value: side effects, version markers, search attributes, memo.

use std::sync::Arc;

use longhaul_protocol::Payload;
use longhaul_protocol::history::{
    EventPayload, LimitBreach, MemoUpserted, PAYLOAD_CODEC, SearchAttributesUpserted,
    SideEffectRecorded, VersionMarkerRecorded,
};
use longhaul_protocol::payload::memo;
use longhaul_protocol::sequence::CommandSeq;
use serde_json::{Map, Value};

use crate::limits::{self, Limits};
use crate::run::draft::Draft;

impl Draft<'_> {
    pub(crate) fn record_side_effect(&mut self, sequence: CommandSeq, result: &Payload) {
        self.append(EventPayload::SideEffectRecorded(SideEffectRecorded {
            sequence,
            result: result.clone(),
            payload_codec: PAYLOAD_CODEC,
        }));
    }

    pub(crate) fn record_version_marker(
        &mut self,
        sequence: CommandSeq,
        change_id: &str,
        version: i32,
        (min, max): (i32, i32),
    ) {
        self.append(EventPayload::VersionMarkerRecorded(VersionMarkerRecorded {
            sequence,
            change_id: change_id.to_owned(),
            version,
            min_supported: min,
            max_supported: max,
        }));
        Arc::make_mut(&mut self.core.version_markers).insert(change_id.to_owned(), version);
    }

    pub(crate) fn upsert_search_attributes(
        &mut self,
        sequence: CommandSeq,
        attributes: &Map<String, Value>,
        attribute_types: Option<&Map<String, Value>>,
    ) -> Result<(), LimitBreach> {
        let merged = merge_attributes(&self.core.search_attributes, attributes);
        check_attributes(&merged, self.limits)?;
        if let Some(types) = attribute_types {
            Arc::make_mut(&mut self.core.search_attribute_types).extend(types.clone());
        }
        self.append(EventPayload::SearchAttributesUpserted(
            SearchAttributesUpserted {
                sequence,
                attributes: attributes.clone(),
                merged: Value::Object(merged.clone()),
                attribute_types: attribute_types.cloned(),
            },
        ));
        self.core.search_attributes = Arc::new(merged);
        Ok(())
    }

    pub(crate) fn upsert_memo(
        &mut self,
        sequence: CommandSeq,
        entries: &Payload,
    ) -> Result<(), LimitBreach> {
        let merged =
            memo::merge(self.core.memo.as_ref(), entries).map_err(|error| memo_breach(&error))?;
        self.append(EventPayload::MemoUpserted(MemoUpserted {
            sequence,
            entries: entries.clone(),
            merged: merged.clone(),
        }));
        self.core.memo = Some(merged);
        Ok(())
    }
}

/// Merges attributes: keys with a null value are deleted, the others replaced.
fn merge_attributes(
    current: &Map<String, Value>,
    changes: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = current.clone();
    for (key, value) in changes {
        if value.is_null() {
            merged.remove(key);
        } else {
            merged.insert(key.clone(), value.clone());
        }
    }
    merged
}

/// Checks the size limits of a whole set of search attributes; the control plane applies the same at start.
pub(crate) fn check_attributes(
    attributes: &Map<String, Value>,
    limits: &Limits,
) -> Result<(), LimitBreach> {
    const KIND: &str = "search_attribute_size";
    limits::check(KIND, attributes.len() as u64, limits.search_attribute_count)?;
    let mut total = 0;
    for (key, value) in attributes {
        let value_bytes = value
            .as_str()
            .map_or_else(|| value.to_string().len(), str::len) as u64;
        limits::check(KIND, key.len() as u64, limits.search_attribute_key_bytes)?;
        limits::check(KIND, value_bytes, limits.search_attribute_value_bytes)?;
        total += key.len() as u64 + value_bytes;
    }
    limits::check(KIND, total, limits.search_attribute_bytes)
}

/// Returns the limit breach of a failed merge. Only the size can fail here; wrong shapes were refused before the engine was called.
fn memo_breach(error: &memo::Error) -> LimitBreach {
    match error {
        memo::Error::Limit { value, max, .. } => LimitBreach {
            kind: "memo_size",
            value: *value as u64,
            configured: *max as u64,
        },
        memo::Error::Shape(_) | memo::Error::Codec(_) => LimitBreach {
            kind: "memo_size",
            value: 0,
            configured: 0,
        },
    }
}
