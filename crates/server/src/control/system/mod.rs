//! The server itself: its health, the other servers, and a namespace in numbers.

pub(crate) mod health;
pub(super) mod operator_metrics;
pub(super) mod servers;
