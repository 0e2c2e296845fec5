//! What clients send to a workflow: commands, queries, updates and stream messages.

pub(super) mod commands;
pub(super) mod queries;
pub(super) mod streams;
pub(super) mod updates;
