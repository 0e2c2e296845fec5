//! One request at a time, over a keep-alive HTTP/1.1 connection to each server. Each request goes to the next server. It costs little
//! compared with the servers.
//!
//! The task that waits for the response also polls the connection, so no second task must be woken for each request.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const WORKER_VERSION: HeaderName = HeaderName::from_static("x-durable-workflow-protocol-version");
const CONTROL_VERSION: HeaderName =
    HeaderName::from_static("x-durable-workflow-control-plane-version");

/// The most characters of a refused response that are shown.
const SHOWN_ANSWER_CHARS: usize = 400;

/// The address of the server and the headers of every request.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// `host:port`.
    authority: String,
    headers: HeaderMap,
    sent: Arc<AtomicU64>,
}

impl Address {
    pub(super) fn new(authority: &str, token: Option<&str>) -> Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(
            HOST,
            HeaderValue::from_str(authority)
                .context("the server's name is not valid in a header")?,
        );
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Each plane reads its own header and ignores the other.
        headers.insert(WORKER_VERSION, HeaderValue::from_static("1.20"));
        headers.insert(CONTROL_VERSION, HeaderValue::from_static("2"));
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"))
                .context("the token is not valid in a header")?;
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self {
            authority: authority.to_owned(),
            headers,
            sent: Arc::default(),
        })
    }

    /// `host:port`.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    async fn open(&self) -> Result<Line> {
        let unreachable = || format!("cannot reach {}", self.authority);
        let stream = TcpStream::connect(&self.authority)
            .await
            .with_context(unreachable)?;
        stream.set_nodelay(true).with_context(unreachable)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .with_context(unreachable)?;
        Ok(Line {
            sender,
            driver: Box::pin(driver),
            closed: false,
            address: self.clone(),
        })
    }

    /// Requests sent so far, over all connections.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// A client of all servers.
pub(super) struct Connection {
    lines: Vec<Line>,
    next: usize,
}

impl Connection {
    /// Connects to every server. The first request goes to the server at this place.
    pub(super) async fn open(addresses: &[Address], first: usize) -> Result<Self> {
        let mut lines = Vec::with_capacity(addresses.len());
        for address in addresses {
            lines.push(address.open().await?);
        }
        Ok(Self { lines, next: first })
    }

    /// Sends a request to the next server and returns the body of a success. Anything else is an error with the response.
    pub(super) async fn send(&mut self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let place = self.next % self.lines.len();
        self.next = place + 1;
        self.lines[place].send(method, path, body).await
    }
}

/// A connection to one server.
struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
    closed: bool,
    address: Address,
}

impl Line {
    async fn send(&mut self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path
            .parse()
            .with_context(|| format!("{path} is not a path"))?;
        *request.headers_mut() = self.address.headers.clone();
        self.address.sent.fetch_add(1, Ordering::Relaxed);
        let (status, answer) = self
            .exchange(request)
            .await
            .with_context(|| format!("{method} {path}"))?;
        if !status.is_success() {
            let shown: String = String::from_utf8_lossy(&answer)
                .chars()
                .take(SHOWN_ANSWER_CHARS)
                .collect();
            bail!("{method} {path} was answered {status}: {shown}");
        }
        Ok(answer)
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        let Self {
            sender,
            driver,
            closed,
            ..
        } = self;
        let mut exchange = pin!(async move {
            sender.ready().await?;
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        });
        poll_fn(|context| {
            // First poll the exchange, which passes its request on, then the connection, which writes and reads, then the
            // exchange again, which gets the response.
            if let Poll::Ready(result) = exchange.as_mut().poll(context) {
                return Poll::Ready(result.map_err(anyhow::Error::from));
            }
            if !*closed {
                *closed = driver.as_mut().poll(context).is_ready();
            }
            match exchange.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(result.map_err(anyhow::Error::from)),
                Poll::Pending if *closed => {
                    Poll::Ready(Err(anyhow!("the server closed the connection")))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
