//! A typed query: every name is resolved, every literal has the type of its field, and every `NOT` is moved down to the comparison
//! it inverts. [`Condition::matches`] defines the meaning; stores translate it.

use std::cmp::Ordering;

use longhaul_protocol::Timestamp;
use serde_json::{Map, Value};

use longhaul_protocol::conductor::WorkflowStatus;

use super::execution::{ExecutionFacts, ExecutionField, TaskField};
use super::pattern::Pattern;
use super::term::{Kind, Term, indexed};
use crate::run::state::{Program, Run, Status};

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    All(Vec<Self>),
    Any(Vec<Self>),
    Test(Test),
    /// The run has no value of this field.
    Absent(Field),
    /// The run's status is one of these.
    Status(Vec<Status>),
    /// The run is of this program.
    Program(Program),
    /// The run is a definition run, and its status is one of these.
    ExecutionStatus(Vec<WorkflowStatus>),
    /// The run is a definition run, and a value of its summary contains this text, ignoring the case of A to Z. Held in lower case.
    SummaryText(String),
    /// The workflow id or the business key contains this text, ignoring the case of A to Z. Held in lower case.
    FreeText(String),
}

/// True if one of the field's values matches, so never for a run without the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    pub field: Field,
    pub matcher: Matcher,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    WorkflowType,
    WorkflowId,
    RunId,
    TaskQueue,
    /// The build the run is pinned to.
    BuildId,
    StartTime,
    CloseTime,
    Attribute {
        name: String,
        kind: Kind,
    },
    /// A field that only definition runs have.
    Execution(ExecutionField),
    /// A field of a task of a definition run. Only searches for tasks have it.
    Task(TaskField),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Matcher {
    OneOf(Vec<Term>),
    NoneOf(Vec<Term>),
    Compare(Comparison, Term),
    StartsWith(String),
    StartsNotWith(String),
    Like(Pattern),
    NotLike(Pattern),
    /// Any value.
    Present,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The facts about a run that a condition reads.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub workflow_type: &'a str,
    pub workflow_id: &'a str,
    pub run_id: &'a str,
    pub task_queue: &'a str,
    pub business_key: Option<&'a str>,
    pub build_id: Option<&'a str>,
    pub program: Program,
    pub status: Status,
    pub started_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub search_attributes: &'a Map<String, Value>,
    /// What only a definition run has.
    pub execution: Option<ExecutionFacts<'a>>,
}

impl Condition {
    /// Returns whether a run matches.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(facts)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(facts)),
            Self::Test(test) => facts
                .values(&test.field)
                .iter()
                .any(|value| test.matcher.matches(value)),
            Self::Absent(field) => facts.values(field).is_empty(),
            Self::Status(statuses) => statuses.contains(&facts.status),
            Self::Program(program) => facts.program == *program,
            Self::ExecutionStatus(statuses) => facts
                .execution
                .is_some_and(|execution| statuses.contains(&execution.status)),
            Self::SummaryText(text) => facts
                .execution
                .is_some_and(|execution| execution.contains(facts, text)),
            Self::FreeText(text) => {
                let holds = |place: &str| place.to_ascii_lowercase().contains(text.as_str());
                holds(facts.workflow_id) || facts.business_key.is_some_and(holds)
            }
        }
    }
}

impl<'a> Facts<'a> {
    /// Returns the facts about a run.
    pub fn of(run: &'a Run) -> Self {
        let (spec, core) = (&*run.spec, &run.core);
        Self {
            workflow_type: &spec.workflow_type,
            workflow_id: spec.workflow_id.as_str(),
            run_id: spec.run_id.as_str(),
            task_queue: spec.task_queue.as_str(),
            business_key: spec.business_key.as_deref(),
            build_id: spec.routing.compatibility.as_deref(),
            program: spec.program,
            status: core.status,
            started_at: spec.started_at,
            closed_at: core.closed.as_ref().map(|closed| closed.at),
            search_attributes: &core.search_attributes,
            execution: ExecutionFacts::of(run),
        }
    }

    /// Returns the values of a field; none if the run does not have it.
    pub(super) fn values(&self, field: &Field) -> Vec<Term> {
        let text = |text: &str| vec![Term::Text(text.to_owned())];
        match field {
            Field::WorkflowType => text(self.workflow_type),
            Field::WorkflowId => text(self.workflow_id),
            Field::RunId => text(self.run_id),
            Field::TaskQueue => text(self.task_queue),
            Field::BuildId => self.build_id.map(text).unwrap_or_default(),
            Field::StartTime => vec![Term::Time(self.started_at)],
            Field::CloseTime => self.closed_at.into_iter().map(Term::Time).collect(),
            Field::Attribute { name, kind } => {
                let entries = self.search_attributes.get(name).map(indexed);
                let entries = entries.unwrap_or_default().into_iter();
                entries
                    .filter(|(entry, _)| entry == kind)
                    .map(|(_, term)| term)
                    .collect()
            }
            Field::Execution(field) => self
                .execution
                .and_then(|execution| execution.value(*field))
                .into_iter()
                .collect(),
            Field::Task(_) => Vec::new(),
        }
    }
}

impl Matcher {
    pub(super) fn matches(&self, value: &Term) -> bool {
        let equals = |term: &Term| value.compare(term) == Some(Ordering::Equal);
        let starts = |prefix: &str| matches!(value, Term::Text(text) if text.starts_with(prefix));
        let is_like =
            |pattern: &Pattern| matches!(value, Term::Text(text) if pattern.matches(text));
        match self {
            Self::OneOf(terms) => terms.iter().any(equals),
            Self::NoneOf(terms) => !terms.iter().any(equals),
            Self::Compare(comparison, term) => value
                .compare(term)
                .is_some_and(|order| comparison.holds(order)),
            Self::StartsWith(prefix) => starts(prefix),
            Self::StartsNotWith(prefix) => !starts(prefix),
            Self::Like(pattern) => is_like(pattern),
            Self::NotLike(pattern) => !is_like(pattern),
            Self::Present => true,
        }
    }

    /// Returns the matcher that is true for exactly the values for which this one is not.
    pub(super) fn inverted(self) -> Self {
        match self {
            Self::OneOf(terms) => Self::NoneOf(terms),
            Self::NoneOf(terms) => Self::OneOf(terms),
            Self::Compare(comparison, term) => Self::Compare(comparison.inverted(), term),
            Self::StartsWith(prefix) => Self::StartsNotWith(prefix),
            Self::StartsNotWith(prefix) => Self::StartsWith(prefix),
            Self::Like(pattern) => Self::NotLike(pattern),
            Self::NotLike(pattern) => Self::Like(pattern),
            Self::Present => Self::OneOf(Vec::new()),
        }
    }
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    fn inverted(self) -> Self {
        match self {
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }
}
