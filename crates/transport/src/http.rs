//! Requests over HTTP, with a connection pool.
//!
//! Over TLS the server chooses between HTTP/2 and HTTP/1.1. Without TLS it is always HTTP/1.1.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::insecure;
use crate::{Method, Request, Response, Transport, TransportError};

/// While a request waits, an HTTP/2 connection is pinged this often, and closed if the ping is not answered in time. Otherwise all later
/// requests would use a connection whose server is gone: a request that times out does not close it.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How connections are opened and kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The timeout of a connection. A server on the same continent needs a tenth of the default.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept. By default it is closed before most proxies and servers close it, so that no request uses
    /// a closed one.
    pub idle_timeout: Duration,
    /// The largest number of idle connections.
    pub idle_connections_max: usize,
    /// The largest number of connections in use, and of requests at once: with HTTP/2, many requests share a connection. More requests
    /// wait for the first ones, and the wait is part of their timeout.
    pub connections_max: usize,
    /// Certificates of further authorities, in PEM. They are trusted in addition to those of the operating system.
    pub root_certificates: Option<Bytes>,
}

impl HttpOptions {
    /// Sets the timeout of a connection.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the largest number of idle connections.
    #[must_use]
    pub const fn idle_connections_max(mut self, count: usize) -> Self {
        self.idle_connections_max = count;
        self
    }

    /// Sets the largest number of connections in use.
    #[must_use]
    pub const fn connections_max(mut self, count: usize) -> Self {
        self.connections_max = count;
        self
    }

    /// Trusts the certificates of further authorities, given in PEM, besides those of the operating system.
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Bytes>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(55),
            idle_connections_max: usize::MAX,
            connections_max: Semaphore::MAX_PERMITS,
            root_certificates: None,
        }
    }
}

/// A server at an `http://` or `https://` address.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    http: reqwest::Client,
    /// A permit per request.
    in_use: Arc<Semaphore>,
    /// The address without a trailing slash.
    address: String,
}

impl HttpTransport {
    /// Creates a transport to the server at `url`. Sends no request.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] if `url` is not an `http://` or `https://` address.
    pub fn new(url: &str) -> Result<Self, TransportError> {
        Self::with_options(url, HttpOptions::default())
    }

    /// Creates a transport as [`Self::new`] does, with other options of its connections.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] if `url` is not an `http://` or `https://` address, or an option is not valid.
    pub fn with_options(url: &str, options: HttpOptions) -> Result<Self, TransportError> {
        let invalid = |why: String| TransportError::Invalid(format!("{url:?} {why}"));
        let parsed = reqwest::Url::parse(url)
            .map_err(|error| invalid(format!("is not an address: {error}")))?;
        let is_secure = match parsed.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(invalid("is not an http:// or https:// address".to_owned())),
        };
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
        if options.connections_max == 0 {
            let why = "the number of connections must be at least 1";
            return Err(TransportError::Invalid(why.to_owned()));
        }
        let mut builder = reqwest::Client::builder()
            .gzip(!is_local)
            .deflate(!is_local)
            .connect_timeout(options.connect_timeout)
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(options.idle_connections_max)
            .tcp_nodelay(true)
            // A redirected POST would be sent as a GET, so redirects are errors.
            .redirect(reqwest::redirect::Policy::none())
            .use_rustls_tls()
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            // Reading the certificates of the system takes milliseconds, which an address without TLS does not need.
            .tls_built_in_root_certs(is_secure);
        for root in roots(options.root_certificates.as_deref())? {
            builder = builder.add_root_certificate(root);
        }
        let http = builder
            .build()
            .map_err(|error| TransportError::Invalid(chain(&error)))?;
        let address = url.trim_end_matches('/').to_owned();
        let permits = options.connections_max.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            http,
            in_use: Arc::new(Semaphore::new(permits)),
            address,
        })
    }

    /// Waits for a connection that may be used, and exchanges request and response. Both together have the timeout of the request.
    async fn exchange(&self, mut request: Request) -> Result<Response, TransportError> {
        let timeout = request.timeout;
        let begun = Instant::now();
        let waited = tokio::time::timeout(timeout, self.in_use.acquire()).await;
        // The semaphore is never closed.
        let Ok(Ok(_permit)) = waited else {
            return Err(TransportError::TimedOut(timeout));
        };
        request.timeout = timeout.saturating_sub(begun.elapsed());
        let left = request.timeout;
        let sent = Instant::now();
        let exchanged = self.exchange_now(request).await;
        exchanged.map_err(|error| {
            // A ping that is not answered is a time-out too, although the request has time left.
            if error.is_timeout() && !error.is_connect() && sent.elapsed() < left {
                return TransportError::Interrupted("the server does not answer pings".to_owned());
            }
            failure(&error, timeout)
        })
    }

    async fn exchange_now(&self, request: Request) -> reqwest::Result<Response> {
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
        for (name, value) in request.all_headers() {
            builder = builder.header(name, value);
        }
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let response = builder.send().await?;
        Ok(Response {
            status: response.status().as_u16(),
            body: response.bytes().await?,
        })
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(self.exchange(request))
    }
}

/// Reads the certificates of authorities.
fn roots(pem: Option<&[u8]>) -> Result<Vec<reqwest::Certificate>, TransportError> {
    let Some(pem) = pem else {
        return Ok(Vec::new());
    };
    let read = reqwest::Certificate::from_pem_bundle(pem)
        .map_err(|error| format!("are not valid: {}", chain(&error)));
    let read = read.and_then(|roots| {
        if roots.is_empty() {
            let why = "contain no certificate in PEM (\"-----BEGIN CERTIFICATE-----\")";
            return Err(why.to_owned());
        }
        Ok(roots)
    });
    read.map_err(|why| TransportError::Invalid(format!("the root certificates {why}")))
}

fn failure(error: &reqwest::Error, timeout: Duration) -> TransportError {
    if let Some(why) = insecure::explain(error) {
        TransportError::Insecure(why)
    } else if error.is_connect() {
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
    fn only_addresses_of_http_and_https_are_accepted() {
        for url in [
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/",
            "http://host/prefix",
            "https://host",
            "https://host:8443/api",
        ] {
            assert!(HttpTransport::new(url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("127.0.0.1:8080", "is not an"),
            ("localhost:8080", "is not an http:// or https:// address"),
            ("", "is not an address"),
            ("ftp://host", "is not an http:// or https:// address"),
            ("http://host/?a=b", "must be an address like"),
        ] {
            let error = HttpTransport::new(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn root_certificates_must_be_certificates() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let with = |pem: String| {
            let options = HttpOptions::default().root_certificates(pem);
            HttpTransport::with_options("https://localhost", options)
        };
        assert!(with(made.cert.pem()).is_ok());
        let garbled = made.cert.pem().replace("-----\nMII", "-----\nAAA");
        for (pem, why) in [
            (String::new(), "contain no certificate"),
            (made.signing_key.serialize_pem(), "contain no certificate"),
            (garbled, ""),
        ] {
            let error = with(pem).unwrap_err();
            assert!(matches!(error, TransportError::Invalid(_)), "{error:?}");
            assert!(error.to_string().contains(why), "{error}");
        }
        let none = HttpOptions::default().connections_max(0);
        let error = HttpTransport::with_options("http://localhost", none).unwrap_err();
        assert!(error.to_string().contains("at least 1"), "{error}");
    }
}
