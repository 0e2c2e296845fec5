//! The workflow task: when one is created (`wake`), who may claim it, and what its completion or failure does.

pub mod claim;
pub mod complete;
pub mod fail;
pub mod sticky;

pub(crate) mod batch;
pub(crate) mod record;
pub(crate) mod wake;
