//! The engine judged from outside: stories in `scenarios/*.txt`, and random sequences of commands against the invariants.

mod invariants;
mod random;
mod scenarios;
mod world;
