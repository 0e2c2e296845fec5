//! The server's routes, called in process: the real router on a real host, with a store in memory and a clock that only the test moves.

// Tests contain whole responses as JSON, and the macro recurses once per token.
#![recursion_limit = "512"]

mod conductor;
mod connections;
mod control;
mod large;
mod support;
mod tokens;
mod worker;
