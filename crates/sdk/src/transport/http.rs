//! Requests over HTTP, with a connection pool.

use std::error::Error as _;
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Method, Request, Response, Transport, TransportError};

/// The timeout of a connection. A server on the same continent needs a tenth of it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle connections are closed before most proxies and servers close them, so that no request uses a closed one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(55);

/// A server at an `http://` address.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    http: reqwest::Client,
    /// The address without a trailing slash.
    address: String,
}

impl HttpTransport {
    /// Creates a transport to the server at `url`. Sends no request.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] if `url` is not an `http://` address.
    pub fn new(url: &str) -> Result<Self, TransportError> {
        let invalid = |why: String| TransportError::Invalid(format!("{url:?} {why}"));
        let parsed = reqwest::Url::parse(url)
            .map_err(|error| invalid(format!("is not an address: {error}")))?;
        match parsed.scheme() {
            "http" => {}
            "https" => {
                return Err(invalid(
                    "needs TLS, which this build does not have".to_owned(),
                ));
            }
            _ => return Err(invalid("is not an http:// address".to_owned())),
        }
        if !parsed.has_host() || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(invalid(
                "must be an address like http://127.0.0.1:8080".to_owned(),
            ));
        }
        // On the same machine, compression costs more than it saves.
        let is_local = parsed.host_str().is_some_and(|host| {
            host == "localhost"
                || host
                    .trim_matches(['[', ']'])
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        });
        let http = reqwest::Client::builder()
            .gzip(!is_local)
            .deflate(!is_local)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            // A redirected POST would be sent as a GET, so redirects are errors.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| TransportError::Invalid(chain(&error)))?;
        let address = url.trim_end_matches('/').to_owned();
        Ok(Self { http, address })
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut builder = self
            .http
            .request(method, format!("{}{}", self.address, request.path))
            .timeout(request.timeout);
        for (name, value) in request.headers() {
            builder = builder.header(name, value);
        }
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let failed = |error: reqwest::Error| failure(&error, request.timeout);
        let response = builder.send().await.map_err(failed)?;
        Ok(Response {
            status: response.status().as_u16(),
            body: response.bytes().await.map_err(failed)?,
        })
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(self.exchange(request))
    }
}

fn failure(error: &reqwest::Error, timeout: Duration) -> TransportError {
    if error.is_connect() {
        TransportError::Unreachable(chain(error))
    } else if error.is_timeout() {
        TransportError::TimedOut(timeout)
    } else if error.is_builder() {
        TransportError::Invalid(chain(error))
    } else {
        TransportError::Interrupted(chain(error))
    }
}

/// Returns the message of the innermost cause, which is the specific one.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_addresses_are_accepted() {
        for url in [
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/",
            "http://host/prefix",
        ] {
            assert!(HttpTransport::new(url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("127.0.0.1:8080", "is not an"),
            ("localhost:8080", "is not an http:// address"),
            ("", "is not an address"),
            ("https://host", "needs TLS"),
            ("ftp://host", "is not an http:// address"),
            ("http://host/?a=b", "must be an address like"),
        ] {
            let error = HttpTransport::new(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
