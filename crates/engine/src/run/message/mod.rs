//! Messages from outside: signals, updates, message streams, and the record that every external command leaves.

pub mod external;
pub mod stream;
pub mod update;

pub(crate) mod signal;
