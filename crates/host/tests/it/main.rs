//! The host on the in-memory store with a clock that is moved by hand: waiting, waking, recovery, and losing races.

mod polls;
mod recovery;
mod setup;
mod time;
mod workflows;
