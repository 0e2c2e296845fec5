//! The host on the in-memory store with a clock that tests move: waiting, waking, recovery, and lost races.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

mod audit;
mod cluster;
mod definition_tasks;
mod definitions;
mod executions;
mod memory;
mod polls;
mod recovery;
mod sessions;
mod setup;
mod time;
mod workers;
mod workflows;
