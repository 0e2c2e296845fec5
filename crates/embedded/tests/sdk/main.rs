//! The SDK's worker and client against a real server, every scenario twice: in one process without sockets, and over HTTP.
//! Every run's history is replayed against the code that wrote it, from the beginning and in two pieces.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is a failed test, in helpers as well"
)]

mod calls;
mod cancellation;
mod determinism;
mod local_activities;
mod messages;
mod profiles;
mod recording;
mod records;
mod sessions;
mod stage;
mod wire;
mod workers;
