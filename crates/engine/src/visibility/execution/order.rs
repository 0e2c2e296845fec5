//! The order of the results of a search.

use std::cmp::Ordering;

use crate::visibility::condition::{Facts, Field};
use crate::visibility::term::Term;

/// What results are sorted by, most significant first. Results that are equal in all of it come newest start first, then by run id
/// descending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    pub keys: Vec<SortKey>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    pub field: SortField,
    pub direction: Direction,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SortField {
    /// By the text of the status.
    Status,
    Field(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A run without the field comes first.
    Ascending,
    Descending,
}

impl Order {
    /// Returns whether it is the order that results have without any key.
    pub fn is_newest_first(&self) -> bool {
        let newest = SortKey {
            field: SortField::Field(Field::StartTime),
            direction: Direction::Descending,
        };
        self.keys.is_empty() || self.keys == [newest]
    }

    /// Compares two definition runs.
    pub fn compare(&self, left: &Facts<'_>, right: &Facts<'_>) -> Ordering {
        for key in &self.keys {
            let order = compare(key.field.value(left), key.field.value(right));
            let order = match key.direction {
                Direction::Ascending => order,
                Direction::Descending => order.reverse(),
            };
            if order.is_ne() {
                return order;
            }
        }
        (right.started_at, right.run_id).cmp(&(left.started_at, left.run_id))
    }
}

impl SortField {
    fn value(&self, facts: &Facts<'_>) -> Option<Term> {
        match self {
            Self::Status => facts
                .execution
                .map(|execution| Term::Text(execution.status.as_str().to_owned())),
            Self::Field(field) => facts.values(field).into_iter().next(),
        }
    }
}

pub(super) fn compare(left: Option<Term>, right: Option<Term>) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => left.compare(&right).unwrap_or(Ordering::Equal),
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}
