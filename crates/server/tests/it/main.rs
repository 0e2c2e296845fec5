//! The server's routes, called in process: the real router on a real host, with a store in memory and a clock that stands still.

mod control;
mod harness;
