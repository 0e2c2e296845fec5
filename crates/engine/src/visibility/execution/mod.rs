//! Searching definition runs: what a search reads of a run, its query language and its order. A query becomes the same
//! [`Condition`](super::Condition) as the queries of other lists, so stores select both in one way.

mod compare;
mod names;
mod order;
mod parse;
mod tasks;

use longhaul_protocol::conductor::WorkflowStatus;

use super::condition::Facts;
use super::term::Term;
use crate::conductor::execution::state::{Execution, Stored};
use crate::conductor::execution::view::status_of;
use crate::run::state::{Part, PartKey, Run};

pub use order::{Direction, Order, SortField, SortKey};
pub use parse::{free_text, parse_search, parse_sort, parse_task_search, parse_task_sort};
pub use tasks::{FoundTask, TaskField};

/// Bytes of an input or output that a search by free text looks at. Larger values are stored apart from the run.
pub use crate::conductor::execution::state::INLINE_BYTES_MAX as SEARCHED_BYTES_MAX;

/// The classifier of a run whose definition names none.
pub const CLASSIFIER_DEFAULT: &str = "workflow";

/// A field that only definition runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionField {
    /// The version of the definition.
    Version,
    CorrelationId,
    UpdateTime,
    Priority,
    /// The id of the run that started this one, empty if there is none.
    ParentId,
    CreatedBy,
    IdempotencyKey,
    Classifier,
    ReasonForIncompletion,
    /// Joined by commas, empty if no task failed.
    FailedReferences,
    /// The event that started the run. Events do not start runs yet, so no run has it.
    Event,
}

/// The facts about a definition run that a condition reads.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionFacts<'a> {
    pub status: WorkflowStatus,
    pub execution: &'a Execution,
    pub parent_id: Option<&'a str>,
    pub input: Option<&'a Stored>,
    pub output: Option<&'a Stored>,
}

impl<'a> ExecutionFacts<'a> {
    /// Returns the facts about a run; `None` if it is not a definition run.
    pub(super) fn of(run: &'a Run) -> Option<Self> {
        let value = |key: PartKey| match run.parts.get(&key) {
            Some(Part::Value(stored)) => Some(stored),
            _ => None,
        };
        Some(Self {
            status: status_of(&run.core),
            execution: run.core.execution.as_deref()?,
            parent_id: run
                .spec
                .parent
                .as_deref()
                .map(|parent| parent.workflow_id.as_str()),
            input: value(PartKey::Input),
            output: value(PartKey::Output),
        })
    }

    /// Returns the value of a field.
    pub(super) fn value(&self, field: ExecutionField) -> Option<Term> {
        let text = |text: &str| Some(Term::Text(text.to_owned()));
        let optional = |value: &Option<String>| value.clone().map(Term::Text);
        let execution = self.execution;
        match field {
            ExecutionField::Version => Some(Term::Integer(execution.version.into())),
            ExecutionField::CorrelationId => optional(&execution.correlation_id),
            ExecutionField::UpdateTime => Some(Term::Time(execution.updated_at)),
            ExecutionField::Priority => Some(Term::Integer(execution.priority.into())),
            ExecutionField::ParentId => text(self.parent_id.unwrap_or("")),
            ExecutionField::CreatedBy => optional(&execution.created_by),
            ExecutionField::IdempotencyKey => optional(&execution.idempotency_key),
            ExecutionField::Classifier => text(execution.classifier()),
            ExecutionField::ReasonForIncompletion => optional(&execution.reason),
            ExecutionField::FailedReferences => text(&execution.failed_references),
            ExecutionField::Event => None,
        }
    }

    /// Returns whether a value of the run's summary contains a text, which is in lower case.
    pub(super) fn contains(&self, facts: &Facts<'_>, text: &str) -> bool {
        let has = |place: &str| place.to_ascii_lowercase().contains(text);
        let has_optional = |place: &Option<String>| place.as_deref().is_some_and(has);
        let in_value = |stored: Option<&Stored>| {
            let value = stored.and_then(|stored| stored.get().ok());
            value.is_some_and(|value| has(&value.to_string()))
        };
        let execution = self.execution;
        has(facts.run_id)
            || has(facts.workflow_type)
            || has(self.status.as_str())
            || has(self.parent_id.unwrap_or(""))
            || has(execution.classifier())
            || has(&execution.failed_references)
            || has_optional(&execution.correlation_id)
            || has_optional(&execution.idempotency_key)
            || has_optional(&execution.created_by)
            || has_optional(&execution.reason)
            || in_value(self.input)
            || in_value(self.output)
    }
}

#[cfg(test)]
mod tests;
