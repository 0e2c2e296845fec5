//! A run: its state, and a folder per family of commands that change it.

pub mod activity;
pub mod advance_time;
pub mod cancellation;
pub mod family;
pub mod health;
pub mod local_activity;
pub mod message;
pub mod operator;
pub mod start;
pub mod state;
pub mod wait;
pub mod workflow_task;

mod close;
pub(crate) mod draft;
