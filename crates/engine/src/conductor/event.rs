//! Events: messages that runs and callers publish, and the handlers that act on them. The rules are here; the host delivers.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_protocol::conductor::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expression::{Found, Roots, Template, Unresolved};
use super::{Budget, Limit};

/// The largest payload of an event in bytes. It is kept with its sender until it is delivered, and with the records of what the
/// handlers did; large values belong into a run, whose id the payload can name.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Event handlers of a namespace. All of them are in memory, and each message is compared with those of its event.
pub const HANDLERS_MAX: usize = 1000;

/// Actions of one handler. Each is a commit of its own.
pub const ACTIONS_MAX: usize = 50;

/// The largest event handler in bytes, as JSON.
pub const HANDLER_BYTES_MAX: usize = 256 * 1024;

/// How deeply texts of a payload are expanded: JSON in JSON in JSON.
const EXPANSION_DEPTH_MAX: usize = 8;

/// A published message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventMessage {
    /// What handlers name: `provider:rest`.
    pub event: String,
    /// The same when the message is delivered again.
    pub message_id: String,
    pub payload: Arc<Value>,
    /// How many runs caused each other up to this message.
    #[serde(default)]
    pub depth: u32,
}

/// Where an EVENT task publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink<'a> {
    /// The handlers of this server, with the name after the workflow, if there is one.
    Conductor(Option<&'a str>),
    /// Another provider. None is connected.
    Unknown(&'a str),
}

impl<'a> Sink<'a> {
    /// Reads the text of a sink.
    pub fn of(sink: &'a str) -> Self {
        match sink.split_once(':') {
            None if sink == "conductor" => Self::Conductor(None),
            Some(("conductor", "")) => Self::Conductor(None),
            Some(("conductor", name)) => Self::Conductor(Some(name)),
            Some((provider, _)) => Self::Unknown(provider),
            None => Self::Unknown(sink),
        }
    }
}

/// Resolves `${…}` of an action. Paths begin at the payload.
pub fn resolve(template: &Value, payload: &Value) -> Result<Value, Limit> {
    let resolved =
        Template::parse(template).resolve(&PayloadRoots(payload), &mut Budget::default());
    match resolved {
        Ok(value) => Ok(value),
        Err(Unresolved::Limit(limit)) => Err(limit),
        // A payload is in memory.
        Err(Unresolved::Unloaded(_)) => Ok(Value::Null),
    }
}

/// Replaces texts of a payload that are JSON objects or lists by what they contain.
pub fn expand_inline_json(value: &Value) -> Value {
    expand(value, 0)
}

fn expand(value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) if depth < EXPANSION_DEPTH_MAX && looks_like_json(text) => {
            match serde_json::from_str::<Value>(text) {
                Ok(inner) => expand(&inner, depth + 1),
                Err(_) => value.clone(),
            }
        }
        Value::Array(list) => list.iter().map(|value| expand(value, depth)).collect(),
        Value::Object(map) => {
            let members = map.iter();
            let expanded = members.map(|(name, value)| (name.clone(), expand(value, depth)));
            Value::Object(expanded.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn looks_like_json(text: &str) -> bool {
    let text = text.trim();
    (text.starts_with('{') && text.ends_with('}')) || (text.starts_with('[') && text.ends_with(']'))
}

/// Adds what identifies the message to an input or output.
pub fn with_message(mut members: Object, message: &EventMessage) -> Object {
    let id = Value::String(message.message_id.clone());
    members.insert("conductor.event.messageId".to_owned(), id);
    let name = Value::String(message.event.clone());
    members.insert("conductor.event.name".to_owned(), name);
    members
}

/// The members of a payload.
struct PayloadRoots<'a>(&'a Value);

impl Roots for PayloadRoots<'_> {
    fn workflow_member(&self, name: &str) -> Found<'_> {
        self.task_member("workflow", name)
    }

    fn task_member(&self, reference: &str, name: &str) -> Found<'_> {
        let found = self.0.get(reference).and_then(|value| value.get(name));
        Found::optional(found)
    }

    fn has_task(&self, _reference: &str) -> bool {
        false
    }

    fn named(&self, name: &str) -> Found<'_> {
        Found::optional(self.0.get(name))
    }

    fn environment(&self, _name: &str) -> Option<Cow<'_, str>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sink_names_its_provider() {
        for (sink, expected) in [
            ("conductor", Sink::Conductor(None)),
            ("conductor:ready", Sink::Conductor(Some("ready"))),
            ("conductor:a:b", Sink::Conductor(Some("a:b"))),
            ("kafka:topic", Sink::Unknown("kafka")),
            ("sqs", Sink::Unknown("sqs")),
            ("", Sink::Unknown("")),
        ] {
            assert_eq!(Sink::of(sink), expected, "{sink}");
        }
    }

    #[test]
    fn expressions_begin_at_the_payload() {
        let payload =
            json!({"id": "w1", "order": {"n": 3, "items": [{"k": "a"}]}, "workflow": {"input": 1}});
        let template = json!({
            "whole": "${order}", "n": "${order.n}", "text": "id ${id}", "item": "${order.items[0].k}",
            "none": "${missing.x}", "w": "${workflow.input}", "top": "${id}",
        });
        assert_eq!(
            resolve(&template, &payload).unwrap(),
            json!({
                "whole": {"n": 3, "items": [{"k": "a"}]}, "n": 3, "text": "id w1", "item": "a", "none": null, "w": 1,
                "top": "w1",
            })
        );
    }

    #[test]
    fn texts_with_json_are_expanded() {
        let payload = json!({"a": "{\"b\": \"[1, 2]\"}", "plain": "12", "broken": "{not json}", "list": ["[3]"]});
        assert_eq!(
            expand_inline_json(&payload),
            json!({"a": {"b": [1, 2]}, "plain": "12", "broken": "{not json}", "list": [[3]]})
        );
    }
}
