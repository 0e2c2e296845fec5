//! Activities: scheduling and retries (`schedule`), claims, the reports and heartbeats of workers, stops, and deadlines.

pub mod claim;
pub mod fence;
pub mod heartbeat;
pub mod report;
pub mod schedule;
pub mod stop;

pub(crate) mod timeout;
