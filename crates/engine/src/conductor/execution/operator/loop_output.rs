//! The output of a loop: its counter and item, and for each iteration the outputs of the body tasks.
//!
//! The record of an open loop has only the counter and the item. The rest is put together from the body when an expression, the end
//! of the loop or a client reads it.

use std::sync::Arc;

use longhaul_protocol::conductor::Object;
use serde_json::Value;

use crate::conductor::execution::state::{ExecutionTask, Stored};
use crate::conductor::execution::value::object;
use crate::conductor::expression::ValueRef;
use crate::conductor::limits::TASK_PAYLOAD_BYTES_MAX;
use crate::run::draft::Draft;
use crate::run::state::{Part, PartKey};

/// Why a loop has no output now.
pub(crate) enum NoOutput {
    /// These values must be looked up first.
    Unloaded(Vec<ValueRef>),
    /// The output would be over the limit. Contains a sentence with both sizes.
    TooLarge(String),
}

/// Returns whether a member of the output of an open loop is in its record.
pub(crate) fn is_counter(member: &str) -> bool {
    matches!(member, "iteration" | "loopIndex" | "loopItem")
}

/// Returns the tasks of the body of a loop that have ended, oldest first.
pub(crate) fn body_tasks<'a>(
    draft: &'a Draft<'_>,
    loop_seq: u64,
) -> impl Iterator<Item = &'a Arc<ExecutionTask>> {
    let parts = draft.parts_between(PartKey::Past(loop_seq), PartKey::Past(u64::MAX));
    in_body(loop_seq, parts.map(|(_, part)| part))
}

/// Returns the tasks among these parts that are in the body of a loop. The parts are those of past tasks.
pub(crate) fn in_body<'a>(
    loop_seq: u64,
    parts: impl Iterator<Item = &'a Part>,
) -> impl Iterator<Item = &'a Arc<ExecutionTask>> {
    parts
        .filter_map(Part::as_task)
        .filter(move |task| task.looped_by == Some(loop_seq))
}

/// Returns the output of a loop. `load` returns a value, or where it must be looked up.
pub(crate) fn loop_output<'a>(
    task: &ExecutionTask,
    body: impl Iterator<Item = &'a Arc<ExecutionTask>>,
    load: impl Fn(&Stored) -> Result<Arc<Value>, ValueRef>,
) -> Result<Object, NoOutput> {
    let body: Vec<&Arc<ExecutionTask>> = body.filter(|task| !task.retried).collect();
    let bytes = body.iter().map(|task| task.output.bytes()).sum::<u64>() + task.output.bytes();
    if bytes > TASK_PAYLOAD_BYTES_MAX as u64 {
        return Err(NoOutput::TooLarge(format!(
            "The output of the loop has {bytes} bytes, more than {TASK_PAYLOAD_BYTES_MAX} (limit: task output)"
        )));
    }
    let mut missing = Vec::new();
    let mut load = |stored: &Stored| match load(stored) {
        Ok(value) => Value::clone(&value),
        Err(reference) => {
            missing.push(reference);
            Value::Null
        }
    };
    let mut output = object(load(&task.output));
    for task in body {
        let value = load(&task.output);
        let iteration = output
            .entry(task.iteration.to_string())
            .or_insert_with(|| Value::Object(Object::new()));
        if let Value::Object(iteration) = iteration {
            iteration.insert(task.node_reference().to_owned(), value);
        }
    }
    if missing.is_empty() {
        Ok(output)
    } else {
        Err(NoOutput::Unloaded(missing))
    }
}
