//! Workflow tasks: their commands, their reports, and the history they produce.

mod cancellations;
mod closed_runs;
mod closes;
pub(super) mod commands;
mod completions;
pub(super) mod events;
mod failures;
mod history;
pub(super) mod resume_context;
mod selections;
mod streams;
