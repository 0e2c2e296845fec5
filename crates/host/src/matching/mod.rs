//! Which waiting poll gets which ready task.

pub(crate) mod admission;
pub(crate) mod dispatch;
pub(crate) mod poll;
pub(crate) mod poll_dedup;
pub(crate) mod rate;
pub(crate) mod shares;
pub(crate) mod starts;
