//! The sections of an export that are collected from its events: signals, updates, activities, timers, failures, children, and the
//! paths of all payloads. They have no other source, so a bundle cannot contradict its history.

use crate::control::workflows::local_activity_options::local_options;
use std::collections::BTreeMap;

use longhaul_host::StoredEvent;
use serde_json::{Map, Value, json};

/// The lists of a bundle.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) signals: Vec<Value>,
    pub(super) updates: Vec<Value>,
    pub(super) activities: Vec<Value>,
    pub(super) timers: Vec<Value>,
    pub(super) failures: Vec<Value>,
    pub(super) children: Vec<Value>,
    pub(super) parents: Vec<Value>,
    /// Paths of all payloads inside events.
    pub(super) payload_paths: Vec<String>,
}

/// Rows by id, in the order in which they first appeared.
#[derive(Default)]
struct Things {
    order: Vec<String>,
    rows: BTreeMap<String, Value>,
}

impl Things {
    /// Returns the row of an id, and creates it if it is new.
    fn row(&mut self, id: &Value) -> Option<&mut Value> {
        let id = id.as_str()?.to_owned();
        if !self.rows.contains_key(&id) {
            self.order.push(id.clone());
            self.rows.insert(id.clone(), json!({"id": id}));
        }
        self.rows.get_mut(&id)
    }

    fn into_list(mut self) -> Vec<Value> {
        self.order
            .iter()
            .filter_map(|id| self.rows.remove(id))
            .collect()
    }
}

/// Collects the sections from events, page by page and in order.
#[derive(Default)]
pub(super) struct Fold {
    sections: Sections,
    signals: Things,
    updates: Things,
    activities: Things,
    timers: Things,
    children: Things,
    events: usize,
}

impl Fold {
    pub(super) fn take(&mut self, event: &StoredEvent) {
        let Self {
            sections,
            signals,
            updates,
            activities,
            timers,
            children,
            events,
        } = self;
        let number = *events;
        *events += 1;
        let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
        find_payloads(
            &payload,
            &format!("history_events[{number}].payload"),
            &mut sections.payload_paths,
        );
        let name = event.event_type.as_str();
        match name {
            "WorkflowStarted" => sections.parents.extend(parent(&payload)),
            "SignalReceived" | "SignalApplied" => note(signals, "signal_id", event, &payload),
            "UpdateAccepted" | "UpdateRejected" | "UpdateApplied" | "UpdateCompleted" => {
                note(updates, "update_id", event, &payload);
            }
            _ if name.starts_with("Activity") => {
                note(activities, "activity_execution_id", event, &payload);
                if name == "ActivityScheduled" && payload["local_activity"] == true {
                    let policy = payload["activity"].get("retry_policy");
                    if let Some(row) = activities.row(&payload["activity_execution_id"]) {
                        row["activity_options"] = local_options(policy);
                    }
                }
            }
            _ if name.starts_with("Timer") => note(timers, "timer_id", event, &payload),
            _ if name.starts_with("ChildRun") => {
                note(children, "child_workflow_run_id", event, &payload);
            }
            _ => {}
        }
        if payload["failure_id"].is_string() {
            sections.failures.push(failure(event, &payload));
        }
    }

    pub(super) fn finish(self) -> Sections {
        Sections {
            signals: self.signals.into_list(),
            updates: self.updates.into_list(),
            activities: self.activities.into_list(),
            timers: self.timers.into_list(),
            children: self.children.into_list(),
            ..self.sections
        }
    }
}

/// Adds an event to the row of its id: its plain keys, its type and its time. Payloads stay in the events.
fn note(things: &mut Things, id: &str, event: &StoredEvent, payload: &Value) {
    let Some(Value::Object(row)) = things.row(&payload[id]) else {
        return;
    };
    if let Value::Object(fields) = payload {
        for (key, value) in fields {
            if value.is_string() || value.is_number() || value.is_boolean() {
                row.insert(key.clone(), value.clone());
            }
        }
    }
    row.insert("last_event_type".to_owned(), json!(event.event_type));
    row.insert("last_event_sequence".to_owned(), json!(event.sequence));
    row.insert("last_event_at".to_owned(), json!(event.recorded_at));
    row.entry("first_event_sequence")
        .or_insert_with(|| json!(event.sequence));
}

fn failure(event: &StoredEvent, payload: &Value) -> Value {
    let mut row = Map::new();
    row.insert("id".to_owned(), payload["failure_id"].clone());
    row.insert("event_sequence".to_owned(), json!(event.sequence));
    row.insert("event_type".to_owned(), json!(event.event_type));
    row.insert("recorded_at".to_owned(), json!(event.recorded_at));
    for key in [
        "failure_category",
        "message",
        "exception_type",
        "exception_class",
        "non_retryable",
        "activity_execution_id",
        "child_workflow_run_id",
        "update_id",
    ] {
        if let Some(value) = payload.get(key) {
            row.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(row)
}

fn parent(payload: &Value) -> Option<Value> {
    let run_id = payload.get("parent_workflow_run_id")?;
    Some(json!({
        "workflow_instance_id": payload.get("parent_workflow_instance_id"),
        "workflow_run_id": run_id,
    }))
}

/// Finds the payloads in a value: objects with a codec, a blob and no other key.
fn find_payloads(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if fields.len() == 2 && fields.contains_key("codec") && fields.contains_key("blob") {
                found.push(path.to_owned());
                return;
            }
            for (key, value) in fields {
                find_payloads(value, &format!("{path}.{key}"), found);
            }
        }
        Value::Array(items) => {
            for (number, value) in items.iter().enumerate() {
                find_payloads(value, &format!("{path}[{number}]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
