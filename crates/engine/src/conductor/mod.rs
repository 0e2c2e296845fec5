//! The language of Conductor definitions: what a definition means, without any run.
//!
//! Start at [`definition`]: a [`Snapshot`](definition::Snapshot) is the compiled definition that a run keeps. [`validate`] checks a
//! definition when it is registered or started. [`expression`] resolves `${…}` with the paths of [`path`], within a [`Budget`].
//! The small rest: [`input`] assembles inputs, [`wait_time`] reads durations and dates, [`retry_delay`] computes back-offs, and
//! [`script_result`] interprets what a script returned. All of it is pure: times, random numbers and results of scripts come in as
//! arguments.

mod budget;
pub mod definition;
pub mod event;
pub mod execution;
pub mod expression;
pub mod input;
pub mod limits;
pub mod path;
pub mod retry_delay;
pub mod script_result;
pub mod validate;
pub mod wait_time;

pub use budget::{BYTES_MAX, Budget, DEPTH_MAX, Limit, STEPS_MAX};
