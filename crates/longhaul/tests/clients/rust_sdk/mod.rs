//! Workers and clients of the Rust SDK `durable-workflow` 4.10.2, running in the test process.
//!
//! A file per subject, a test per story. The Rust worker ends at the first answer it does not expect, so every test
//! also asserts that its worker is still running at the end ([`fixture::RunningWorker`]).

#![allow(
    clippy::result_large_err,
    reason = "the SDK's error type, handed through as workflow code does"
)]

mod access;
mod activities;
mod activity_timeouts;
mod cancellations;
mod children;
mod conditions;
pub(crate) mod fixture;
mod lifecycle;
mod local_activities;
mod payloads;
mod queries;
mod recorded_values;
mod rollouts;
mod selections;
mod signals;
mod sticky;
mod streams;
mod timers;
mod updates;
mod visibility;
mod worker_restarts;
mod worker_sessions;
