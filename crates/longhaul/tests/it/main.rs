//! The built binary from outside: flags, messages, stopping, restarting, refusing.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

mod bench;
mod connections;
mod demo;
mod disk;
mod hosts;
mod output;
mod serve;
