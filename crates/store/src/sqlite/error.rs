//! Converts SQLite's errors to the variants of the store. The text is for the log; callers use the variant.

use rusqlite::ErrorCode;

use crate::Error;

/// Failed reads that no retry repairs: the file ends early, or the file system reports that it is damaged.
const MISSING_BYTES: [i32; 2] = [
    rusqlite::ffi::SQLITE_IOERR_SHORT_READ,
    rusqlite::ffi::SQLITE_IOERR_CORRUPTFS,
];

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        if error
            .sqlite_error()
            .is_some_and(|error| MISSING_BYTES.contains(&error.extended_code))
        {
            return Self::Damaged(error.to_string());
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            // A broken constraint is a bug above the store: a retry will not help.
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch) => {
                Self::Corrupt(error.to_string())
            }
            Some(_) => Self::Unavailable(error.to_string()),
            // Not from the library: a column of an unexpected type, an integer out of range, text that is not UTF-8.
            None => Self::Corrupt(error.to_string()),
        }
    }
}
