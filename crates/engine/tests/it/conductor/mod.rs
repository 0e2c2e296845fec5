//! Definition runs from outside: a world that keeps what the engine decides, invariants that are checked after every decision, and
//! stories. Nothing here shares a rule with the engine.

mod ends;
mod fold;
mod forks;
mod invariants;
mod large;
mod limits;
mod loops;
mod random;
mod reports;
mod schemas;
mod sub_workflows;
mod timeouts;
mod traces;
pub(crate) mod world;
