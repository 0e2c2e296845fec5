//! The single entry point for commands: load, decide, commit, wake.

pub(crate) mod cache;
pub(crate) mod execute;
pub(crate) mod hints;
pub(crate) mod locks;
pub(crate) mod wakes;
pub(crate) mod weight;
