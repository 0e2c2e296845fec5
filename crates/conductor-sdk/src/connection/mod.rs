//! The connection to a server that clients and workers use. Every request is a [`Call`], which adds the token and repeats the request
//! if allowed.

mod token;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longhaul_protocol::conductor::member::Member;
use longhaul_protocol::conductor::{ParseError, read};
use longhaul_transport::path::{add_query, path};
use longhaul_transport::{
    HttpOptions, HttpTransport, Method, Repeat, Request, RequestError, RequestRetry, Transport,
    TransportError, json_body, send,
};
use serde::Serialize;

use crate::configuration::Configuration;
use token::{Tokens, is_stale};

/// The path of the API of a server that is not reached by an address.
const API_PATH: &str = "/api";

/// Transport, token and retries. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    transport: Arc<dyn Transport>,
    /// The path before that of a request. Empty if the address of the transport has it.
    prefix: &'static str,
    /// The address of the pages that people see.
    ui_host: String,
    namespace: Option<String>,
    tokens: Option<Tokens>,
    timeout: Duration,
    retry: RequestRetry,
}

impl Connection {
    /// Creates a connection over HTTP. Sends no request.
    pub(crate) fn new(configuration: &Configuration) -> Result<Self, TransportError> {
        let mut options = HttpOptions::default()
            .connect_timeout(configuration.connect_timeout)
            .connections_max(configuration.connections_max)
            .idle_connections_max(configuration.idle_connections_max);
        if let Some(pem) = &configuration.ssl_ca_cert {
            options = options.root_certificates(pem.clone());
        }
        let transport = HttpTransport::with_options(&configuration.server_url, options)?;
        Ok(Self::with(configuration, Arc::new(transport), ""))
    }

    /// Creates a connection over another transport. The address of the configuration is not used.
    pub(crate) fn over(configuration: &Configuration, transport: Arc<dyn Transport>) -> Self {
        Self::with(configuration, transport, API_PATH)
    }

    fn with(
        configuration: &Configuration,
        transport: Arc<dyn Transport>,
        prefix: &'static str,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                transport,
                prefix,
                ui_host: configuration.ui_host().to_owned(),
                namespace: configuration.namespace.clone(),
                tokens: configuration.key.clone().map(Tokens::new),
                timeout: configuration.timeout,
                retry: configuration.retry,
            }),
        }
    }

    /// Returns the address of a page that people see.
    pub(crate) fn page(&self, segments: &[&str]) -> Result<String, TransportError> {
        path(&self.inner.ui_host, segments)
    }

    /// A read. It may be repeated.
    pub(crate) fn get(&self, segments: &[&str]) -> Call<'_> {
        self.call(Method::Get, segments).repeat(Repeat::Freely)
    }

    pub(crate) fn post(&self, segments: &[&str]) -> Call<'_> {
        self.call(Method::Post, segments)
    }

    /// A request that has the same effect if it is sent twice.
    pub(crate) fn put(&self, segments: &[&str]) -> Call<'_> {
        self.call(Method::Put, segments).repeat(Repeat::Freely)
    }

    /// A second delete would be told that there is nothing to delete.
    pub(crate) fn delete(&self, segments: &[&str]) -> Call<'_> {
        self.call(Method::Delete, segments)
    }

    fn call(&self, method: Method, segments: &[&str]) -> Call<'_> {
        Call {
            inner: &self.inner,
            method,
            path: path(self.inner.prefix, segments),
            body: Ok(None),
            repeat: Repeat::IfWithoutEffect,
            timeout: self.inner.timeout,
        }
    }
}

/// Builds and sends one request.
#[derive(Debug)]
#[must_use = "a call does nothing until it is sent"]
pub(crate) struct Call<'a> {
    inner: &'a Inner,
    method: Method,
    path: Result<String, TransportError>,
    body: Result<Option<Bytes>, TransportError>,
    repeat: Repeat,
    timeout: Duration,
}

impl Call<'_> {
    /// Adds a query parameter, if there is a value. An empty value is not sent: servers take an empty domain for a domain.
    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let (Ok(path), Some(value)) = (&mut self.path, value.filter(|value| !value.is_empty())) {
            add_query(path, name, value);
        }
        self
    }

    pub(crate) fn flag(self, name: &str, value: bool) -> Self {
        self.query(name, Some(if value { "true" } else { "false" }))
    }

    pub(crate) fn number(self, name: &str, value: impl TryInto<i64>) -> Self {
        let value = value.try_into().unwrap_or(i64::MAX);
        self.query(name, Some(&value.to_string()))
    }

    pub(crate) fn json<B: Serialize + ?Sized>(mut self, body: &B) -> Self {
        self.body = json_body(body).map(Some);
        self
    }

    /// Sets a body that is text. It is sent as it is: servers keep the quotes of a JSON text.
    pub(crate) fn text(mut self, body: &str) -> Self {
        self.body = Ok(Some(Bytes::copy_from_slice(body.as_bytes())));
        self
    }

    pub(crate) fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// Adds the time for which the server is asked to wait.
    pub(crate) fn waits(mut self, wait: Duration) -> Self {
        self.timeout = self.timeout.saturating_add(wait);
        self
    }

    /// Sends the request and reads the response as a model.
    pub(crate) async fn send<R: Member>(self) -> Result<R, RequestError> {
        let body = self.send_raw().await?;
        read_model(&body)
    }

    /// Sends the request and reads the response as a model. `None` if the response has no body or is null.
    pub(crate) async fn send_optional<R: Member>(self) -> Result<Option<R>, RequestError> {
        let body = self.send_raw().await?;
        if is_nothing(&body) {
            return Ok(None);
        }
        read_model(&body).map(Some)
    }

    /// Sends the request and reads the response as a list or a map. Some servers send nothing instead of an empty one.
    pub(crate) async fn send_many<R: Member + Default>(self) -> Result<R, RequestError> {
        Ok(self.send_optional().await?.unwrap_or_default())
    }

    /// Sends the request and returns the text of the response. Some servers send ids as JSON text, with quotes.
    pub(crate) async fn send_text(self) -> Result<String, RequestError> {
        let body = self.send_raw().await?;
        let text = std::str::from_utf8(&body)
            .map_err(|error| RequestError::Malformed(error.to_string()))?;
        Ok(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()))
    }

    /// Sends the request and ignores the response.
    pub(crate) async fn send_only(self) -> Result<(), RequestError> {
        self.send_raw().await.map(drop)
    }

    /// Sends the request, repeats it if allowed, and returns the body of the response.
    pub(crate) async fn send_raw(self) -> Result<Bytes, RequestError> {
        let inner = self.inner;
        let mut request = Request::new(self.method, self.path?);
        request.body = self.body?;
        request.timeout = self.timeout;
        if let Some(namespace) = &inner.namespace {
            request = request.header("X-Namespace", namespace);
        }
        let Some(tokens) = &inner.tokens else {
            return inner.send(request, self.repeat).await;
        };
        // A request with a stale token had no effect: it is sent once more with a new one.
        let mut renewed = false;
        loop {
            let token = tokens
                .current(&*inner.transport, inner.prefix, &inner.retry, inner.timeout)
                .await?;
            let Some(token) = token else {
                return inner.send(request, self.repeat).await;
            };
            let signed = request.clone().header("X-Authorization", &*token);
            match inner.send(signed, self.repeat).await {
                Err(error) if !renewed && is_stale(&error) => {
                    tokens.forget(&token).await;
                    renewed = true;
                }
                outcome => return outcome,
            }
        }
    }
}

impl Inner {
    async fn send(&self, request: Request, repeat: Repeat) -> Result<Bytes, RequestError> {
        send(&*self.transport, request, &self.retry, repeat).await
    }
}

/// Returns whether a response has nothing in it.
pub(crate) fn is_nothing(body: &[u8]) -> bool {
    matches!(body.trim_ascii(), b"" | b"null")
}

/// Reads a model from a response.
pub(crate) fn read_model<R: Member>(body: &[u8]) -> Result<R, RequestError> {
    let value = longhaul_protocol::json::from_server(body)
        .map_err(|error| RequestError::Malformed(error.to_string()))?;
    read(value).map_err(|wrong| RequestError::Malformed(ParseError::Members(wrong).to_string()))
}
