//! What the tests of both planes share: a server to call, workers that act on it, and the published schemas.

pub(crate) mod contract;
pub(crate) mod server;
pub(crate) mod worker;
