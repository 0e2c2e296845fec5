//! The SDK from outside: what its clients send, how they use tokens, and workers with a server in the same process.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]

mod answers;
mod declared;
mod page;
mod pool;
mod recording;
mod registration;
mod requests;
mod schemas;
mod tls;
mod tokens;
mod unhappy;
mod values;
mod workflows;
