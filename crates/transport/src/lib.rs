//! Sends requests to a server and returns its responses. Both worker SDKs use it.
//!
//! [`HttpTransport`] is the default. Other implementations can call a server in the same process, record requests, or drop responses
//! in a test.

#![warn(missing_docs)]

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;

mod error;
mod http;
mod insecure;
pub mod path;
mod refusal;
mod retry;

pub use error::TransportError;
pub use http::{HttpOptions, HttpTransport};
pub use refusal::{Refusal, RequestError};
pub use retry::{Repeat, RequestRetry, send};

/// Longer than the longest time for which a server holds a request, except for a request that asks for more.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends requests to one server.
///
/// If the future of a request is dropped, the server may have processed the request nevertheless.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends the request and waits for the whole response, for at most [`Request::timeout`].
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>>;
}

/// A request, without the address of the server. Its `Debug` output does not contain tokens.
#[derive(Clone)]
#[non_exhaustive]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path and query below the server's address, percent-encoded, such as `/api/workflows?page_size=1`.
    pub path: String,
    /// The headers that describe the request, such as its token.
    pub headers: Vec<(&'static str, String)>,
    /// The JSON body, if there is one.
    pub body: Option<Bytes>,
    /// The timeout of the response.
    pub timeout: Duration,
}

impl Request {
    /// Creates a request without headers and a body, with a timeout of a minute.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: None,
            timeout: TIMEOUT,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Returns all headers: its own, and the media type of the body.
    pub fn all_headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let own = self.headers.iter();
        let media_type = self
            .body
            .is_some()
            .then_some(("Content-Type", "application/json"));
        own.map(|(name, value)| (*name, value.as_str()))
            .chain(media_type)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self
            .all_headers()
            .map(|(name, value)| {
                let is_secret = name.ends_with("Authorization");
                (name, if is_secret { "…" } else { value })
            })
            .collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("headers", &headers)
            .field("body", &self.body)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Writes the JSON body of a request.
///
/// # Errors
/// [`TransportError::Invalid`] if the value cannot be written as JSON.
pub fn json_body<B: Serialize + ?Sized>(body: &B) -> Result<Bytes, TransportError> {
    let written = serde_json::to_vec(body).map(Bytes::from);
    written.map_err(|error| {
        TransportError::Invalid(format!("the request cannot be written as JSON: {error}"))
    })
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body, decompressed.
    pub body: Bytes,
}

impl Response {
    /// Returns whether the status is a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_request_has_no_token() {
        let mut request = Request::new(Method::Post, "/x")
            .header("X-Authorization", "secret")
            .header("Authorization", "Bearer secret")
            .header("X-Namespace", "orders");
        request.body = Some("{}".into());
        let shown = format!("{request:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains(r#"("X-Namespace", "orders")"#), "{shown}");
        let headers: Vec<_> = request.all_headers().collect();
        assert_eq!(headers[0], ("X-Authorization", "secret"));
        assert_eq!(headers[3], ("Content-Type", "application/json"));
    }
}
