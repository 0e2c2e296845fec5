//! The commands on definition runs.

pub mod claim;
pub mod control;
pub mod log;
pub mod operate;
pub mod reopen;
pub mod start;
pub mod update;
