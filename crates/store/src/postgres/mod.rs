//! The store for several servers on one PostgreSQL database.
//!
//! `options` parses the address, `tls` makes the configuration of each `sslmode`, `connect` opens one connection and `pool` keeps
//! several for readers, `refusal` explains why a connection failed, `inspect` refuses a server that cannot be used, `migrate` brings
//! the schema up to date, `error` converts errors.
//!
//! `store` is the store itself. `write` has the commits, `read` finds rows by key, `list` reads many rows, `visibility` pages of runs by
//! condition, `text` is how text is stored. The schema, with its reasons, is in `migrations/postgres/`.

pub mod connect;
mod error;
pub mod inspect;
mod list;
pub mod migrate;
mod options;
mod parse;
pub mod pool;
mod read;
mod refusal;
mod store;
mod text;
mod tls;
mod visibility;
mod write;

pub use self::error::is_lost;
pub use self::options::Options;
pub use self::store::Postgres;
