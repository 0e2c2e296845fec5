//! The host on the in-memory store with a clock that is moved by hand: waiting, waking, recovery, and losing races.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

mod audit;
mod memory;
mod polls;
mod recovery;
mod sessions;
mod setup;
mod time;
mod workers;
mod workflows;
