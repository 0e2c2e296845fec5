//! Bounds on what one evaluation may do. Templates and paths come from callers, so their cost is counted and not estimated.

use serde_json::Value;

use longhaul_protocol::conductor::Object;

/// Nodes that the expressions of one template may visit. About 20 ms of work.
pub const STEPS_MAX: u64 = 1_000_000;

/// Bytes that one template may produce. No task input and no workflow output may be larger.
pub const BYTES_MAX: u64 = 10 * 1024 * 1024;

/// How deeply the lists and maps of a resolved value may be nested. A stored record wraps the value in a few levels more, and the
/// reader of JSON accepts 127.
pub const DEPTH_MAX: usize = 100;

/// What an evaluation exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    #[error("the expressions visit more than {STEPS_MAX} values (limit: expression steps)")]
    Steps,
    #[error("the expressions produce more than {BYTES_MAX} bytes (limit: expression bytes)")]
    Bytes,
    #[error(
        "the expressions produce values nested deeper than {DEPTH_MAX} levels (limit: expression depth)"
    )]
    Depth,
    #[error(
        "the expressions are nested deeper than {} levels (limit: expression nesting)",
        super::expression::NESTING_MAX
    )]
    Nesting,
}

/// What one evaluation may still do.
#[derive(Clone, Debug)]
pub struct Budget {
    steps: u64,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps: STEPS_MAX,
            bytes: BYTES_MAX,
        }
    }
}

impl Budget {
    /// Returns a budget that is smaller than the usual one.
    pub fn new(steps: u64, bytes: u64) -> Self {
        Self { steps, bytes }
    }

    /// Takes `count` steps.
    pub fn steps(&mut self, count: usize) -> Result<(), Limit> {
        take(&mut self.steps, count, Limit::Steps)
    }

    /// Takes `count` bytes of output.
    pub fn bytes(&mut self, count: usize) -> Result<(), Limit> {
        take(&mut self.bytes, count, Limit::Bytes)
    }

    /// Copies a value into the output, at a depth of the output.
    pub fn copy(&mut self, value: &Value, depth: usize) -> Result<Value, Limit> {
        if depth > DEPTH_MAX {
            return Err(Limit::Depth);
        }
        self.bytes(8)?;
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => {
                self.bytes(text.len())?;
                Value::String(text.clone())
            }
            Value::Array(list) => {
                let mut copied = Vec::with_capacity(list.len());
                for element in list {
                    copied.push(self.copy(element, depth + 1)?);
                }
                Value::Array(copied)
            }
            Value::Object(map) => {
                let mut copied = Object::new();
                for (name, value) in map {
                    self.bytes(name.len())?;
                    copied.insert(name.clone(), self.copy(value, depth + 1)?);
                }
                Value::Object(copied)
            }
        })
    }
}

fn take(left: &mut u64, count: usize, limit: Limit) -> Result<(), Limit> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    *left = left.checked_sub(count).ok_or(limit)?;
    Ok(())
}

/// Returns how deeply a value is nested. A scalar has the depth 0.
pub(super) fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut stack = vec![(value, 0)];
    while let Some((value, depth)) = stack.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(list) => stack.extend(list.iter().map(|value| (value, depth + 1))),
            Value::Object(map) => stack.extend(map.values().map(|value| (value, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    deepest
}
