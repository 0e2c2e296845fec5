//! The commands on definition runs.

pub mod claim;
pub mod control;
pub mod log;
pub mod message;
pub mod operate;
pub mod reopen;
pub mod start;
pub mod state;
pub mod update;
pub mod variables;
