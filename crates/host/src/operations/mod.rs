//! The operations that the server calls, a file per resource.

pub(crate) mod acceptance;
pub(crate) mod activity_counts;
pub(crate) mod activity_tasks;
pub(crate) mod cancellations;
pub(crate) mod debug;
pub(crate) mod local_activities;
pub(crate) mod queues;
pub(crate) mod request_limits;
pub(crate) mod sessions;
pub(crate) mod streams;
pub(crate) mod tasks;
pub(crate) mod updates;
pub(crate) mod workflow_tasks;
pub(crate) mod workflows;
