//! The server itself: its health, and a namespace in numbers.

pub(crate) mod health;
pub(super) mod operator_metrics;
