//! Where a store is.

use std::fmt;
use std::path::PathBuf;

use crate::postgres;

/// Where the data is.
#[derive(Clone, Debug)]
pub enum StoreAddress {
    /// A file of this machine.
    Sqlite(PathBuf),
    /// A database that several servers may use.
    Postgres(Box<postgres::Options>),
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            // Without the password.
            Self::Postgres(options) => options.fmt(f),
        }
    }
}
