//! What a worker made of a task: an output, a whole result, or a part of the work.

use std::time::Duration;

use longhaul_protocol::conductor::{Object, TaskResult};
use serde::Serialize;
use serde_json::Value;

use super::TaskResponse;

/// What a worker made of a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The task is completed with this output.
    Output(Object),
    /// The worker made the whole result itself, with its status. Missing ids are filled in.
    Result(Box<TaskResult>),
    /// The task goes on later.
    InProgress(TaskInProgress),
}

impl Outcome {
    /// Returns the outcome of a completed task. An object of JSON is the output; any other value is its member `result`.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn output(value: &(impl Serialize + ?Sized)) -> TaskResponse<Self> {
        Ok(Self::Output(match serde_json::to_value(value)? {
            Value::Object(output) => output,
            other => Object::from_iter([("result".to_owned(), other)]),
        }))
    }
}

impl From<TaskResult> for Outcome {
    fn from(result: TaskResult) -> Self {
        Self::Result(Box::new(result))
    }
}

impl From<TaskInProgress> for Outcome {
    fn from(progress: TaskInProgress) -> Self {
        Self::InProgress(progress)
    }
}

/// A task that is not done yet. The server delivers it again after some time, to any worker of its type.
///
/// The lease is not extended: the task is given back. To keep a task for longer than its response time-out, use the setting
/// `lease_extend_enabled`.
#[derive(Clone, Debug)]
pub struct TaskInProgress {
    pub(crate) callback_after: Duration,
    pub(crate) output: Object,
}

impl TaskInProgress {
    /// The task is delivered again after this time, which is sent in whole seconds, rounded up.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        Self {
            callback_after: wait,
            output: Object::new(),
        }
    }

    /// Adds a member to the output, which the next delivery of the task has.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.output.insert(name.into(), value.into());
        self
    }
}

impl Default for TaskInProgress {
    /// The task is delivered again after a minute.
    fn default() -> Self {
        Self::after(Duration::from_secs(60))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn output(value: &impl Serialize) -> Value {
        match Outcome::output(value).unwrap() {
            Outcome::Output(output) => Value::Object(output),
            Outcome::Result(_) | Outcome::InProgress(_) => panic!("it is an output"),
        }
    }

    #[test]
    fn objects_are_the_output_and_other_values_its_result() {
        #[derive(Serialize)]
        struct Receipt {
            id: u32,
        }
        assert_eq!(output(&Receipt { id: 7 }), json!({"id": 7}));
        assert_eq!(output(&BTreeMap::from([("a", 1)])), json!({"a": 1}));
        assert_eq!(output(&3), json!({"result": 3}));
        assert_eq!(output(&"x"), json!({"result": "x"}));
        assert_eq!(output(&[1, 2]), json!({"result": [1, 2]}));
        assert_eq!(output(&()), json!({"result": null}));
        assert_eq!(output(&None::<u8>), json!({"result": null}));
    }

    #[test]
    fn a_value_that_json_cannot_hold_is_a_failure() {
        let failure = Outcome::output(&BTreeMap::from([(vec![1], 1)])).unwrap_err();
        assert_eq!(failure.message(), "key must be a string");
        assert!(!failure.is_terminal());
    }
}
