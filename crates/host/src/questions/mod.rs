//! Queries and validations of updates: tasks with a waiting caller. They are never stored.

pub(crate) mod progress;
pub(crate) mod query;
pub(crate) mod table;
pub(crate) mod validation;
pub(crate) mod waiter;
