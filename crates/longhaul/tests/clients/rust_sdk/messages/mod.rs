//! Messages to a workflow: signals, conditions, queries, updates, streams.

mod conditions;
mod queries;
mod signals;
mod streams;
mod updates;
