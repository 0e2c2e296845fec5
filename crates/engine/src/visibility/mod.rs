//! Finding runs: search attributes (the values they may hold), the query language of lists, and the meaning of a query. All of it
//! is pure: a query is text plus the definitions of a namespace in, a typed [`Condition`] out. Stores select by the condition, each
//! in its own way; [`Condition::matches`] is the meaning that they must implement. The language is explained in
//! `docs/visibility.md`. Definition runs are searched with a language of their own ([`execution`]), which gives the same conditions.

pub mod attribute;
pub mod condition;
mod cursor;
pub mod execution;
mod lexer;
mod literal;
mod parse;
mod pattern;
pub mod term;

pub use attribute::{Definitions, Type};
pub use condition::{Comparison, Condition, Facts, Field, Matcher, Test};
pub use parse::{QueryError, parse};
pub use pattern::Pattern;
pub use term::{Kind, Term, indexed};
