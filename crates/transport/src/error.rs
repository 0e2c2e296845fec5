//! The errors of a request that got no response.

use std::time::Duration;

/// Why there was no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The connection failed: the request had no effect.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The connection is not secure: the request was not sent. The certificate of the server is not trusted, or the server does not use
    /// TLS. A retry does not help.
    #[error("no secure connection to the server: {0}")]
    Insecure(String),
    /// The connection broke before the whole response arrived. The server may have processed the request.
    #[error("the connection broke before the response arrived: {0}")]
    Interrupted(String),
    /// There was no response in time. The server may have processed the request, or may still do so.
    #[error("no response within {0:?}")]
    TimedOut(Duration),
    /// The request cannot be sent: the address is not valid, or a name cannot be part of a path.
    #[error("{0}")]
    Invalid(String),
}
