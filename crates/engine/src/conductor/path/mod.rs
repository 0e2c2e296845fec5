//! JSONPath with an implied root, as expressions use it: `workflow.input.items[?(@.n > 1)].name`.
//!
//! A path is *definite* if it can select at most one value: only names and indexes. A definite path gives that value or nothing, an
//! indefinite one gives a list, and a function at the end makes one value of either.
//!
//! The published crates for JSONPath follow RFC 9535: they return lists of nodes only, do not have the functions, the operators
//! `=~`, `in` and `nin` or the merged members `['a','b']` of the older dialect that definitions are written in, and none bounds the
//! work of one evaluation. So the dialect is implemented here: `parse` makes the tree, `evaluate` walks it without recursion
//! over the data and pays every visited value from a [`Budget`](super::Budget).

mod evaluate;
mod filter;
mod parse;
#[cfg(test)]
mod tests;

pub use evaluate::Selected;
pub use parse::PathError;

use filter::Filter;

/// The longest text of a path, in bytes. Paths that people write have less than 200.
pub const PATH_BYTES_MAX: usize = 10_000;

/// A parsed path: the first name, and what follows it.
#[derive(Clone, Debug)]
pub struct Path {
    root: String,
    steps: Steps,
}

/// The part of a path after its root.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    list: Vec<Step>,
    ending: Ending,
}

#[derive(Clone, Debug)]
struct Step {
    /// The step applies to the value and everything inside it.
    descend: bool,
    select: Select,
}

#[derive(Clone, Debug)]
enum Select {
    Member(String),
    Members(Vec<String>),
    Index(i64),
    Indexes(Vec<i64>),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        step: usize,
    },
    All,
    Filter(Filter),
}

/// What is made of the selected values.
#[derive(Clone, Debug, Default)]
enum Ending {
    #[default]
    Selected,
    /// `['a','b']` at the end: an object with the members that exist.
    Merge(Vec<String>),
    Function(Function),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Length,
    Keys,
    Min,
    Max,
    Sum,
    Average,
    First,
    Last,
}

impl Path {
    /// Returns the first name: `workflow`, a task reference or the name of another value.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns whether the path is only its root.
    pub fn is_root(&self) -> bool {
        self.steps.list.is_empty() && matches!(self.steps.ending, Ending::Selected)
    }

    /// Returns the root and everything after it.
    pub(super) fn into_parts(self) -> (String, Steps) {
        (self.root, self.steps)
    }
}

impl Steps {
    /// Removes the first step if it is a plain name, and returns that name.
    pub(super) fn take_member(&mut self) -> Option<String> {
        let first = self.list.first_mut()?;
        let Select::Member(name) = &mut first.select else {
            return None;
        };
        if first.descend {
            return None;
        }
        let name = std::mem::take(name);
        self.list.remove(0);
        Some(name)
    }

    /// Returns the name that the first step selects, if it is a plain name.
    pub(super) fn first_member(&self) -> Option<&str> {
        match self.list.first() {
            Some(Step {
                descend: false,
                select: Select::Member(name),
            }) => Some(name),
            _ => None,
        }
    }

    /// Returns whether nothing is selected or computed: the value itself is the result.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && matches!(self.ending, Ending::Selected)
    }

    fn is_definite(&self) -> bool {
        self.list.iter().all(|step| {
            !step.descend && matches!(step.select, Select::Member(_) | Select::Index(_))
        })
    }
}
