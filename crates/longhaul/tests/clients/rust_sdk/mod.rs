//! Workers and clients of the Rust SDK `durable-workflow` 4.10.2, running in the test process.
//!
//! Each file has one subject. The Rust worker ends at the first response that it does not expect, so every test also checks that
//! its worker is still running at the end ([`fixture::RunningWorker`]).

#![allow(
    clippy::result_large_err,
    reason = "the SDK's error type, handed through as workflow code does"
)]

mod calls;
pub(crate) mod fixture;
mod messages;
mod runs;
mod workers;
