//! The operators: what a node of a definition becomes when it is reached.

mod branches;
pub(crate) mod code_run;
mod direct;
pub(crate) mod event;
mod exclusive_join;
mod fork;
pub(crate) mod inbox;
pub(crate) mod loop_output;
mod repeat;
pub(crate) mod schedule;
mod start_workflow;
mod sub_workflow;
mod switch;
