//! Reading and comparing JSON: payloads, events, lists.

use longhaul_protocol::Payload;
use serde_json::{Value, json};

/// The fields of a workflow task that show why it was created.
pub(crate) const RESUME_FIELDS: [&str; 22] = [
    "workflow_wait_kind",
    "open_wait_id",
    "resume_source_kind",
    "resume_source_id",
    "workflow_update_id",
    "update_name",
    "workflow_signal_id",
    "signal_name",
    "signal_wait_id",
    "signal_arguments",
    "workflow_command_id",
    "activity_execution_id",
    "activity_attempt_id",
    "activity_type",
    "child_call_id",
    "child_workflow_run_id",
    "workflow_sequence",
    "workflow_event_type",
    "timer_id",
    "condition_wait_id",
    "condition_key",
    "condition_definition_fingerprint",
];

/// Returns an envelope of plain JSON.
pub(crate) fn envelope(json: &str) -> Value {
    let value = longhaul_protocol::payload::from_json(json).expect("JSON");
    json!(Payload::encode(&value).expect("a value that fits"))
}

/// Puts the fields of one object into another.
pub(crate) fn merge(into: &mut Value, fields: Value) {
    let (Value::Object(into), Value::Object(fields)) = (into, fields) else {
        panic!("two objects")
    };
    into.extend(fields);
}

/// Returns one text field of every row of a list.
pub(crate) fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let rows = list.as_array().expect("a list");
    rows.iter()
        .map(|row| row[field].as_str().expect("a text"))
        .collect()
}

pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event_type"].as_str().expect("a type"))
        .collect()
}

/// Returns the payload of the only event of this type.
pub(crate) fn payload_of<'a>(events: &'a [Value], event_type: &str) -> &'a Value {
    let mut found = events
        .iter()
        .filter(|event| event["event_type"] == event_type);
    let event = found
        .next()
        .unwrap_or_else(|| panic!("no {event_type} in {:?}", types(events)));
    assert!(found.next().is_none(), "there are two {event_type}");
    &event["payload"]
}

/// Returns an envelope around these bytes.
pub(crate) fn blob(bytes: &[u8]) -> Value {
    json!({"codec": "avro", "blob": base64(bytes)})
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
