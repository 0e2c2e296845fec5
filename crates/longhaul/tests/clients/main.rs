//! The published client libraries, unmodified, against the built `longhaul` binary.
//!
//! `harness` runs the server, `rust_sdk`, `python_sdk` and `conductor_*` have the tests by subject, `crash` kills
//! the server under load, `cluster` has several servers on PostgreSQL and their faults, `postgres` runs the suites again on PostgreSQL, and
//! `examples` runs the published examples of the Rust crate. Every test has its own server, port and database. The Python suites need an interpreter with `durable-workflow` 2.12.0 and `conductor-python` 2.0.0, the JavaScript suite
//! needs node 18 and `@io-orkes/conductor-javascript` 4.0.0, and PostgreSQL 15 must be installed: `cargo xtask test` prepares all of it.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is a failed test, in helpers as well"
)]

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/events.rs"]
mod events;
#[path = "../support/server_process.rs"]
mod server_process;
#[path = "../support/waiting.rs"]
mod waiting;

mod cluster;
mod conductor_js;
mod conductor_keys;
mod conductor_python;
mod conductor_rust;
mod crash;
mod examples;
mod harness;
mod interop;
mod postgres;
mod python_sdk;
mod rust_sdk;
