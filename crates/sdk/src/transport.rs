//! Sends requests to a server and returns its responses.
//!
//! [`HttpTransport`] is the default. Other implementations can call a server in the same process, record requests, or drop responses
//! in a test.

use std::fmt;
use std::sync::Arc;

use longhaul_protocol::version::{
    CONTROL_PLANE_HEADER, CONTROL_PLANE_VERSION, WORKER_PROTOCOL_HEADER, WORKER_PROTOCOL_VERSION,
};

pub use longhaul_transport::{
    HttpOptions, HttpTransport, Method, Refusal, Request, RequestError, RequestRetry, Response,
    Transport, TransportError,
};

/// The APIs of a server. Each has its own version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plane {
    /// Starts workflows, sends messages to them and reads them.
    Control,
    /// Polls for tasks and reports them.
    Worker,
}

impl Plane {
    /// Returns the name and the value of the version header.
    pub(crate) fn version_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Control => (CONTROL_PLANE_HEADER, CONTROL_PLANE_VERSION),
            Self::Worker => (WORKER_PROTOCOL_HEADER, WORKER_PROTOCOL_VERSION),
        }
    }
}

/// A bearer token. Its `Debug` output does not contain the secret.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Creates a token.
    pub fn new(secret: impl Into<Arc<str>>) -> Self {
        Self(secret.into())
    }

    /// Returns the secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
