//! The operators: what a node of a definition becomes when it is reached.

mod branches;
pub(crate) mod code_run;
mod direct;
mod fork;
pub(crate) mod loop_output;
mod repeat;
pub(crate) mod schedule;
mod sub_workflow;
mod switch;
