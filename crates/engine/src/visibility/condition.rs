//! A typed query: every name is resolved, every literal has the type of its field, and every `NOT` is moved down to the comparison
//! it inverts. [`Condition::matches`] defines the meaning; stores translate it.

use std::cmp::Ordering;

use longhaul_protocol::Timestamp;
use serde_json::{Map, Value};

use super::term::{Kind, Term, indexed};
use crate::run::state::Status;

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    All(Vec<Self>),
    Any(Vec<Self>),
    Test(Test),
    /// The run's status is one of these.
    Status(Vec<Status>),
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
}

#[derive(Clone, Debug, PartialEq)]
pub enum Matcher {
    OneOf(Vec<Term>),
    NoneOf(Vec<Term>),
    Compare(Comparison, Term),
    StartsWith(String),
    StartsNotWith(String),
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
    pub status: Status,
    pub started_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub search_attributes: &'a Map<String, Value>,
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
            Self::Status(statuses) => statuses.contains(&facts.status),
            Self::FreeText(text) => {
                let holds = |place: &str| place.to_ascii_lowercase().contains(text.as_str());
                holds(facts.workflow_id) || facts.business_key.is_some_and(holds)
            }
        }
    }
}

impl Facts<'_> {
    fn values(&self, field: &Field) -> Vec<Term> {
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
        }
    }
}

impl Matcher {
    fn matches(&self, value: &Term) -> bool {
        let equals = |term: &Term| value.compare(term) == Some(Ordering::Equal);
        let starts = |prefix: &str| matches!(value, Term::Text(text) if text.starts_with(prefix));
        match self {
            Self::OneOf(terms) => terms.iter().any(equals),
            Self::NoneOf(terms) => !terms.iter().any(equals),
            Self::Compare(comparison, term) => value
                .compare(term)
                .is_some_and(|order| comparison.holds(order)),
            Self::StartsWith(prefix) => starts(prefix),
            Self::StartsNotWith(prefix) => !starts(prefix),
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
