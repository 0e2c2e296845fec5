//! Searching tasks of definition runs: the fields of a query, and what a row has of them.

use std::cmp::Ordering;

use super::order::{Direction, Order, SortField, compare};
use crate::change::{TaskFacts, TaskRow};
use crate::visibility::condition::{Condition, Field};
use crate::visibility::term::Term;

/// A field of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskField {
    TaskId,
    TaskType,
    /// The name of the task definition.
    DefName,
    Reference,
    WorkflowId,
    WorkflowType,
    Status,
    CorrelationId,
    Domain,
    ScheduledTime,
    StartTime,
    EndTime,
    UpdateTime,
}

/// A row of a task that a search may find.
#[derive(Clone, Copy, Debug)]
pub struct FoundTask<'a> {
    row: &'a TaskRow,
    facts: &'a TaskFacts,
}

impl<'a> FoundTask<'a> {
    /// Returns what a search sees of a row; `None` if it is no task of a definition run.
    pub fn of(row: &'a TaskRow) -> Option<Self> {
        let facts = row.found_by.as_deref()?;
        Some(Self { row, facts })
    }

    /// Returns whether it matches.
    pub fn matches(&self, condition: &Condition) -> bool {
        match condition {
            Condition::All(parts) => parts.iter().all(|part| self.matches(part)),
            Condition::Any(parts) => parts.iter().any(|part| self.matches(part)),
            Condition::Test(test) => self
                .value(&test.field)
                .is_some_and(|value| test.matcher.matches(&value)),
            Condition::Absent(field) => self.value(field).is_none(),
            Condition::SummaryText(text) => self.contains(text),
            // A query for tasks has none of these.
            Condition::Status(_)
            | Condition::Program(_)
            | Condition::ExecutionStatus(_)
            | Condition::FreeText(_) => false,
        }
    }

    /// Compares two tasks: by the order, then newest start first, then by id.
    pub fn compare(&self, other: &Self, order: &Order) -> Ordering {
        for key in &order.keys {
            let value = |found: &Self| match &key.field {
                SortField::Status => None,
                SortField::Field(field) => found.value(field),
            };
            let ordering = compare(value(self), value(other));
            let ordering = match key.direction {
                Direction::Ascending => ordering,
                Direction::Descending => ordering.reverse(),
            };
            if ordering.is_ne() {
                return ordering;
            }
        }
        let newest = other.facts.started_at.cmp(&self.facts.started_at);
        newest.then_with(|| other.row.task_id.cmp(&self.row.task_id))
    }

    fn value(&self, field: &Field) -> Option<Term> {
        let Field::Task(field) = field else {
            return None;
        };
        let (row, facts) = (self.row, self.facts);
        let text = |text: &str| Some(Term::Text(text.to_owned()));
        match field {
            TaskField::TaskId => text(row.task_id.as_str()),
            TaskField::TaskType => text(&facts.task_type),
            TaskField::DefName => text(&facts.def_name),
            TaskField::Reference => text(&facts.reference),
            TaskField::WorkflowId => text(row.run_id.as_str()),
            TaskField::WorkflowType => text(&facts.workflow_type),
            TaskField::Status => text(facts.status.as_str()),
            TaskField::CorrelationId => facts.correlation_id.clone().map(Term::Text),
            TaskField::Domain => facts.domain.clone().map(Term::Text),
            TaskField::ScheduledTime => Some(Term::Time(facts.scheduled_at)),
            TaskField::StartTime => facts.started_at.map(Term::Time),
            TaskField::EndTime => facts.ended_at.map(Term::Time),
            TaskField::UpdateTime => Some(Term::Time(facts.updated_at)),
        }
    }

    fn contains(&self, text: &str) -> bool {
        let has = |place: &str| place.to_ascii_lowercase().contains(text);
        let has_optional = |place: &Option<String>| place.as_deref().is_some_and(has);
        let facts = self.facts;
        has(self.row.task_id.as_str())
            || has(self.row.run_id.as_str())
            || has(&facts.task_type)
            || has(&facts.def_name)
            || has(&facts.reference)
            || has(&facts.workflow_type)
            || has(facts.status.as_str())
            || has_optional(&facts.correlation_id)
            || has_optional(&facts.domain)
    }
}
