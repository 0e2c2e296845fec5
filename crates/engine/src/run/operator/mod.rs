//! What operators and the audit do to a run, and what they can read about it.

pub mod archive;
pub mod audit;
pub mod diagnose;
pub mod repair;
pub mod view;
