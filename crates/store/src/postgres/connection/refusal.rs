//! Explains why a connection failed, in a sentence with advice. The code and the type of an error decide the reason, never its text.

use std::error::Error as _;
use std::io;

use rustls::CertificateError;
use tokio_postgres::error::{DbError, SqlState};

use super::options::{Options, Place};

/// What was tried.
pub(super) struct Attempt<'a> {
    pub(super) options: &'a Options,
    pub(super) place: &'a Place,
    /// Whether the server agreed to TLS.
    pub(super) handshake_began: bool,
}

pub(super) fn explain(error: &tokio_postgres::Error, attempt: &Attempt<'_>) -> String {
    let place = attempt.place;
    if let Some(refusal) = error.as_db_error() {
        return refused(refusal, attempt);
    }
    if let Some(source) = error.source().and_then(|source| source.downcast_ref()) {
        return unreachable(source, place);
    }
    if attempt.options.must_encrypt(place) && !attempt.handshake_began {
        return format!(
            "{place} offers no TLS, and sslmode asks for it: set ssl = on in postgresql.conf, or use another sslmode in a network that you trust"
        );
    }
    if attempt.options.password.is_none() {
        return format!("{place} asks for a password, and the address has none: {error}");
    }
    match error.source() {
        Some(source) => format!("{place}: {error}: {source}"),
        None => format!("{place}: {error}"),
    }
}

/// The server answered with an error. Its message is about the login, not about rows.
fn refused(refusal: &DbError, attempt: &Attempt<'_>) -> String {
    let Attempt { options, place, .. } = attempt;
    let user = options.user.as_deref().unwrap_or_default();
    let database = options.database.as_deref().unwrap_or(user);
    let (code, message) = (refusal.code(), refusal.message());
    if *code == SqlState::INVALID_CATALOG_NAME {
        format!(
            "{place} has no database \"{database}\": create it with `createdb {database}`, or correct the address"
        )
    } else if *code == SqlState::INVALID_PASSWORD {
        format!(
            "{place} refused the password of user \"{user}\": correct the user or the password in the address"
        )
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        format!(
            "{place} does not let user \"{user}\" in ({message}): create the role, or allow it in pg_hba.conf"
        )
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        format!(
            "{place} does not let user \"{user}\" use database \"{database}\" ({message}): grant it CONNECT"
        )
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        format!(
            "{place} has no free connection: raise its max_connections, or lower the pools of the servers"
        )
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        format!("{place} is starting or stopping ({message}): try again in a moment")
    } else {
        format!(
            "{place} refused the connection ({}: {message})",
            code.code()
        )
    }
}

/// The socket or the handshake failed.
fn unreachable(error: &io::Error, place: &Place) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(error) = inner {
        return distrusted(error, place);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            format!(
                "no server listens at {place}: start PostgreSQL, or correct the host and the port"
            )
        }
        io::ErrorKind::TimedOut => {
            format!("{place} did not answer in time: check the host, the port and firewalls")
        }
        _ => format!("{place} cannot be reached: {error}"),
    }
}

fn distrusted(error: &rustls::Error, place: &Place) -> String {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "the certificate of {place} is for another name: connect by the name in the certificate, or use sslmode=verify-ca"
        ),
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => format!(
            "the certificate of {place} is not trusted: set sslrootcert to the certificate of the authority that signed it"
        ),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => format!("the certificate of {place} has expired: renew it"),
        other => format!("the TLS handshake with {place} failed: {other}"),
    }
}
