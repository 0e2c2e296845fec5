//! Tests of the SDK's worker and client against a real server. Every scenario runs twice: in one process without sockets, and over
//! HTTP. The history of every run is replayed against the code that wrote it.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is a failed test, in helpers as well"
)]

mod calls;
mod cancellation;
mod determinism;
mod families;
mod local_activities;
mod messages;
mod profiles;
mod recording;
mod records;
mod sessions;
mod stage;
mod wire;
mod workers;
