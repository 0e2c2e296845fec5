//! The store in a PostgreSQL database.
//!
//! `store` is the store itself. `connection` reaches the server, `migrate` brings the schema up to date, `write` has the commits, `read`
//! finds rows by key, `list` reads many rows, `visibility` pages of runs by condition, `text` is how text is stored, `error` converts
//! errors. The schema, with its reasons, is in `migrations/postgres/`.

mod connection;
mod error;
mod list;
pub mod migrate;
mod read;
mod store;
mod text;
mod visibility;
mod write;

use self::connection::options;
pub use self::connection::{connect, inspect, pool};
pub use self::error::is_lost;
pub use self::options::Options;
pub use self::store::Postgres;
