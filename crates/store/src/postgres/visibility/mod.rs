//! Pages of runs by condition. The condition becomes one statement, and PostgreSQL chooses the indexes by its statistics.
//!
//! No text of a caller ever becomes SQL: statements are made of fixed pieces (`condition`), values are bound.

mod condition;
mod find;
mod sql;
mod tasks;

pub(super) use find::{executions, run_ids, runs};
pub(super) use sql::Sql;
pub(super) use tasks::tasks;
