//! `cacheConfig`: a task takes the output that an earlier task of the same name and key left, and leaves its own.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus, WorkflowTask};
use serde_json::Value;

use crate::change::ReusableOutput;
use crate::conductor::event::resolve;
use crate::conductor::execution::lookup::{Lookup, OutputKey};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::{ExecutionTask, Reuse};
use crate::run::draft::Draft;

/// The largest output that is kept for later tasks, in bytes of JSON. A larger one is computed each time.
const REUSED_OUTPUT_BYTES_MAX: usize = 32 * 1024;

/// The longest key in bytes, resolved. A longer one is not looked up.
const KEY_BYTES_MAX: usize = 4096;

/// The longest time for which an output is kept, in seconds: a year.
const SECONDS_MAX: u64 = 366 * 24 * 3600;

/// Returns how the output of a task with this input is kept, if its node asks for it.
pub(crate) fn reuse_of(node: &WorkflowTask, input: &Object) -> Option<Reuse> {
    let config = node.cache_config.as_ref()?;
    let seconds = u64::try_from(config.ttl_in_second?).ok()?;
    let key = config.key.as_ref()?;
    if seconds == 0 || key.is_empty() {
        return None;
    }
    let template = Value::String(key.clone());
    let key = match resolve(&template, &Value::Object(input.clone())).ok()? {
        Value::String(key) => key,
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => other.to_string(),
    };
    (key.len() <= KEY_BYTES_MAX).then_some(Reuse {
        key,
        seconds: seconds.min(SECONDS_MAX),
    })
}

impl Pass<'_, '_> {
    /// Returns the output that an earlier task of this name and key left.
    pub(super) fn earlier_output(&self, name: &str, key: &str) -> Try<Option<Object>> {
        // A task of this decision may have left it.
        let is_same = |kept: &&ReusableOutput| kept.name == name && kept.key == key;
        let own = self.draft.outputs.iter().rev().find(is_same);
        let output = match own {
            Some(kept) => Some(&kept.output),
            None => {
                let key = OutputKey {
                    name: name.to_owned(),
                    key: key.to_owned(),
                };
                match self.found.outputs.get(&key) {
                    Some(output) => output.as_ref(),
                    None => return Err(vec![Lookup::Output(key)]),
                }
            }
        };
        Ok(output.map(|output| output.as_object().cloned().unwrap_or_default()))
    }
}

impl Draft<'_> {
    /// Keeps the output of a task that completed, if its node asks for it.
    pub(crate) fn keep_for_reuse(
        &mut self,
        task: &ExecutionTask,
        output: &Arc<Value>,
        bytes: usize,
    ) {
        let Some(reuse) = task.reuse.as_deref() else {
            return;
        };
        if task.status != TaskStatus::Completed || bytes > REUSED_OUTPUT_BYTES_MAX {
            return;
        }
        self.outputs.push(ReusableOutput {
            namespace: self.spec.namespace.clone(),
            name: task.def_name.clone(),
            key: reuse.key.clone(),
            output: Arc::clone(output),
            expires_at: self.now.plus_seconds(reuse.seconds),
        });
    }
}
