//! Tests of the engine from outside: stories in `scenarios/*.txt`, random sequences of commands against the invariants, and
//! definition runs in `conductor`.

#![expect(clippy::unwrap_used, reason = "a panic in a test is a failed test")]
#![expect(
    clippy::disallowed_methods,
    reason = "stories are read from files, and written with UPDATE_SCENARIOS"
)]

mod conductor;
mod conductor_operators;
mod invariants;
mod random;
mod scenarios;
mod world;
