//! What operators and the audit do to a run: archive, repair, audit.

pub mod archive;
pub mod audit;
pub mod repair;
