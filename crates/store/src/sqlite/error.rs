//! SQLite's errors in the store's three sorts. The text is for the log; callers go by the variant.

use rusqlite::ErrorCode;

use crate::Error;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // A broken constraint is a bug above the store: trying again will not help.
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch,
            ) => Self::Corrupt(error.to_string()),
            Some(_) => Self::Unavailable(error.to_string()),
            // Not from the library: a column of another type than expected, an integer out of range, text that is not UTF-8.
            None => Self::Corrupt(error.to_string()),
        }
    }
}

/// A stored body that does not read back.
pub(super) fn unreadable(what: &str, id: &str, error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("{what} {id}: {error}"))
}
