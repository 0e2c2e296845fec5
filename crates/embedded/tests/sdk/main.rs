//! The SDK's worker and client against a real server, every scenario twice: in one process without sockets, and over HTTP.
//! Every run's history is replayed against the code that wrote it, from the beginning and in two pieces.

mod calls;
mod cancellation;
mod determinism;
mod local_activities;
mod messages;
mod profiles;
mod records;
mod stage;
mod workers;
