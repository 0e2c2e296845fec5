//! Task queues and the builds of their workers.

mod queues;
mod rollouts;
