//! Updates, as workers see them.

mod events;
mod tasks;
