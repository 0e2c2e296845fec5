//! Connections. `options` has the settings and `parse` reads them from an address, `tls` makes the configuration of each `sslmode`,
//! `connect` opens one connection and `pool` keeps several for readers, `refusal` explains why a connection failed, `inspect` refuses
//! a server that cannot be used, `scratch` makes databases for measurements.

pub mod connect;
pub mod inspect;
pub(super) mod options;
mod parse;
pub mod pool;
mod refusal;
pub(super) mod scratch;
mod tls;
