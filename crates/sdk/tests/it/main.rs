//! Tests of the SDK against the real server, in one process and without sockets. `client::http` tests the sockets.

mod client;
mod fake_server;
mod golden;
mod macros;
mod polling;
mod support;
