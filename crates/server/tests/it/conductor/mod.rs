//! The Conductor plane over HTTP: exact statuses, content types and members, as its published clients read them.

mod credentials;
mod events;
mod examples;
mod limits;
mod lists;
mod logs;
mod metadata;
mod polls;
mod queues;
pub(crate) mod support;
mod tasks;
mod transport;
mod update;
mod workflows;
