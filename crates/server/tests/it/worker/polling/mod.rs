//! Polling: which worker is given which task, and what the answer to a poll contains.

mod claims;
mod draining;
pub(super) mod polls;
mod tasks;
mod throttling;
