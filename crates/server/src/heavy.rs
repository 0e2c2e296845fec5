//! Large requests and responses. Small ones stay quick, and memory stays bounded whatever clients send.
//!
//! Parsing, checking and encoding megabytes takes long and would delay all other requests. A request with a large body is therefore
//! served away from the async threads, a few at a time. A large body reserves memory from the time it is read until the response is
//! sent. If none is free, the request waits for a while and is then refused without being read.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::body::{Body as HttpBody, HttpBody as _};
use axum::extract::State;
use axum::middleware::Next;
use axum::response::Response;
use bytes::BytesMut;
use futures::StreamExt as _;
use futures::future::ready;
use futures::stream;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use longhaul_protocol::Reason;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::gate::Refusal;
use crate::{App, conductor};

/// A body or a response of at least this size is large: working on a quarter of a mebibyte takes about a millisecond.
const LARGE_FROM_BYTES: usize = 256 * 1024;

/// Bytes of large bodies in memory at once. Processing them takes a few times as much.
const LARGE_BODIES_BYTES_MAX: usize = 128 << 20;

/// How long a large request waits for memory: less than clients wait for a response.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// When a refused client should try again.
const RETRY_AFTER_SECONDS: u64 = 5;

/// Memory is counted in these units, because a semaphore counts no more than 32 bits.
const ROOM_UNIT: usize = 1024;

/// Most large requests that are processed at once. On small machines it is one less than the number of threads.
const WORKING_MAX: usize = 4;

/// Limits the memory and the threads of large requests.
pub(crate) struct Heavy {
    bodies: Arc<Semaphore>,
    working: Arc<Semaphore>,
}

/// Memory that a body reserves until the response is sent.
pub(crate) struct Room {
    permit: OwnedSemaphorePermit,
}

impl Room {
    /// Gives back what a body of this length does not need.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let spare = self
            .permit
            .num_permits()
            .saturating_sub(bytes.div_ceil(ROOM_UNIT));
        drop(self.permit.split(spare));
    }
}

impl Default for Heavy {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            bodies: Arc::new(Semaphore::new(LARGE_BODIES_BYTES_MAX / ROOM_UNIT)),
            working: Arc::new(Semaphore::new((threads - 1).clamp(1, WORKING_MAX))),
        }
    }
}

impl Heavy {
    /// Reserves memory for a body of the length that [`large_body`] returned. A small body needs no reservation.
    pub(crate) async fn room_for(
        &self,
        large: Option<usize>,
        limit: usize,
    ) -> Result<Option<Room>, Refusal> {
        let Some(bytes) = large else {
            return Ok(None);
        };
        let units = bytes.min(limit).div_ceil(ROOM_UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bodies).acquire_many_owned(units);
        match tokio::time::timeout(ROOM_WAIT, permit).await {
            Ok(Ok(permit)) => Ok(Some(Room { permit })),
            Ok(Err(_)) | Err(_) => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::ServerBusy,
                "Too many large requests are being served; this one was not read.",
            )
            .with("retryable", true)
            .with("retry_after_seconds", RETRY_AFTER_SECONDS)),
        }
    }
}

/// Returns the length of a large body, or `None` for a small one. A body of unknown length counts as the largest possible.
pub(crate) fn large_body(headers: &HeaderMap, body: &HttpBody) -> Option<usize> {
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<usize>().ok());
    // A body from this process has a known length without a header.
    let exact = body.size_hint().exact();
    match declared.or_else(|| exact.and_then(|bytes| usize::try_from(bytes).ok())) {
        Some(bytes) => (bytes >= LARGE_FROM_BYTES).then_some(bytes),
        None => (!body.is_end_stream()).then_some(usize::MAX),
    }
}

/// Serves requests with large bodies away from the async threads.
pub(crate) async fn layer(
    State(app): State<App>,
    request: Request<HttpBody>,
    next: Next,
) -> Response {
    // Some Conductor clients send every body without its length, also the smallest.
    let request = if conductor::owns(request.uri().path()) {
        measured(request).await
    } else {
        request
    };
    if large_body(request.headers(), request.body()).is_none() {
        return next.run(request).await;
    }
    let working = Arc::clone(&app.heavy().working);
    away(working, next.run(request)).await
}

/// Reads the beginning of a body of unknown length. A body that ends there is small, and its length is known from here on.
async fn measured(request: Request<HttpBody>) -> Request<HttpBody> {
    if large_body(request.headers(), request.body()) != Some(usize::MAX) {
        return request;
    }
    let (parts, mut body) = request.into_parts();
    let mut start = BytesMut::new();
    let failed = loop {
        match body.frame().await {
            None => return Request::from_parts(parts, HttpBody::from(start.freeze())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    start.extend_from_slice(&data);
                }
                if start.len() >= LARGE_FROM_BYTES {
                    break None;
                }
            }
            // The plane refuses it, with its own envelope.
            Some(Err(error)) => break Some(error),
        }
    };
    let start = stream::once(ready(Ok(start.freeze())));
    let body = match failed {
        None => HttpBody::from_stream(start.chain(body.into_data_stream())),
        Some(error) => HttpBody::from_stream(start.chain(stream::once(ready(Err(error))))),
    };
    Request::from_parts(parts, body)
}

/// Drives a future on threads for blocking work. It holds a permit while it runs, but not while it waits.
async fn away<F>(working: Arc<Semaphore>, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let mut future = Box::pin(future);
    let woken = Arc::new(Woken(Notify::new()));
    loop {
        let place = Arc::clone(&working).acquire_owned().await;
        let waker = Waker::from(Arc::clone(&woken));
        let step = move || {
            let step = future.as_mut().poll(&mut Context::from_waker(&waker));
            drop(place);
            (future, step)
        };
        match tokio::task::spawn_blocking(step).await {
            Ok((_, Poll::Ready(output))) => return output,
            Ok((unfinished, Poll::Pending)) => future = unfinished,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
        // `Notify` remembers a wake that came while the step ran.
        woken.0.notified().await;
    }
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Does work on this many bytes: directly if they are few, otherwise away from the async threads.
pub(crate) async fn work<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < LARGE_FROM_BYTES {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(length: Option<usize>) -> HeaderMap {
        let length = length.map(|length| (CONTENT_LENGTH, length.to_string()));
        length
            .into_iter()
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_body_is_large_by_its_length_or_if_its_length_is_unknown() {
        let chunks =
            || HttpBody::from_stream(futures::stream::pending::<Result<String, axum::BoxError>>());
        assert_eq!(large_body(&headers(None), &HttpBody::empty()), None);
        assert_eq!(large_body(&headers(Some(1000)), &chunks()), None);
        assert_eq!(
            large_body(&headers(Some(300_000)), &chunks()),
            Some(300_000)
        );
        assert_eq!(large_body(&headers(None), &chunks()), Some(usize::MAX));
    }

    /// As many bodies as fit are admitted. The next one waits, and is refused if no memory becomes free.
    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_memory_and_are_then_refused() {
        let heavy = Heavy::default();
        let limit = 16 << 20;
        let mut rooms = Vec::new();
        for _ in 0..LARGE_BODIES_BYTES_MAX / limit {
            let room = heavy.room_for(Some(limit), limit).await;
            rooms.push(room.ok().flatten().expect("room"));
        }
        let refused = heavy.room_for(Some(limit), limit).await;
        assert_eq!(
            refused.err().map(|refusal| refusal.reason),
            Some(Reason::ServerBusy)
        );
        let small = heavy.room_for(None, limit).await;
        assert!(small.is_ok_and(|room| room.is_none()));
        rooms.pop();
        let room = heavy.room_for(Some(limit), limit).await;
        assert!(room.is_ok_and(|room| room.is_some()));
    }

    /// A future that waits returns its result in the end, and other heavy work goes on meanwhile.
    #[tokio::test]
    async fn heavy_work_holds_no_permit_while_it_waits() {
        let working = Arc::new(Semaphore::new(1));
        let (send, receive) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(away(Arc::clone(&working), async {
            receive.await.unwrap_or(0)
        }));
        let other = away(Arc::clone(&working), async {
            tokio::task::yield_now().await;
            2
        });
        assert_eq!(other.await, 2);
        send.send(40).unwrap();
        assert_eq!(waiting.await.unwrap(), 40);
    }
}
