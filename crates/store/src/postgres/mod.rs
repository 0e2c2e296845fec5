//! The store for several servers on one PostgreSQL database.
//!
//! `options` parses the address, `tls` makes the configuration of each `sslmode`, `connect` opens one connection and `pool` keeps
//! several for readers, `refusal` explains why a connection failed, `inspect` refuses a server that cannot be used, `migrate` brings
//! the schema up to date, `error` converts errors. The schema is in `migrations/postgres/`.

pub mod connect;
mod error;
pub mod inspect;
pub mod migrate;
mod options;
mod parse;
pub mod pool;
mod refusal;
mod tls;

pub use self::error::is_lost;
pub use self::options::Options;
