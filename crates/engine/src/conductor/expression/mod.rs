//! Expressions `${…}` in the texts of a template.
//!
//! A [`Template`] is parsed once from a JSON value, and resolved against [`Roots`] as often as needed. The rules:
//! - a text that is exactly one expression becomes the value that it finds, with its type; nothing found is null;
//! - in a longer text each expression becomes text: text as it is, null or nothing as `null`, lists and maps as compact JSON;
//! - braces nest: the inner expression is resolved first and becomes part of the path text of the outer one;
//! - `$${…}` is the literal `${…}`, and an expression without a path is an empty text;
//! - an unknown root, and a text that is not a path, find nothing;
//! - keys of maps are never resolved, and results are not resolved again.
//!
//! A value that is not in memory stops nothing: resolving reports all of them, so that the caller can load them together.

mod parse;
mod resolve;
mod roots;
mod secret;
#[cfg(test)]
mod tests;

pub use resolve::Unresolved;
pub use roots::{EventMember, Found, Roots, TASK_MEMBERS, ValueRef, WORKFLOW_MEMBERS};
pub use secret::reveal_secrets;

use serde_json::Value;

use super::path::Steps;

/// How deeply expressions may be nested in each other. Two levels are common.
pub const NESTING_MAX: usize = 16;

/// A JSON value with expressions in its texts.
#[derive(Clone, Debug)]
pub enum Template {
    /// A value without an expression.
    Literal(Value),
    /// A text with at least one expression or escape.
    Text(Text),
    /// A list with an expression inside.
    List(Vec<Self>),
    /// A map with an expression inside.
    Map(Vec<(String, Self)>),
}

/// A text as its pieces, in order.
#[derive(Clone, Debug)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Literal(String),
    Expression(Expression),
}

/// One `${…}`.
#[derive(Clone, Debug)]
pub enum Expression {
    /// Nothing between the braces.
    Blank,
    /// A path.
    Reference(Reference),
    /// A path that contains expressions.
    Nested(Text),
    /// A name of the secret store. The text stays as it is; only copies for workers and system tasks contain the secret.
    Secret {
        /// The whole expression.
        source: String,
    },
    /// A text that is not a path. It finds nothing.
    Invalid {
        /// The text between the braces.
        source: String,
        /// Why it is not a path.
        message: String,
    },
    /// More levels of nesting than [`NESTING_MAX`].
    TooDeep,
}

/// A path, with its root taken apart so that only one member of a root must be loaded.
#[derive(Clone, Debug)]
pub struct Reference {
    root: Root,
    steps: Steps,
}

/// Where a path begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// All members of the workflow.
    Workflow,
    /// One member of the workflow.
    WorkflowMember(String),
    /// A value of the environment store.
    Environment(String),
    /// All members of a task, or a named value such as the id of the task that is being scheduled.
    Name(String),
    /// One member of a task.
    TaskMember {
        /// The reference of the task.
        reference: String,
        /// The name of the member.
        member: String,
    },
}

impl Reference {
    /// Returns where the path begins.
    pub fn root(&self) -> &Root {
        &self.root
    }
}

impl Template {
    /// Returns whether the template contains no expression, so that it resolves to itself.
    pub fn is_literal(&self) -> bool {
        matches!(self, Self::Literal(_))
    }

    /// Returns whether the template is a text that is exactly one expression.
    pub fn is_one_expression(&self) -> bool {
        matches!(self, Self::Text(Text(pieces)) if matches!(pieces[..], [Piece::Expression(_)]))
    }

    /// Calls `visit` for every expression, outer ones before the ones inside them.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        match self {
            Self::Literal(_) => {}
            Self::Text(text) => text.visit(visit),
            Self::List(list) => list.iter().for_each(|element| element.visit(visit)),
            Self::Map(map) => map.iter().for_each(|(_, value)| value.visit(visit)),
        }
    }
}

impl Text {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        for piece in &self.0 {
            if let Piece::Expression(expression) = piece {
                visit(expression);
                if let Expression::Nested(inner) = expression {
                    inner.visit(visit);
                }
            }
        }
    }
}
