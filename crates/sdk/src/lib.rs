//! Durable workflows in Rust: workflow code, workers and a client for the Durable Workflow protocol.

#![warn(missing_docs)]

mod connection;
pub mod payload;
pub mod transport;
