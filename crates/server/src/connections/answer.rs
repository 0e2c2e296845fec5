//! Serves one connection: shakes hands if it is one of TLS, then answers requests of HTTP/1.1 or HTTP/2 until it must close.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::{InvalidMessage, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::body::{Answered, Received};
use super::exchange::{Exchange, Open};
use super::stream::Counted;
use super::watch::Place;
use super::watched::{Order, Watched};

/// Bytes of a request's line and headers, and of one read. A long query is a few kilobytes.
const BUFFER_BYTES_MAX: u32 = 128 * 1024;

/// Requests at once on an HTTP/2 connection. A program of workers has tens of polls; more requests wait for the first ones.
const STREAMS_MAX: u32 = 256;

/// Streams that a client reset before they were served, and streams that the server reset because of the client's mistakes. More are
/// an attack, and close the connection.
const RESET_STREAMS_MAX: usize = 32;
const FAULTY_STREAMS_MAX: usize = 256;

/// Bytes of bodies that one request and all requests of an HTTP/2 connection may send before they are read. A body that waits for memory
/// must not hold up the others.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes of responses that wait in the buffer of one HTTP/2 stream.
const SEND_BUFFER_BYTES_MAX: usize = 256 * 1024;

/// Serves one connection. The place is an argument, so it is dropped after the socket is closed: a free place has a free descriptor.
pub(super) async fn answer(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    place: Place,
) {
    let connection = Arc::clone(place.connection());
    let stream = Counted::new(stream, Arc::clone(&connection));
    let Some(config) = tls else {
        converse(stream, peer, router, &connection).await;
        return;
    };
    // The state of a handshake is large, and most tasks are past theirs.
    let shaking_hands = Box::pin(TlsAcceptor::from(config).accept(stream));
    match unless_closed(&connection, shaking_hands).await {
        Some(Ok(stream)) => converse(stream, peer, router, &connection).await,
        Some(Err(error)) if is_without_tls(&error) => {
            tracing::debug!(%peer, "a connection was closed: its client does not use TLS, so its address must begin with https://");
        }
        Some(Err(error)) => tracing::debug!(%error, %peer, "a TLS handshake failed"),
        None => {}
    }
}

/// Returns whether the first bytes of a client belong to another protocol.
fn is_without_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(
        cause,
        Some(rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType
        ))
    )
}

/// Waits for `future`. Returns `None` as soon as the connection is to be closed.
async fn unless_closed<F: Future + Unpin>(
    connection: &Watched,
    mut future: F,
) -> Option<F::Output> {
    std::future::poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(output) = pin!(&mut future).poll(context) {
            return Poll::Ready(Some(output));
        }
        match connection.order(context.waker()) {
            Order::Close => Poll::Ready(None),
            Order::GoOn | Order::Finish => Poll::Pending,
        }
    })
    .await
}

/// Answers requests. The first bytes decide between HTTP/1.1 and HTTP/2.
async fn converse<S>(stream: S, peer: SocketAddr, router: Router, connection: &Arc<Watched>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answering = Arc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| {
        respond(request, peer, router.clone(), Arc::clone(&answering))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(BUFFER_BYTES_MAX as usize);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(BUFFER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(FAULTY_STREAMS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let mut is_finishing = false;
    let ended = std::future::poll_fn(|context: &mut Context<'_>| {
        loop {
            if let Poll::Ready(ended) = serving.as_mut().poll(context) {
                return Poll::Ready(ended.err());
            }
            match connection.order(context.waker()) {
                Order::GoOn => return Poll::Pending,
                Order::Close => return Poll::Ready(None),
                Order::Finish if is_finishing => return Poll::Pending,
                Order::Finish => {
                    is_finishing = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    });
    if let Some(error) = ended.await {
        tracing::debug!(%error, %peer, "a connection ended with an error");
    }
}

async fn respond(
    request: Request<Incoming>,
    peer: SocketAddr,
    mut router: Router,
    connection: Arc<Watched>,
) -> Result<Response<Answered>, Infallible> {
    let has_body = !request.body().is_end_stream();
    let Some(exchange) = Exchange::begin(&connection, request.version(), has_body) else {
        // The connection is being closed, so no new request is started on it.
        return std::future::pending().await;
    };
    let open = Open::new(exchange.clone());
    let mut request = request.map(|body| Body::new(Received::new(body, exchange)));
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = router.call(request).await?;
    Ok(response.map(|body| Answered::new(body, open)))
}
