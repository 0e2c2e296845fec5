//! Definition runs: runs whose next step is decided by the server from a JSON definition.
//!
//! A definition run has the same specification, core, parts, events and alarm as every other run. What differs is its program:
//! [`pass`] decides what follows, inside the same decision that handles the request. Start there. [`state`] has the records and
//! [`record`] writes them, `value` keeps their JSON. [`operator`] has the operators, `retry` attempts and time-outs, `end` the end of a run. [`command`] has
//! the commands, and [`view`] renders what clients see.

pub mod command;
pub mod end;
pub mod index;
pub mod lookup;
pub(crate) mod operator;
pub(crate) mod pass;
pub mod record;
mod retry;
mod roots;
mod schema;
pub mod state;
pub mod summary;
pub(crate) mod value;
pub mod view;
