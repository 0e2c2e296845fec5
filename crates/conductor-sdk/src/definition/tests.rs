//! Tests of the builders: the JSON of each node, every error, and a whole definition that the server accepts.

mod errors;
mod nodes;
mod task_def;
mod whole;

use longhaul_protocol::conductor::WorkflowTask;
use serde_json::{Value, json};

use super::*;

/// Returns the JSON of a list of nodes, without the members that have their default.
fn written(steps: impl Into<Steps>) -> Value {
    let mut written = serde_json::to_value(steps.into().list).unwrap();
    let default = serde_json::to_value(WorkflowTask::default()).unwrap();
    remove_defaults(&mut written, &default);
    written
}

fn remove_defaults(value: &mut Value, default: &Value) {
    match value {
        Value::Array(list) => {
            for value in list {
                remove_defaults(value, default);
            }
        }
        Value::Object(map) => {
            if map.contains_key("taskReferenceName") {
                map.retain(|name, value| name == "type" || default.get(name) != Some(value));
            }
            for value in map.values_mut() {
                remove_defaults(value, default);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks the JSON of a node that becomes one node of the list. The reference is `r`, and so is the name of an operator.
#[track_caller]
fn check(steps: impl Into<Steps>, task_type: &str, members: Value) {
    let mut expected = json!({"name": "r", "taskReferenceName": "r", "type": task_type});
    for (name, value) in members.as_object().unwrap() {
        expected[name] = value.clone();
    }
    assert_eq!(written(steps), json!([expected]));
}

/// Returns a small node.
fn task(reference: &str) -> Node {
    simple("work", reference)
}

/// Returns the JSON of the small node.
fn task_json(reference: &str) -> Value {
    json!({"name": "work", "taskReferenceName": reference, "type": "SIMPLE"})
}
