//! Rows that are registered once and read often: namespaces, workers, search attributes, rollouts.

pub(crate) mod compatibility;
pub(crate) mod environment;
pub(crate) mod namespaces;
pub(crate) mod rollouts;
pub(crate) mod search_attributes;
pub(crate) mod workers;
