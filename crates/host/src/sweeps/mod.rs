//! Background loops, a file each: what time does to runs, sessions and workers, the outbox, and the audit.

pub(crate) mod alarms;
pub(crate) mod audit;
pub(crate) mod keep_running;
pub(crate) mod outbox;
pub(crate) mod sessions;
pub(crate) mod workers;
