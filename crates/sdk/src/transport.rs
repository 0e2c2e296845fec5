//! How requests reach a server: one request in, a status and a body out.
//!
//! [`HttpTransport`] is the ordinary one. Another implementation can answer in the same process, record what is sent, or
//! lose answers on purpose; everything above sees no difference.

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
pub use retry::RetryPolicy;

/// Carries requests to one server.
///
/// A request whose future is dropped is given up; the server may have done it nevertheless.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends `request` and waits for the whole answer, at most [`Request::timeout`] long.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>>;
}

/// One request, complete but for the address of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// The path and query below the server's address, percent-encoded, such as `/api/workflows?page_size=1`.
    pub path: String,
    /// Which of the two APIs it belongs to.
    pub plane: Plane,
    /// The namespace it acts in.
    pub namespace: Arc<str>,
    /// The caller's credential.
    pub token: Option<Token>,
    /// The JSON body, if there is one.
    pub body: Option<Bytes>,
    /// How long to wait for the answer.
    pub timeout: Duration,
}

impl Request {
    /// A request in the namespace `default`, without credential and body, that waits a minute.
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

    /// The headers that go with it: version, namespace, credential and media type.
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

/// What came back.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body, decompressed.
    pub body: Bytes,
}

/// The methods of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of HTTP")]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// As it stands in a request.
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

/// The two APIs of a server, versioned apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Starting, messaging and looking at workflows.
    Control,
    /// Polling for and reporting tasks.
    Worker,
}

impl Plane {
    /// The header that names the version spoken, and that version.
    #[must_use]
    pub fn version_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Control => (CONTROL_PLANE_HEADER, CONTROL_PLANE_VERSION),
            Self::Worker => (WORKER_PROTOCOL_HEADER, WORKER_PROTOCOL_VERSION),
        }
    }
}

/// A bearer token. It is never shown.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// A credential as the server's operator gave it out.
    pub fn new(secret: impl Into<Arc<str>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
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
