//! Commands of operators and of the audit: archive, repair, audit.

pub mod archive;
pub mod audit;
pub mod repair;
