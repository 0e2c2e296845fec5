//! The built binary: flags, output, start, stop, restart and refusals.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/limited_binary.rs"]
mod limited_binary;
#[path = "../support/waiting.rs"]
mod waiting;

mod bench;
mod connections;
mod copies;
mod demo;
mod disk;
mod hosts;
mod names;
mod output;
mod serve;
mod store;
mod system_tasks;
mod tls;
