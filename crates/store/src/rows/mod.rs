//! How the changes of a commit become rows, and rows become runs: what every store shares.

pub(crate) mod encode;
pub(crate) mod shape;
pub(crate) mod status;
pub(crate) mod summary;
pub(crate) mod thin;
