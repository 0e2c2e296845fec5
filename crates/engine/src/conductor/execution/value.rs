//! The JSON values of a run. A small one is kept in its record. A large one is stored once, in the event that brought it, and is
//! looked up when a decision reads it. A value that the present decision stores is in no event yet, so the draft keeps it in memory.

use std::sync::Arc;

use longhaul_protocol::conductor::Object;
use longhaul_protocol::history::{EventPayload, ExecutionVariablesSet};
use longhaul_protocol::sequence::HistorySeq;
use serde_json::Value;

use crate::conductor::budget::depth;
use crate::conductor::execution::lookup::{Lookup, LookupResults};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::{Stored, empty_object};
use crate::conductor::expression::{EventMember, ValueRef};
use crate::conductor::limits::{KEPT_REASON_CHARS_MAX, VALUE_DEPTH_MAX};
use crate::run::draft::Draft;
use crate::run::state::{Part, PartKey};

impl Draft<'_> {
    /// Returns how a value is kept that an event of this draft contains.
    pub(crate) fn keep(
        &mut self,
        value: &Arc<Value>,
        bytes: usize,
        sequence: HistorySeq,
        member: EventMember,
    ) -> Stored {
        let stored = Stored::of(value, bytes, sequence, member);
        if let Err(reference) = stored.get() {
            self.new_values.insert(reference, Arc::clone(value));
        }
        stored
    }

    /// Returns a stored value, or where it must be looked up.
    pub(crate) fn value<'s>(
        &'s self,
        stored: &'s Stored,
        found: &'s LookupResults,
    ) -> Result<&'s Arc<Value>, ValueRef> {
        match stored.get() {
            Ok(value) => Ok(value),
            Err(reference) => self
                .new_values
                .get(&reference)
                .or_else(|| found.values.get(&reference))
                .ok_or(reference),
        }
    }

    /// Returns a value of the run: its input, variables or output.
    pub(crate) fn run_value(&self, key: PartKey) -> Option<&Stored> {
        match self.part(key) {
            Some(Part::Value(stored)) => Some(stored),
            _ => None,
        }
    }

    /// Sets the variables of the run.
    pub(crate) fn set_variables(&mut self, variables: Object) {
        let (variables, bytes) = measured(variables);
        let sequence = self.append(EventPayload::ExecutionVariablesSet(ExecutionVariablesSet {
            variables: Arc::clone(&variables),
        }));
        let stored = self.keep(&variables, bytes, sequence, EventMember::Variables);
        self.put(PartKey::Variables, Part::Value(stored));
    }
}

impl Pass<'_, '_> {
    /// Returns a stored value.
    pub(crate) fn load(&self, stored: &Stored) -> Try<Arc<Value>> {
        match self.draft.value(stored, self.found) {
            Ok(value) => Ok(Arc::clone(value)),
            Err(reference) => Err(vec![Lookup::Value(reference)]),
        }
    }

    /// Returns a stored object.
    pub(crate) fn load_object(&self, stored: &Stored) -> Try<Object> {
        Ok(self.load(stored)?.as_object().cloned().unwrap_or_default())
    }

    /// Returns a value of the run as an object.
    pub(crate) fn load_run_value(&self, key: PartKey) -> Try<Object> {
        match self.draft.run_value(key) {
            Some(stored) => self.load_object(stored),
            None => Ok(Object::new()),
        }
    }
}

/// Returns an object as a shared value, with the length of its JSON. Operators wrap values, and a chain of failure workflows does so
/// without end: a value that is nested too deeply is replaced by an error, so that everything stored can be read.
pub(crate) fn measured(object: Object) -> (Arc<Value>, usize) {
    if object.is_empty() {
        return (empty_object(), 2);
    }
    let mut value = Value::Object(object);
    if depth(&value) > VALUE_DEPTH_MAX {
        let error = format!(
            "the value is nested deeper than {VALUE_DEPTH_MAX} levels (limit: depth of a value)"
        );
        value = serde_json::json!({ "error": error });
    }
    let value = Arc::new(value);
    let bytes = json_bytes(&value);
    (value, bytes)
}

/// Returns the length of a value as JSON.
pub(crate) fn json_bytes(value: &impl serde::Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("counting never fails");
    count.0
}

/// Returns a reason that is short enough to be kept.
pub(crate) fn kept_reason(reason: &str) -> String {
    match reason.char_indices().nth(KEPT_REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

/// Returns the members of an object. Any other value has none.
pub(crate) fn object(value: Value) -> Object {
    if let Value::Object(object) = value {
        object
    } else {
        Object::new()
    }
}
