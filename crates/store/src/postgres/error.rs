//! Converts PostgreSQL's errors to the variants of the store, by SQLSTATE and by type. What the server wrote may quote rows and
//! statements, so it goes to the log; callers get the variant and the code.

use std::error::Error as _;
use std::io;

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::{Error, Quiet};

/// Limits the log while the server is unavailable.
static OUTAGES: Quiet = Quiet::new();

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            let kind = Kind::of(refusal);
            log(refusal, kind);
            return kind.error(&described(refusal));
        }
        if error.is_closed() || broken(&error) {
            return Self::Unavailable(format!("the connection to PostgreSQL broke: {error}"));
        }
        // A value of another type than its column, a wrong number of parameters: a bug of the store.
        tracing::error!(?error, "a statement does not fit the schema");
        Self::Corrupt(format!("a statement does not fit the schema: {error}"))
    }
}

/// Returns whether the connection broke with this error. The outcome of a COMMIT that failed so is not known.
pub fn is_lost(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        Some(refusal) => is_fatal(refusal) || refusal.code().code().starts_with("08"),
        None => error.is_closed() || broken(error),
    }
}

/// The server ends the connection with an error of these severities. The name in `severity` is translated, the other is not.
fn is_fatal(refusal: &DbError) -> bool {
    matches!(
        refusal.parsed_severity(),
        Some(Severity::Fatal | Severity::Panic)
    )
}

/// Returns whether the socket failed. Invalid input is a message that could not be encoded and was not sent.
fn broken(error: &tokio_postgres::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    source.is_some_and(|source: &io::Error| source.kind() != io::ErrorKind::InvalidInput)
}

/// What a code means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Conflict,
    Unavailable,
    Corrupt,
    Damaged,
}

impl Kind {
    fn of(refusal: &DbError) -> Self {
        let kind = Self::of_code(refusal.code());
        // A session that was ended says nothing about the rows.
        if kind == Self::Corrupt && is_fatal(refusal) {
            return Self::Unavailable;
        }
        kind
    }

    fn of_code(code: &SqlState) -> Self {
        if [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ]
        .contains(code)
        {
            return Self::Conflict;
        }
        // The server found damaged pages or indexes. No retry helps.
        if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) {
            return Self::Damaged;
        }
        // `get`: a pooler between us and the server may send codes of its own.
        match code.code().get(..2) {
            // A wrong value, a broken constraint, a statement that does not fit the schema, a name that is too long for an index: a
            // bug above the server.
            Some("22" | "23" | "42" | "54") => Self::Corrupt,
            // Connections (08), resources and a full disk (53), the operator and time-outs (57), files (58), bugs of the server (XX), a
            // server that became read-only (25). Any other code is unexpected, and a retry may help.
            _ => Self::Unavailable,
        }
    }

    fn error(self, why: &str) -> Error {
        match self {
            Self::Conflict => Error::Conflict,
            Self::Unavailable => Error::Unavailable(why.to_owned()),
            Self::Corrupt => Error::Corrupt(why.to_owned()),
            Self::Damaged => Error::Damaged(why.to_owned()),
        }
    }
}

/// Returns what is wrong without anything from a row.
fn described(refusal: &DbError) -> String {
    let code = refusal.code();
    let cause = if *code == SqlState::DISK_FULL {
        "the disk of PostgreSQL is full"
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        "PostgreSQL has no free connection; raise its max_connections or lower the pools of the servers"
    } else if *code == SqlState::QUERY_CANCELED {
        "PostgreSQL stopped a statement that took too long"
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        "PostgreSQL refuses writes; it may have become a standby"
    } else {
        "PostgreSQL refused a statement"
    };
    let constraint = refusal.constraint();
    let constraint = constraint.map_or_else(String::new, |name| format!(", constraint {name}"));
    format!("{cause} (SQLSTATE {}{constraint})", code.code())
}

fn log(refusal: &DbError, kind: Kind) {
    let (code, message) = (refusal.code().code(), refusal.message());
    let (detail, context) = (refusal.detail(), refusal.where_());
    match kind {
        Kind::Conflict => tracing::debug!(code, message, detail, "a transaction lost a conflict"),
        Kind::Unavailable => {
            if let Some(unlogged) = OUTAGES.occurred() {
                tracing::warn!(
                    code,
                    message,
                    detail,
                    context,
                    unlogged,
                    "PostgreSQL failed"
                );
            }
        }
        Kind::Corrupt | Kind::Damaged => {
            let (table, constraint) = (refusal.table(), refusal.constraint());
            tracing::error!(
                code,
                message,
                detail,
                context,
                table,
                constraint,
                "PostgreSQL refused a statement"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_decides_the_variant() {
        for (code, kind) in [
            ("40001", Kind::Conflict),
            ("40P01", Kind::Conflict),
            ("55P03", Kind::Conflict),
            ("08006", Kind::Unavailable),
            ("53100", Kind::Unavailable),
            ("53300", Kind::Unavailable),
            ("57014", Kind::Unavailable),
            ("57P01", Kind::Unavailable),
            ("58030", Kind::Unavailable),
            ("25006", Kind::Unavailable),
            ("XX000", Kind::Unavailable),
            ("XX001", Kind::Damaged),
            ("XX002", Kind::Damaged),
            ("22P02", Kind::Corrupt),
            ("23505", Kind::Corrupt),
            ("42P01", Kind::Corrupt),
            ("54000", Kind::Corrupt),
            ("", Kind::Unavailable),
            ("é", Kind::Unavailable),
        ] {
            assert_eq!(Kind::of_code(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
