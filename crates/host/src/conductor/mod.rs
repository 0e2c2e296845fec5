//! Definition runs: their definitions, starts, tasks and reads. What a decision needs from outside is found by [`finder`].

pub(crate) mod definitions;
pub mod evaluate;
pub(crate) mod events;
pub(crate) mod executions;
pub(crate) mod finder;
pub(crate) mod poll_data;
pub(crate) mod queues;
pub(crate) mod refusal;
pub(crate) mod reports;
pub(crate) mod schemas;
pub(crate) mod search;
pub(crate) mod snapshots;
pub(crate) mod tasks;
