//! The workflow task: when one is created (`wake`), what a worker may do while it holds one (`lease`), and what its completion or
//! failure does.

pub mod claim;
pub mod complete;
pub mod fail;
pub mod heartbeat;
pub mod lease;
pub mod read_history;
pub mod release;
pub mod sticky;

pub(crate) mod batch;
pub(crate) mod record;
pub(crate) mod wake;
