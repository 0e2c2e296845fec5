//! Commands, queries and updates that clients send to workflows.

mod audit;
mod commands;
mod queries;
mod validators;
