//! Finding runs: search attributes (what they may hold), the query language of lists, and what a query means. All of it pure: a
//! query is text plus a namespace's definitions in, a typed [`Condition`] out. Stores select by the condition, each in its own
//! way; [`Condition::matches`] is the meaning they are held to. The language is explained in `docs/visibility.md`.

pub mod attribute;
pub mod condition;
mod lexer;
mod literal;
mod parse;
pub mod term;

pub use attribute::{Definitions, Type};
pub use condition::{Comparison, Condition, Facts, Field, Matcher, Test};
pub use parse::{QueryError, parse};
pub use term::{Kind, Term, indexed};
