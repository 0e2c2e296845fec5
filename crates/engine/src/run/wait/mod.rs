//! Waits of a workflow besides activities and children: conditions and signals, timers, parallel groups, selections.

pub mod selection;

pub(crate) mod condition;
pub(crate) mod group;
pub(crate) mod timer;
