//! Sends requests to a server and returns its responses.
//!
//! [`HttpTransport`] is the default. Other implementations can call a server in the same process, record requests, or drop responses
//! in a test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use longhaul_protocol::version::{
    CONTROL_PLANE_HEADER, CONTROL_PLANE_VERSION, WORKER_PROTOCOL_HEADER, WORKER_PROTOCOL_VERSION,
};

mod error;
mod http;
pub(crate) mod path;
mod retry;

pub use error::{Refusal, RequestError, TransportError};
pub use http::HttpTransport;
pub use retry::RequestRetry;

/// Sends requests to one server.
///
/// If the future of a request is dropped, the server may have processed the request nevertheless.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends the request and waits for the whole response, for at most [`Request::timeout`].
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>>;
}

/// A request, without the address of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path and query below the server's address, percent-encoded, such as `/api/workflows?page_size=1`.
    pub path: String,
    /// The API of the request.
    pub plane: Plane,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The token.
    pub token: Option<Token>,
    /// The JSON body, if there is one.
    pub body: Option<Bytes>,
    /// The timeout of the response.
    pub timeout: Duration,
}

impl Request {
    /// Creates a request in the namespace `default`, without a token and a body, with a timeout of a minute.
    pub fn new(method: Method, plane: Plane, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            plane,
            namespace: crate::client::DEFAULT_NAMESPACE.into(),
            token: None,
            body: None,
            timeout: crate::connection::TIMEOUT,
        }
    }

    /// Returns its headers: version, namespace, token and media type.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let token = self.token.as_ref();
        [
            Some(self.plane.version_header()).map(|(name, version)| (name, version.to_owned())),
            Some(("X-Namespace", self.namespace.to_string())),
            token.map(|token| ("Authorization", format!("Bearer {}", token.secret()))),
            self.body
                .is_some()
                .then(|| ("Content-Type", "application/json".to_owned())),
        ]
        .into_iter()
        .flatten()
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body, decompressed.
    pub body: Bytes,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
}

impl Method {
    /// Returns the name of the method.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// The APIs of a server. Each has its own version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plane {
    /// Starts workflows, sends messages to them and reads them.
    Control,
    /// Polls for tasks and reports them.
    Worker,
}

impl Plane {
    /// Returns the name and the value of the version header.
    #[must_use]
    pub fn version_header(self) -> (&'static str, &'static str) {
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
