//! Stories of operators that start other runs, wait for messages, publish events, or take the output of an earlier task.

mod events;
mod exclusive_joins;
mod inboxes;
mod outputs;
mod starts;

use serde_json::{Value, json};

/// Returns a node of an operator with its type in lower case as reference.
fn node(task_type: &str, more: Value) -> Value {
    let name = task_type.to_lowercase();
    let node = json!({"name": name, "taskReferenceName": name, "type": task_type});
    crate::conductor::world::with(node, more)
}
