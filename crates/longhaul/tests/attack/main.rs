//! The built server under attack, with a size that fits into every test run.
//!
//! `mutations` sends every route requests that are almost right, `extremes` puts the largest and smallest numbers everywhere,
//! `slow` holds connections, `disk` fills the disk, `memory` sends large amounts. Then `judge` checks the server: no 500, no panic,
//! bounded memory, sound histories, and the same histories after a kill.
//!
//! Seeds are printed. `LONGHAUL_ATTACK_SEED` repeats a run, `LONGHAUL_ATTACK_REQUESTS` sets its length; `cargo xtask attack` sets
//! both by flag. A new route needs a sample in `samples`, or the suite fails.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is a failed test, in helpers as well"
)]
#![expect(
    clippy::print_stdout,
    reason = "a failed run is repeated by its printed seed"
)]

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/events.rs"]
mod events;
#[path = "../support/limited_binary.rs"]
mod limited_binary;
#[path = "../support/server_process.rs"]
mod server_process;
#[path = "../support/waiting.rs"]
mod waiting;

mod definitions;
mod disk;
mod extremes;
mod judge;
mod memory;
mod mutate;
mod mutations;
mod samples;
mod server;
mod slow;
mod wire;
mod world;
