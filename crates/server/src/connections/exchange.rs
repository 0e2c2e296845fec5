//! One request and its response, as their bodies report them.
//!
//! An HTTP/1.1 connection has one exchange at a time, so the phase of the connection is that of the exchange. An HTTP/2 connection has
//! several, one per stream. Each stream has times of its own, and the connection is idle when it has none.

use std::sync::Arc;
use std::task::Waker;

use futures::task::AtomicWaker;
use http::Version;
use parking_lot::Mutex;

use super::watch::Timeouts;
use super::watched::{REFUSAL_TIMEOUT_MS, SLOW_MS, Verdict, Watched, allowance};

/// One request and its response.
#[derive(Clone)]
pub(super) struct Exchange {
    connection: Arc<Watched>,
    /// The times of the exchange, if it is not the only one of its connection.
    stream: Option<Arc<Stream>>,
}

impl Exchange {
    /// Records that a request's headers are complete. Returns `None` if the connection is closed and the request must not start.
    pub(super) fn begin(
        connection: &Arc<Watched>,
        version: Version,
        has_body: bool,
    ) -> Option<Self> {
        let stream = if version == Version::HTTP_2 {
            Some(connection.stream_began(has_body)?)
        } else if connection.request_began(has_body) {
            None
        } else {
            return None;
        };
        Some(Self {
            connection: Arc::clone(connection),
            stream,
        })
    }

    /// Returns whether the connection has other exchanges at the same time.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns why the body must not be read any further, if so. `waker` is woken when that changes.
    pub(super) fn verdict(&self, waker: &Waker) -> Verdict {
        match &self.stream {
            Some(stream) => stream.verdict(waker),
            None => self.connection.verdict(waker),
        }
    }

    /// Records bytes of the request's body. HTTP/1.1 counts them where they leave the socket.
    pub(super) fn body_received(&self, bytes: usize) {
        if let Some(stream) = &self.stream {
            stream.progress.lock().received += bytes as u64;
        }
    }

    /// Records that the request's body is complete, or that its reader stopped.
    pub(super) fn body_ended(&self) {
        match &self.stream {
            Some(stream) => {
                let mut progress = stream.progress.lock();
                progress.body_since = None;
                progress.refused = None;
            }
            None => self.connection.body_ended(),
        }
    }

    /// Records that this many bytes of the response wait for the reader. In HTTP/2 a reader has a window for each stream, so it can
    /// leave one response unread while the socket takes everything else.
    pub(super) fn response_waits(&self, bytes: usize) {
        if let Some(stream) = &self.stream {
            let now = self.connection.now();
            let mut progress = stream.progress.lock();
            let (since, unread) = progress.unread.unwrap_or((now, 0));
            progress.unread = Some((since, unread + bytes as u64));
        }
    }

    /// Records that the reader waits for the response.
    pub(super) fn reader_waits(&self) {
        if let Some(stream) = &self.stream {
            stream.progress.lock().unread = None;
        }
    }

    /// Records that the response is complete or in hyper's buffer, or that the exchange was given up.
    fn end(&self) {
        match &self.stream {
            Some(stream) => self.connection.stream_ended(stream),
            None => self.connection.answered(),
        }
    }
}

/// Ends its exchange when it is dropped: with the response, or with the stream that the client reset.
pub(super) struct Open(Exchange);

impl Open {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self(exchange)
    }

    pub(super) fn exchange(&self) -> &Exchange {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The times of one exchange among several.
pub(super) struct Stream {
    progress: Mutex<Progress>,
    /// The task that reads the body of the request.
    reader: AtomicWaker,
}

#[derive(Default)]
struct Progress {
    /// Since when the body is being received.
    body_since: Option<u64>,
    /// Bytes of the body so far.
    received: u64,
    /// Since when its reader must stop, and why.
    refused: Option<(u64, Verdict)>,
    /// Since when the response waits for its reader, and how many bytes it read or has to read.
    unread: Option<(u64, u64)>,
}

impl Stream {
    pub(super) fn new(now: u64, has_body: bool) -> Self {
        let progress = Progress {
            body_since: has_body.then_some(now),
            ..Progress::default()
        };
        Self {
            progress: Mutex::new(progress),
            reader: AtomicWaker::new(),
        }
    }

    fn verdict(&self, waker: &Waker) -> Verdict {
        self.reader.register(waker);
        let refused = self.progress.lock().refused;
        refused.map_or(Verdict::None, |(_, verdict)| verdict)
    }

    /// Stops the reader of a body that takes too long. Returns whether the connection must be closed, because a refusal or a response
    /// is not read. `grace` is the moment at which a stopping server reads no more.
    pub(super) fn sweep(&self, limits: &Timeouts, now: u64, grace: u64) -> bool {
        let mut progress = self.progress.lock();
        if let Some((since, bytes)) = progress.unread
            && now >= since + limits.write + allowance(bytes)
        {
            return true;
        }
        if let Some((since, _)) = progress.refused {
            return now >= since + REFUSAL_TIMEOUT_MS;
        }
        let Some(since) = progress.body_since else {
            return false;
        };
        let verdict = if now >= since + limits.body + allowance(progress.received) {
            Verdict::TimedOut
        } else if now >= grace {
            Verdict::Stopping
        } else {
            return false;
        };
        progress.refused = Some((now, verdict));
        drop(progress);
        self.reader.wake();
        false
    }

    /// Returns since when the client is slow, or `None` if it is not.
    pub(super) fn slow_since(&self, now: u64) -> Option<u64> {
        let progress = self.progress.lock();
        let unread = progress.unread.map(|(since, _)| since);
        unread
            .or(progress.body_since)
            .filter(|since| now >= since + SLOW_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Timeouts = Timeouts {
        header: 1_000,
        body: 2_000,
        idle: 3_000,
        write: 4_000,
    };

    const NEVER: u64 = u64::MAX;

    fn verdict(stream: &Stream) -> Verdict {
        stream.verdict(Waker::noop())
    }

    #[test]
    fn a_body_has_its_time_and_more_for_what_arrived() {
        let stream = Stream::new(100, true);
        assert!(!stream.sweep(&LIMITS, 2_099, NEVER));
        assert_eq!(verdict(&stream), Verdict::None);
        // Two seconds more.
        stream.progress.lock().received = 2 * super::super::BYTES_PER_SECOND_MIN;
        assert!(!stream.sweep(&LIMITS, 4_099, NEVER));
        assert_eq!(verdict(&stream), Verdict::None);
        assert!(!stream.sweep(&LIMITS, 4_100, NEVER));
        assert_eq!(verdict(&stream), Verdict::TimedOut);
        assert!(!stream.sweep(&LIMITS, 4_099 + REFUSAL_TIMEOUT_MS, NEVER));
        assert!(stream.sweep(&LIMITS, 4_100 + REFUSAL_TIMEOUT_MS, NEVER));
    }

    #[test]
    fn a_stopping_server_reads_no_more_after_its_grace_period() {
        let stream = Stream::new(100, true);
        assert!(!stream.sweep(&LIMITS, 999, 1_000));
        assert_eq!(verdict(&stream), Verdict::None);
        assert!(!stream.sweep(&LIMITS, 1_000, 1_000));
        assert_eq!(verdict(&stream), Verdict::Stopping);
    }

    #[test]
    fn a_request_that_waits_for_its_response_has_no_limit() {
        let stream = Stream::new(100, false);
        assert!(!stream.sweep(&LIMITS, NEVER / 2, NEVER));
        assert_eq!(stream.slow_since(NEVER / 2), None);
    }

    #[test]
    fn an_unread_response_has_its_time_and_more_for_its_bytes() {
        let stream = Stream::new(100, false);
        stream.progress.lock().unread = Some((200, super::super::BYTES_PER_SECOND_MIN));
        assert!(!stream.sweep(&LIMITS, 5_199, NEVER));
        assert_eq!(stream.slow_since(200 + SLOW_MS), Some(200));
        assert!(stream.sweep(&LIMITS, 5_200, NEVER));
    }
}
