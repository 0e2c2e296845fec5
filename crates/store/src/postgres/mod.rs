//! The store in a PostgreSQL database.
//!
//! `store` is the store itself, `transfer` copies all of it, `inspection` checks it. `connection` reaches the server, `migrate` brings
//! the schema up to date, `write` has the commits, `read` finds rows by key, `list` reads many rows, `look` finds what a server waits
//! for, `hints` tells the other servers, `visibility` pages of runs by condition, `text` is how text is stored, `clock` reads the time
//! of the server, `error` converts errors. The schema, with its reasons, is in
//! `migrations/postgres/`.

mod clock;
mod connection;
mod error;
mod hints;
pub(crate) mod inspection;
mod list;
mod look;
pub mod migrate;
mod read;
mod store;
mod text;
pub(crate) mod transfer;
mod visibility;
mod write;

use self::connection::options;
pub use self::connection::scratch::Scratch;
pub use self::connection::{connect, inspect, pool};
pub use self::error::is_lost;
pub use self::options::Options;
pub use self::store::Postgres;
