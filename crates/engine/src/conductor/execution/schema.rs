//! Schemas that definitions enforce: the input of a run and of a task for workers before it begins, and the output before it completes.
//! The comparison is made outside of the engine, like a script.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, SchemaDef, TaskStatus};
use serde_json::Value;

use crate::Rejection;
use crate::conductor::definition::Snapshot;
use crate::conductor::definition::schemas::is_json;
use crate::conductor::execution::lookup::{Comparison, Lookup, LookupResults};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::{ExecutionTask, Waiting};
use crate::run::state::PartKey;

/// Why a value is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// It differs from the schema, or the schema cannot be used.
    Differs(String),
    /// It could not be compared. Another attempt may succeed.
    Unknown(String),
}

impl Mismatch {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::Differs(message) | Self::Unknown(message) => message,
        }
    }

    /// Returns how a task with such an input or output ends. The same value comes again each time, so only a comparison is repeated.
    fn status(&self) -> TaskStatus {
        match self {
            Self::Differs(_) => TaskStatus::FailedWithTerminalError,
            Self::Unknown(_) => TaskStatus::Failed,
        }
    }
}

impl From<Mismatch> for Rejection {
    fn from(mismatch: Mismatch) -> Self {
        match mismatch {
            Mismatch::Differs(message) => Self::SchemaMismatch { message },
            Mismatch::Unknown(message) => Self::SchemaNotCompared { message },
        }
    }
}

/// Compares the input of a run that begins with the schema of its definition. The input is made only if there is one.
pub(crate) fn check_input(
    snapshot: &Snapshot,
    input: impl FnOnce() -> Try<Object>,
    found: &LookupResults,
) -> Try<Result<(), Mismatch>> {
    let definition = snapshot.definition();
    if !definition.enforce_schema || definition.input_schema.is_none() {
        return Ok(Ok(()));
    }
    let what = || format!("The input of workflow {}", definition.name);
    compare(definition.input_schema.as_ref(), &input()?, what, found)
}

/// Compares a value with a schema. A schema without content was not found when the run began, and is not enforced.
fn compare(
    schema: Option<&SchemaDef>,
    value: &Object,
    what: impl FnOnce() -> String,
    found: &LookupResults,
) -> Try<Result<(), Mismatch>> {
    let Some((schema, data)) = schema
        .filter(|schema| is_json(schema))
        .and_then(|schema| Some((schema, schema.data.as_ref()?)))
    else {
        return Ok(Ok(()));
    };
    let text = |object: &Object| Arc::from(Value::Object(object.clone()).to_string());
    let comparison = Comparison {
        schema: text(data),
        value: text(value),
    };
    let Some(result) = found.comparisons.get(&comparison) else {
        return Err(vec![Lookup::Comparison(comparison)]);
    };
    let name = match schema.name.as_str() {
        "" => "its schema".to_owned(),
        name => format!("schema {name} version {}", schema.version),
    };
    Ok(match result {
        Ok(differences) if differences.is_empty() => Ok(()),
        Ok(differences) => Err(Mismatch::Differs(format!(
            "{} does not match {name}: {}",
            what(),
            differences.join("; ")
        ))),
        Err(failure) => {
            let message = format!(
                "{} could not be compared with {name}: {}",
                what(),
                failure.message
            );
            Err(if failure.is_retriable {
                Mismatch::Unknown(message)
            } else {
                Mismatch::Differs(message)
            })
        }
    })
}

impl Pass<'_, '_> {
    /// Fails a run that begins if its input does not match. The caller of a start is refused before; this is for runs that other runs
    /// start.
    pub(crate) fn check_own_input(&mut self) -> Try<()> {
        let input = || self.load_run_value(PartKey::Input);
        match check_input(&self.snapshot, input, self.found)? {
            Ok(()) => Ok(()),
            Err(mismatch) => self.fail_without_task(mismatch.into_message()),
        }
    }

    /// Compares the output of a run that completes. Returns why it fails instead.
    pub(crate) fn check_own_output(&self, output: &Object) -> Try<Result<(), Mismatch>> {
        let definition = self.snapshot.definition();
        if !definition.enforce_schema {
            return Ok(Ok(()));
        }
        let what = || format!("The output of workflow {}", definition.name);
        compare(definition.output_schema.as_ref(), output, what, self.found)
    }

    /// Begins a task for workers whose input must match a schema: puts it into its queue, or ends it.
    pub(crate) fn begin_queued(&mut self, task: &ExecutionTask, place: &Place) -> Try<()> {
        if task.waiting != Waiting::Nothing || task.status != TaskStatus::Scheduled {
            return Ok(());
        }
        let definition = self.task_def(place.node().task(), &task.def_name)?;
        let input = self.load_object(&task.input)?;
        self.scripts += usize::from(definition.input_schema.is_some());
        let what = || format!("The input of task {}", task.reference);
        match compare(definition.input_schema.as_ref(), &input, what, self.found)? {
            Ok(()) => {
                let now = self.draft.now;
                self.draft.change_task(task.seq, |task| {
                    task.waiting = Waiting::Queued {
                        visible_at: now,
                        offered: true,
                    };
                });
            }
            Err(mismatch) => {
                let status = mismatch.status();
                let reason = Some(mismatch.into_message());
                self.draft.end_task(task.seq, status, reason, None);
                self.todo.push_back(task.seq);
            }
        }
        Ok(())
    }

    /// Compares the output with which a worker completes a task. Returns how the task ends instead, and why.
    pub(crate) fn check_task_output(
        &self,
        task: &ExecutionTask,
        output: &Object,
    ) -> Try<Result<(), (TaskStatus, String)>> {
        if !task.has_schemas {
            return Ok(Ok(()));
        }
        let Some(place) = self.place_of(task) else {
            return Ok(Ok(()));
        };
        let definition = self.task_def(place.node().task(), &task.def_name)?;
        let what = || format!("The output of task {}", task.reference);
        let compared = compare(definition.output_schema.as_ref(), output, what, self.found)?;
        Ok(compared.map_err(|mismatch| (mismatch.status(), mismatch.into_message())))
    }
}
